"""What every phone is doing, at the foot of the terminal while pytest writes above it.

Workers send signs of life as datagrams to a socket of the controller: nothing waits for an answer, and what the
controller cannot take at once is dropped. Where the output is no terminal there is no socket, and every worker writes
plain lines itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.device.text import printable
from harness.errors import UserError
from harness.record.codec import from_json, to_json
from harness.run.watch import Sign

_REDRAW_S: Final = 1.0
_MAX_DATAGRAM: Final = 8192
_SMALLEST: Final = (12, 60)
"""Rows and columns; a smaller terminal gets plain lines."""
_MAX_ROWS: Final = 8


class Channel:
    """A worker's way to the controller's screen. Sending never blocks and never fails."""

    def __init__(self, address: str, worker: str) -> None:
        self._address = address
        self._worker = worker
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def tell(self, sign: Sign) -> None:
        self._send({"sign": to_json(sign)})

    def say(self, text: str) -> None:
        self._send({"text": printable(text, 200)})

    def plan(self, planned: Mapping[str, int]) -> None:
        """``planned``: workload to the number of its runs in the whole session."""
        self._send({"planned": dict(planned)})

    def close(self) -> None:
        self._socket.close()

    def _send(self, body: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps({"worker": self._worker, **body}).encode(), self._address)


@dataclass(slots=True, kw_only=True)
class _Row:
    """One worker"""

    text: str = ""
    sign: Sign | None = None
    received: float = 0.0


@dataclass(slots=True, kw_only=True)
class Board:
    """What has been told so far, and the lines that show it."""

    n_workers: int
    began: float
    rows: dict[str, _Row] = field(default_factory=dict)
    planned: dict[str, int] | None = None
    """Workload to the number of its runs"""
    took: dict[str, list[float]] = field(default_factory=dict)
    """Workload to the seconds that its finished runs took"""

    def take(self, message: bytes, now: float) -> None:
        """A datagram; anything that is none of ours is passed over."""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, UserError):
            body = json.loads(message)
            row = self.rows.setdefault(str(body["worker"])[:20], _Row())
            if "planned" in body:
                self.planned = {str(name): int(n) for name, n in body["planned"].items()}
            elif "text" in body:
                row.text = str(body["text"])
            else:
                sign = from_json(body["sign"], Sign, name="sign of life")
                row.received = now
                row.sign = None if sign.over else sign
                row.text = f"{sign.workload} of {sign.cell} done" if sign.over else ""
                if sign.over:
                    self.took.setdefault(sign.workload, []).append(sign.elapsed_s)

    def left_s(self) -> float | None:
        """Of the whole session: what is left of the running ones, and for the others the mean of the finished ones of
        their workload, or of all where none of it has finished."""
        done = [seconds for times in self.took.values() for seconds in times]
        if self.planned is None or not done:
            return None

        def mean(workload: str) -> float:
            times = self.took.get(workload, done)
            return sum(times) / len(times)

        running = [row.sign for row in self.rows.values() if row.sign is not None]
        waiting = Counter(self.planned)
        waiting.subtract({name: len(times) for name, times in self.took.items()})
        waiting.subtract(Counter(sign.workload for sign in running))
        rest = sum(max(0.0, mean(sign.workload) - sign.elapsed_s) for sign in running)
        return (sum(max(0, n) * mean(name) for name, n in waiting.items()) + rest) / max(1, self.n_workers)

    def lines(self, now: float, columns: int, most: int) -> list[str]:
        """A headline and a line per worker, each exactly ``columns`` wide."""
        done = sum(map(len, self.took.values()))
        of = "?" if self.planned is None else str(max(done, sum(self.planned.values())))
        head = f" SnapGate · {clock_text(now - self.began)} · {done} of {of} runs done"
        left = self.left_s()
        head += " · time left not known yet" if left is None else f" · about {clock_text(left)} left"
        body = [self._line(worker, row, now) for worker, row in sorted(self.rows.items())[:most]]
        return [fitted(line, columns) for line in (head, *body)]

    def _line(self, worker: str, row: _Row, now: float) -> str:
        sign = row.sign
        if sign is None:
            return f" {worker}  {row.text or 'waiting'}"
        age = now - row.received
        heard = "not heard yet" if sign.heard_s is None else f"heard {sign.heard_s + age:.0f} s ago"
        left = "?" if sign.left_s is None else clock_text(max(0.0, sign.left_s - age))
        parts = [
            f"{worker}  {sign.serial}",
            f"{sign.workload} {sign.cell}",
            sign.stage,
            f"{sign.n_done}/{sign.n_generations} gen, {sign.n_tokens} tok",
            f"ETA {left}",
            heard,
            " ".join(f"{domain} {value:.0f}°C" for domain, value in sign.celsius.items()) or "no temperature",
        ]
        return " " + " · ".join(parts)


def clock_text(seconds: float) -> str:
    """``3:07``, or ``1:02:03``"""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def fitted(text: str, columns: int) -> str:
    """``text`` without control characters, cut or filled up to ``columns`` cells of a terminal."""
    kept, used = [], 0
    for character in text:
        if unicodedata.category(character)[0] == "C":
            continue
        wide = 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used + wide > columns:
            break
        kept.append(character)
        used += wide
    return "".join(kept) + " " * (columns - used)


class Screen:
    """The controller's end. Keeps the lowest rows of the terminal by a scroll region until ``close``."""

    def __init__(self, descriptor: int, *, n_workers: int) -> None:
        """``descriptor``: of a terminal; a copy of it is kept."""
        self._terminal = os.dup(descriptor)
        self._folder = Path(tempfile.mkdtemp(prefix="snapgate-live-"))
        self.address = str(self._folder / "s")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(_REDRAW_S / 2)
        self._n_rows = 1 + min(max(1, n_workers), _MAX_ROWS)
        self._board = Board(n_workers=max(1, n_workers), began=time.monotonic())
        self._size = (0, 0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Safe to call twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join(timeout=5)
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            self._release()
        with contextlib.suppress(OSError):
            os.close(self._terminal)
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        drawn = 0.0
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                self._board.take(self._socket.recv(_MAX_DATAGRAM), time.monotonic())
            now = time.monotonic()
            if now - drawn >= _REDRAW_S:
                drawn = now
                try:
                    self._draw(now)
                except OSError:  # the terminal is gone; pytest goes on
                    return

    def _draw(self, now: float) -> None:
        size = os.get_terminal_size(self._terminal)
        if (size.lines, size.columns) != self._size:
            self._reserve(size.lines)
            self._size = (size.lines, size.columns)
        first = size.lines - self._n_rows + 1
        text = "\x1b7"
        for number, line in enumerate(self._board.lines(now, size.columns - 1, self._n_rows - 1)):
            text += f"\x1b[{first + number};1H\x1b[2K" + (f"\x1b[7m{line}\x1b[0m" if number == 0 else line)
        self._write(text + "\x1b8")

    def _reserve(self, rows: int) -> None:
        """Scroll up by the height of the block, so that nothing is covered, and keep the cursor above it."""
        n = self._n_rows
        self._write("\n" * n + f"\x1b[{n}A\x1b7\x1b[1;{rows - n}r\x1b8")

    def _release(self) -> None:
        rows = os.get_terminal_size(self._terminal).lines
        if self._size != (0, 0):
            lines = "".join(f"\x1b[{rows - i};1H\x1b[2K" for i in range(self._n_rows))
            self._write(f"\x1b7\x1b[r{lines}\x1b8")

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._terminal, data) :]


def screen_for(descriptor: int, *, n_workers: int, environment: dict[str, str]) -> Screen | None:
    """None where the output is no terminal, or one that is too simple or too small."""
    if not os.isatty(descriptor) or environment.get("TERM", "dumb") == "dumb":
        return None
    size = os.get_terminal_size(descriptor)
    if size.lines < _SMALLEST[0] or size.columns < _SMALLEST[1]:
        return None
    return Screen(descriptor, n_workers=n_workers)
