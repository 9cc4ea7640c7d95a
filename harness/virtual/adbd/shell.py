"""The shell, exec and pty services.

What happens when the client goes away follows the genuine daemon: with shell protocol v2 the shell itself gets SIGHUP
(its children do not), with v1 and ``exec:`` nothing is signalled, and a pty hangs up.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import tty
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .connection import Stream, StreamClosedError
from .processes import SHELL, Child, Processes

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN, _WINDOW_SIZE = range(6)
_PACKET = struct.Struct("<BI")
_MAX_PACKET = 1024 * 1024
_READ_SIZE = 256 * 1024
_PIPE_SIZE = 1024 * 1024
_WINDOW = re.compile(rb"(\d{1,5})x(\d{1,5}),(\d{1,5})x(\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRequest:
    command: str
    """Empty for an interactive shell."""
    on_terminal: bool
    framed: bool
    """Shell protocol v2: stdout and stderr apart, exit code at the end."""
    term: str = "dumb"


def parse_shell_service(name: str) -> ShellRequest:
    """``shell[,arg...]:command`` as adb writes it."""
    head, _, command = name.partition(":")
    on_terminal = not command
    framed = False
    term = "dumb"
    for word in head.split(",")[1:]:
        if word == "v2":
            framed = True
        elif word == "pty":
            on_terminal = True
        elif word == "raw":
            on_terminal = False
        elif word.startswith("TERM="):
            term = word.removeprefix("TERM=")
    return ShellRequest(command=command, on_terminal=on_terminal, framed=framed, term=term)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What becomes of a shell's output on its way."""

    no_exit: bool = False
    """The stream ends without the packet that carries the exit code."""
    crlf: bool = False
    garbage: bytes = b""
    """In front of the output"""

    def spoil(self, data: bytes) -> bytes:
        return data.replace(b"\n", b"\r\n") if self.crlf else data


UNHARMED = Damage()


async def run_shell(stream: Stream, request: ShellRequest, processes: Processes, damage: Damage = UNHARMED) -> None:
    arguments = [SHELL, "-c", request.command] if request.command else [SHELL, "-"]
    environment = {"TERM": request.term}
    if request.on_terminal:
        session = _start_on_terminal(stream, request, processes, arguments, environment)
    else:
        session = _start_on_pipes(stream, request, processes, arguments, environment)
    await session.run(damage)


def _start_on_terminal(
    stream: Stream, request: ShellRequest, processes: Processes, arguments: list[str], environment: dict[str, str]
) -> _Session:
    master, slave = pty.openpty()
    try:
        if request.framed and request.command:
            # adb puts its own terminal into raw mode only for an interactive shell.
            tty.setraw(slave, termios.TCSANOW)
        child = processes.start(arguments, terminal=os.ttyname(slave), environment=environment)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    return _Session(
        stream=stream,
        child=child,
        framed=request.framed,
        stdin=master,
        outputs=((_STDOUT, master),),
        terminal=master,
        hang_up=False,
    )


def _start_on_pipes(
    stream: Stream, request: ShellRequest, processes: Processes, arguments: list[str], environment: dict[str, str]
) -> _Session:
    pipes = [_pipe() for _ in range(3 if request.framed else 2)]
    (child_in, our_in), (our_out, child_out), *rest = pipes
    our_err, child_err = rest[0] if rest else (None, child_out)
    try:
        child = processes.start(arguments, stdin=child_in, stdout=child_out, stderr=child_err, environment=environment)
    except BaseException:
        for fd in (our_in, our_out, our_err):
            if fd is not None:
                os.close(fd)
        raise
    finally:
        for fd in {child_in, child_out, child_err}:
            os.close(fd)
    outputs = [(_STDOUT, our_out)]
    if our_err is not None:
        outputs.append((_STDERR, our_err))
    for fd in (our_in, our_out, our_err):
        if fd is not None:
            os.set_blocking(fd, False)
    return _Session(
        stream=stream,
        child=child,
        framed=request.framed,
        stdin=our_in,
        outputs=tuple(outputs),
        terminal=None,
        hang_up=request.framed,
    )


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return reader, writer


class _Session:
    """One running command and the stream it talks to."""

    def __init__(
        self,
        *,
        stream: Stream,
        child: Child,
        framed: bool,
        stdin: int,
        outputs: tuple[tuple[int, int], ...],
        terminal: int | None,
        hang_up: bool,
    ) -> None:
        self._stream = stream
        self._child = child
        self._framed = framed
        self._stdin: int | None = stdin
        self._outputs = outputs
        self._terminal = terminal
        self._hang_up = hang_up
        self._damage = UNHARMED

    async def run(self, damage: Damage = UNHARMED) -> None:
        self._damage = damage
        if damage.garbage:
            await self._say(_STDOUT, damage.garbage)
        tasks = [asyncio.ensure_future(self._feed())]
        output = asyncio.gather(*(self._pump(kind, fd) for kind, fd in self._outputs))
        gone = asyncio.ensure_future(self._stream.wait_closed())
        tasks.append(gone)
        try:
            await asyncio.wait((output, gone), return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                await asyncio.wait((self._child.ended, gone), return_when=asyncio.FIRST_COMPLETED)
            if output.done() and not output.cancelled() and output.exception() is not None and not gone.done():
                output.result()
            if not gone.done() and self._framed and not damage.no_exit:
                await self._stream.write(_PACKET.pack(_EXIT, 1) + bytes((self._child.ended.result() & 0xFF,)))
        finally:
            if gone.done() and self._hang_up:
                self._child.signal(signal.SIGHUP)
            for task in tasks:
                task.cancel()
            output.cancel()
            await asyncio.gather(*tasks, output, return_exceptions=True)
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        self._close_stdin()
        for _, fd in self._outputs:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _close_stdin(self) -> None:
        fd, self._stdin = self._stdin, None
        if fd is not None and fd != self._terminal:
            os.close(fd)

    async def _pump(self, kind: int, fd: int) -> None:
        while data := await _read(fd):
            await self._say(kind, self._damage.spoil(data))

    async def _say(self, kind: int, data: bytes) -> None:
        if self._framed:
            await self._stream.write(b"".join((_PACKET.pack(kind, len(data)), data)))
        else:
            await self._stream.write(data)

    async def _feed(self) -> None:
        """Bytes from the client to the command's stdin, until the client goes or closes it."""
        take = self._packets() if self._framed else self._plain()
        await take
        self._close_stdin()

    async def _plain(self) -> None:
        while (data := await self._stream.read()) is not None:
            await self._to_stdin(data)

    async def _packets(self) -> None:
        buffered = bytearray()
        while (data := await self._stream.read()) is not None:
            buffered += data
            while len(buffered) >= _PACKET.size:
                kind, length = _PACKET.unpack_from(buffered)
                if length > _MAX_PACKET:
                    self._stream.close()
                    return
                end = _PACKET.size + length
                if len(buffered) < end:
                    break
                body = bytes(buffered[_PACKET.size : end])
                del buffered[:end]
                if kind == _STDIN:
                    await self._to_stdin(body)
                elif kind == _CLOSE_STDIN:
                    self._close_stdin()
                elif kind == _WINDOW_SIZE:
                    self._resize(body)

    async def _to_stdin(self, data: bytes | bytearray) -> None:
        if self._stdin is None:
            return
        try:
            await _write(self._stdin, data)
        except OSError:
            # The command closed its stdin or ended; what it does not read is dropped, as a pipe would.
            self._close_stdin()

    def _resize(self, body: bytes) -> None:
        match = _WINDOW.match(body)
        if self._terminal is None or match is None:
            return
        rows, columns, width, height = (min(int(word), 0xFFFF) for word in match.groups())
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))


async def _ready(fd: int, watch: Callable[..., None], unwatch: Callable[[int], bool]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(fd, wake)
    try:
        await ready
    finally:
        unwatch(fd)


async def _read(fd: int) -> bytes:
    """What is there to read, at most 256 KiB; empty at the end. A pty reports its end as EIO."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, _READ_SIZE)
        except BlockingIOError:
            await _ready(fd, loop.add_reader, loop.remove_reader)
        except OSError:
            return b""


async def _write(fd: int, data: bytes | bytearray) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await _ready(fd, loop.add_writer, loop.remove_writer)


Service = Callable[[Stream], Awaitable[None]]


def shell_service(name: str, processes: Processes, damage: Damage = UNHARMED) -> Service:
    request = parse_shell_service(name)

    async def serve(stream: Stream) -> None:
        await run_shell(stream, request, processes, damage)

    return serve


def exec_service(name: str, processes: Processes) -> Service:
    request = ShellRequest(command=name.partition(":")[2], on_terminal=False, framed=False)

    async def serve(stream: Stream) -> None:
        await run_shell(stream, request, processes)

    return serve


def hung_service() -> Service:
    """Accepts, and then never says anything."""

    async def serve(stream: Stream) -> None:
        while await stream.read() is not None:
            pass
        raise StreamClosedError

    return serve
