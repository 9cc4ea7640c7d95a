"""One command over adb's ``shell,v2`` service: bounded output, and an exit status that cannot be lost unseen.

A packet is id (1 byte), length (4 bytes, little endian), data. Ids: 0 stdin, 1 stdout, 2 stderr, 3 exit status, 4
close stdin. The exit status is taken from a line of the phone's own shell on stderr that carries a nonce; the
protocol's packet alone has been seen to say 0 for everything. No such line: the status is lost, which is a fault of
the lab and never a success.
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from harness.device.text import printable_lines
from harness.errors import DeadlineError, TransferError

STDOUT_LIMIT: Final = 16 * 1024 * 1024
STDERR_LIMIT: Final = 1024 * 1024
PACKET_LIMIT: Final = 16 * 1024 * 1024
"""adbd's own packets end at 1 MiB; the length field allows 4 GiB."""
_TAIL: Final = 256
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """``exit_code``: 128 + n when signal n ended the command. ``dropped_bytes``: output beyond the limit."""

    argv: tuple[str, ...]
    stdout: bytes
    stderr: bytes
    exit_code: int
    dropped_bytes: int

    @property
    def text(self) -> str:
        """stdout as text: undecodable bytes replaced, line ends as ``\\n``."""
        return self.stdout.decode("utf-8", errors="replace").replace("\r\n", "\n")

    def said(self, limit: int = 300) -> str:
        """What a person should see of a failure: exit code and the end of stderr (or of stdout)."""
        output = printable_lines(self.stderr, limit) or printable_lines(self.stdout, limit)
        return f"exit code {self.exit_code}" + (f": {output}" if output else "")


def quote(argv: Sequence[str | PurePosixPath]) -> str:
    """A command line in which every argument reaches the program as it is."""
    return " ".join(shlex.quote(str(argument)) for argument in argv)


def with_sentinel(command: str, nonce: str) -> str:
    return f"{command}\n_s=$?; echo >&2; echo snapgate-exit-{nonce}:$_s >&2; exit $_s"


def new_nonce() -> str:
    return secrets.token_hex(8)


def split_sentinel(stderr: bytes, nonce: str) -> tuple[bytes, int] | None:
    """stderr without the sentinel, and the status it carries. None: there is none at the end of ``stderr``."""
    match = re.search(rb"\r?\n?snapgate-exit-" + nonce.encode() + rb":(\d{1,3})\r?\n?\Z", stderr)
    if match is None:
        return None
    return stderr[: match.start()], int(match.group(1))


@dataclass(slots=True, kw_only=True)
class Patience:
    """How long to wait: until ``deadline`` (time.monotonic) in all, and ``stall_s`` for the next sign of life."""

    deadline: float
    stall_s: float | None = None
    _last: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, seconds: float, stall_s: float | None = None) -> Patience:
        return cls(deadline=time.monotonic() + seconds, stall_s=stall_s)

    def alive(self) -> None:
        self._last = time.monotonic()

    def remaining(self) -> float:
        """Seconds until either limit; at least 1 ms, for a socket timeout of 0 means something else."""
        now = time.monotonic()
        left = self.deadline - now
        if self.stall_s is not None:
            left = min(left, self._last + self.stall_s - now)
        return max(left, 0.001)

    @property
    def over(self) -> bool:
        """Past the deadline: also what talks without a pause has to end."""
        return time.monotonic() >= self.deadline

    def error(self, what: str) -> DeadlineError:
        if self.stall_s is not None and time.monotonic() < self.deadline:
            return DeadlineError(
                f"{what}: no sign of life for {self.stall_s:g} s",
                found="stalled",
                next_step="look at the phone's logcat; a longer stall limit only helps slow work",
            )
        return DeadlineError(
            f"{what}: not finished in time",
            found="deadline passed",
            next_step="look at the phone's logcat, or allow more time",
        )


class Kept:
    """The head of a stream up to a limit, its last bytes, and how much was dropped between."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = b""
        self._size = 0

    def add(self, data: bytes) -> None:
        room = self._limit - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data)[-_TAIL:]
        self._size += len(data)

    @property
    def dropped(self) -> int:
        return self._size - len(self._head)

    def head(self) -> bytes:
        return bytes(self._head)

    def bytes_with_tail(self) -> bytes:
        """Everything kept: head, and the tail as far as the head does not hold it already."""
        missing = min(self.dropped, len(self._tail))
        return bytes(self._head) + (self._tail[-missing:] if missing else b"")


class LineSplitter:
    """Turns chunks into lines for ``on_line``; a line over 1 MiB is handed on in pieces."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def add(self, data: bytes) -> None:
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self._on_line(line.rstrip(b"\r").decode("utf-8", errors="replace"))
        if len(self._rest) > 1 << 20:
            self.finish()

    def finish(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            self._on_line(rest.rstrip(b"\r").decode("utf-8", errors="replace"))


def converse(
    connection: Any,
    *,
    argv: tuple[str, ...],
    nonce: str,
    stdin: bytes | None,
    patience: Patience,
    what: str,
    on_stdout: Callable[[bytes], None] | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
) -> ShellResult:
    """Speak shell v2 on a connection whose service is open, until the exit packet.

    Raises ``DeadlineError`` when patience ends, ``TransferError`` when the exit status was lost, ``EOFError`` or
    ``OSError`` when the connection broke.
    """
    sock = connection.conn
    out, err = Kept(STDOUT_LIMIT), Kept(STDERR_LIMIT)

    def receive(n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            if patience.over:
                raise patience.error(what)
            sock.settimeout(patience.remaining())
            try:
                chunk = sock.recv(min(n - len(data), 1 << 20))
            except TimeoutError as exc:
                raise patience.error(what) from exc
            if not chunk:
                raise EOFError("the connection closed before the exit status")
            data += chunk
        return bytes(data)

    try:
        sock.settimeout(patience.remaining())
        if stdin:
            for at in range(0, len(stdin), 1 << 15):
                piece = stdin[at : at + (1 << 15)]
                sock.sendall(bytes([_STDIN]) + len(piece).to_bytes(4, "little") + piece)
        sock.sendall(bytes([_CLOSE_STDIN]) + bytes(4))
    except TimeoutError as exc:
        raise patience.error(what) from exc
    while True:
        header = receive(5)
        length = int.from_bytes(header[1:], "little")
        if header[0] > _CLOSE_STDIN or length > PACKET_LIMIT:
            raise EOFError(f"not a shell packet: kind {header[0]}, {length} bytes")
        data = receive(length)
        if header[0] == _EXIT:
            break
        patience.alive()
        if header[0] == _STDOUT:
            out.add(data)
            if on_stdout is not None:
                on_stdout(data)
        elif header[0] == _STDERR:
            err.add(data)
            if on_stderr is not None:
                on_stderr(data)
    parted = split_sentinel(err.bytes_with_tail(), nonce)
    if parted is None:
        raise TransferError(
            f"{what}: the exit status was lost",
            found=f"status packet {data[:1].hex() or 'empty'} without the phone shell's own word",
            expected="the phone's shell to report the status itself",
            next_step="look whether something killed the shell on the phone (logcat), then try again",
        )
    stderr, status = parted
    return ShellResult(
        argv=argv,
        stdout=out.head(),
        stderr=stderr[:STDERR_LIMIT],
        exit_code=status,
        dropped_bytes=out.dropped + err.dropped,
    )
