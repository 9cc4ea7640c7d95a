"""Lanes: what a test needs of the host beyond the prerequisites. A lane that cannot run says why, in a table."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from harness.cli.capabilities import CAPABILITIES, HARDWARE, Missing

SLOW_AS_MANY_AS = 40
"""One test marked slow counts as this many others when files are handed to workers."""


@functools.cache
def missing(name: str) -> Missing | None:
    return CAPABILITIES[name].check()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-lanes", action="store_true", help="fail if a lane that packages can provide does not run"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker is left alone with one at the end (`--no-loadscope-reorder`)."""
    weight: Counter[object] = Counter()
    for item in items:
        weight[item.path] += SLOW_AS_MANY_AS if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: (-weight[item.path], str(item.path)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("lane"):
        name = marker.args[0]
        lack = missing(name)
        if lack is None:
            item.user_properties.append(("lane", name))
            continue
        if item.config.getoption("--require-lanes") and name not in HARDWARE:
            pytest.fail(f"lane {name} did not run: {lack.reason}; next step: {lack.remedy}", pytrace=False)
        item.user_properties.append(("lane-not-run", name))
        pytest.skip(f"lane {name}: {lack.reason}")


class LaneTable:
    """Counts lanes over all workers, in the process that reports."""

    def __init__(self) -> None:
        self.ran: dict[str, int] = {}
        self.skipped: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != ("setup" if report.skipped else "call"):
            return
        for key, name in report.user_properties:
            counts = {"lane": self.ran, "lane-not-run": self.skipped}.get(key)
            if counts is not None and not (key == "lane" and report.skipped):
                counts[str(name)] = counts.get(str(name), 0) + 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        names = sorted(self.ran | self.skipped)
        if not names:
            return
        terminalreporter.section("lanes")
        for name in names:
            lack = missing(name)
            if name in self.skipped:
                assert lack is not None
                line = f"NOT RUN  {name:18} {self.skipped[name]:4} tests  {lack.reason}; next step: {lack.remedy}"
            else:
                line = f"ran      {name:18} {self.ran[name]:4} tests"
            terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LaneTable(), "lane-table")
