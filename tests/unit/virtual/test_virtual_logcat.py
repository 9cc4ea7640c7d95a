from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.virtual.adbd import logcat

LINES = [
    "01-02 03:04:05.000   100   101 I ActivityManager: started",
    "01-02 03:04:06.000   200   201 E DEBUG   : *** ***",
    "01-02 03:04:07.500   100   101 D runner  : token: 1",
]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-d"], [0, 1, 2]),
        (["-d", "-T", "01-02 03:04:06.000"], [1, 2]),
        (["-d", "-T", "2024-01-02 03:04:06.001"], [2]),
        (["-d", "-T", "1704164647.5"], [2]),
        (["-t", "2"], [1, 2]),
        (["-d", "-t", "0"], []),
        (["-d", "-s", "DEBUG"], [1]),
        (["-d", "*:E"], [1]),
        (["-d", "runner:D", "*:S"], [2]),
        (["-d", "ActivityManager:W"], [1, 2]),
        (["-d", "--pid=100"], [0, 2]),
        (["-b", "crash", "-v", "threadtime", "-d"], [0, 1, 2]),
    ],
)
def test_options_choose_lines(arguments: list[str], shown: list[int]) -> None:
    assert logcat.select(LINES, logcat.parse_arguments(arguments)) == [LINES[index] for index in shown]


@pytest.mark.parametrize(
    ("arguments", "follows"),
    [([], True), (["-d"], False), (["-t", "5"], False), (["-T", "5"], True), (["-T", "1", "-d"], False)],
)
def test_a_dump_ends_and_the_others_follow(arguments: list[str], follows: bool) -> None:
    assert logcat.parse_arguments(arguments).follow is follows


@pytest.mark.parametrize("arguments", [["-Z"], ["-v", "brief"], ["tag:Q"], ["-T", "yesterday"], [":I"]])
def test_what_it_does_not_know_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(logcat.UsageError):
        logcat.parse_arguments(arguments)


def test_a_line_is_laid_out_as_threadtime() -> None:
    line = logcat.format_line("hello", tag="abc", level="W", pid=42, seconds=1704164647.25)
    assert line == "01-02 03:04:07.250    42    42 W abc     : hello"


def test_each_line_of_a_text_is_an_entry_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    logcat.append(path, "one\ntwo", tag="t", level="E", pid=1)
    assert [line.split(": ")[1] for line in path.read_text().splitlines()] == ["one", "two"]


def test_following_waits_for_whole_lines_and_survives_clearing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\nsec")
    steps = iter(["ond\n", None, "after\n"])

    def wait() -> None:
        text = next(steps)
        if text is None:
            os.truncate(path, 0)
            return
        with path.open("a") as file:
            file.write(text)

    with path.open() as file:
        lines = logcat.follow(file, wait)
        assert [next(lines) for _ in range(3)] == ["first", "second", "after"]
