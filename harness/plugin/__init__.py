"""The pytest adapter: options, fixtures, markers, hooks."""
