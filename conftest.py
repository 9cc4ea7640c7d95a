"""Loads SnapGate's pytest plugin. This is the only place that does."""

pytest_plugins = ["harness.plugin.hooks"]
