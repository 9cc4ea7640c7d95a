"""The phone's log: one file of lines in logcat's ``threadtime`` format, and the ``logcat`` and ``log`` commands."""

from __future__ import annotations

import getopt
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

LOG = Path("/dev/vdev/log")
LEVELS = "VDIWEFS"
_STAMP_LENGTH = len("01-31 23:59:59.999")
_LINE = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +(\d+) +\d+ ([VDIWEF]) (.*?) *: ")
_SHORT_STAMP = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d\.\d+")
_LONG_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+")
_POLL_S = 0.1


class UsageError(Exception):
    """What was asked is not something logcat does; the message goes to stderr."""


def format_line(message: str, *, tag: str, level: str, pid: int, seconds: float) -> str:
    stamp = time.strftime("%m-%d %H:%M:%S", time.localtime(seconds))
    return f"{stamp}.{int(seconds * 1000) % 1000:03d} {pid:5d} {pid:5d} {level} {tag:<8}: {message}"


def _clock_offset(path: Path) -> float:
    """Seconds that the phone's wall clock is off."""
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0


def append(path: Path, text: str, *, tag: str, level: str, pid: int) -> None:
    now = time.time() + _clock_offset(path.with_name("clock_offset"))
    lines = [format_line(line, tag=tag, level=level, pid=pid, seconds=now) for line in text.splitlines()]
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


@dataclass(slots=True, kw_only=True)
class Query:
    clear: bool = False
    follow: bool = True
    since: str | None = None
    """``MM-DD hh:mm:ss.mmm``: that moment and later."""
    last: int | None = None
    pid: int | None = None
    minimum: dict[str, str] = field(default_factory=dict)
    """Tag (``*`` for all others) to the lowest level shown."""

    def shows(self, line: str) -> bool:
        match = _LINE.match(line)
        if match is None:
            return False
        pid, level, tag = match.groups()
        if self.since is not None and line[:_STAMP_LENGTH] < self.since:
            return False
        if self.pid is not None and int(pid) != self.pid:
            return False
        return LEVELS.index(level) >= LEVELS.index(self.minimum.get(tag, self.minimum.get("*", "V")))


def parse_arguments(arguments: list[str]) -> Query:
    query = Query()
    try:
        options, filters = getopt.gnu_getopt(arguments, "dcst:T:b:v:", ["pid="])
    except getopt.GetoptError as exc:
        raise UsageError(exc.msg) from exc
    for name, value in options:
        if name == "-d":
            query.follow = False
        elif name == "-c":
            query.clear = True
        elif name == "-s":
            query.minimum["*"] = "S"
        elif name == "--pid":
            query.pid = int(value)
        elif name == "-v" and value != "threadtime":
            raise UsageError(f"Invalid parameter {value!r} to -v: this phone has threadtime only")
        elif name in ("-t", "-T"):
            query.follow = query.follow and name == "-T"
            if value.isdigit():
                query.last = int(value)
            else:
                query.since = parse_moment(value)
    for text in filters:
        tag, _, level = text.partition(":")
        level = (level or "V").upper()
        if not tag or level not in LEVELS:
            raise UsageError(f"Invalid filter expression {text!r}")
        query.minimum[tag] = level
    return query


def parse_moment(text: str) -> str:
    """``MM-DD hh:mm:ss.mmm``, the same with a year, or seconds since 1970 with a fraction."""
    if _SHORT_STAMP.fullmatch(text):
        return text[:_STAMP_LENGTH].ljust(_STAMP_LENGTH, "0")
    if _LONG_STAMP.fullmatch(text):
        return parse_moment(text[5:])
    try:
        seconds = float(text)
    except ValueError as exc:
        raise UsageError(f"-T {text!r} not in time format") from exc
    return format_line("", tag="", level="I", pid=0, seconds=seconds)[:_STAMP_LENGTH]


def select(lines: Iterable[str], query: Query) -> list[str]:
    shown = [line for line in lines if query.shows(line)]
    return shown if query.last is None else shown[max(0, len(shown) - query.last) :]


def follow(file: TextIO, wait: Callable[[], None]) -> Iterator[str]:
    """Whole lines as they are appended, for ever; starts again when the file was cleared."""
    partial = ""
    while True:
        chunk = file.readline()
        if not chunk:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)
            wait()
            continue
        partial += chunk
        if partial.endswith("\n"):
            yield partial.rstrip("\n")
            partial = ""


def main_logcat(arguments: list[str]) -> int:
    try:
        query = parse_arguments(arguments)
    except UsageError as exc:
        sys.stderr.write(f"logcat: {exc}\n")
        return 1
    if query.clear:
        os.truncate(LOG, 0)
        return 0
    with LOG.open(encoding="utf-8", errors="replace") as file:
        shown = select((line.rstrip("\n") for line in file), query)
        if shown:
            sys.stdout.write("--------- beginning of main\n")
        for line in shown:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if query.follow:
            for line in follow(file, lambda: time.sleep(_POLL_S)):
                if query.shows(line):
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()
    return 0


def main_log(arguments: list[str]) -> int:
    try:
        options, words = getopt.getopt(arguments, "p:t:")
    except getopt.GetoptError as exc:
        sys.stderr.write(f"log: {exc.msg}\n")
        return 1
    given = dict(options)
    level = given.get("-p", "I").upper()
    if level not in LEVELS[:-1]:
        sys.stderr.write(f"log: bad -p '{level}'\n")
        return 1
    append(LOG, " ".join(words), tag=given.get("-t", "log"), level=level, pid=os.getppid())
    return 0


if __name__ == "__main__":
    command = {"logcat": main_logcat, "log": main_log}[sys.argv[1]]
    try:
        sys.exit(command(sys.argv[2:]))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
