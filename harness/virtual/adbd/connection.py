"""One adb server's connection: the handshake, and the streams multiplexed over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from . import wire

_LOG = logging.getLogger(__name__)
_RECEIVE_WINDOW = 4 * 1024 * 1024
"""Bytes queued in one stream from which on the peer's OKAY is withheld."""
_MAX_STREAMS = 512
_AUTH_TOKEN, _AUTH_SIGNATURE, _AUTH_PUBLIC_KEY = 1, 2, 3
_TOKEN = bytes(range(20))
"""What the host is to sign. Nothing checks the signature: whether a host is trusted is set from outside."""


class StreamClosedError(Exception):
    """The other side, or the whole connection, is gone."""


class Host(Protocol):
    """What a connection needs of the phone it leads to."""

    def banner(self) -> str: ...

    def is_offline(self) -> bool: ...

    def is_trusting(self) -> bool:
        """False: the host's key was not accepted yet."""

    def pace_s(self, n_bytes: int) -> float:
        """How long the link takes for so many bytes beyond what it takes anyway."""

    def open_service(self, name: str) -> Callable[[Stream], Awaitable[None]] | None:
        """The service behind ``name``, or None to refuse it."""


class Stream:
    """One service's bytes in both directions. Each side sends one frame and then waits for its OKAY."""

    def __init__(self, connection: Connection, local_id: int, remote_id: int) -> None:
        self._connection = connection
        self.local_id = local_id
        self.remote_id = remote_id
        self._queue: deque[bytearray] = deque()
        self._queued = 0
        self._owes_okay = False
        self._arrived = asyncio.Event()
        self._credit = asyncio.Event()
        self._credit.set()
        self._closed = asyncio.Event()
        self._sending = asyncio.Lock()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def read(self) -> bytearray | None:
        """The next frame's payload; None once the peer has closed and everything it sent was read."""
        while not self._queue:
            if self.closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        payload = self._queue.popleft()
        self._queued -= len(payload)
        if self._owes_okay and self._queued < _RECEIVE_WINDOW:
            self._owes_okay = False
            self._connection.send(wire.OKAY, self.local_id, self.remote_id)
        return payload

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of ``data``, in frames of the size agreed. Returns once the last frame is on its way.

        Raises StreamClosedError when nobody listens any more.
        """
        async with self._sending:
            view = memoryview(data)
            limit = self._connection.max_payload
            for start in range(0, len(view), limit):
                await self._credit.wait()
                if self.closed:
                    raise StreamClosedError
                self._credit.clear()
                if wait_s := self._connection.pace_s(min(limit, len(view) - start)):
                    await asyncio.sleep(wait_s)
                self._connection.send(wire.WRTE, self.local_id, self.remote_id, view[start : start + limit])

    async def finish(self) -> None:
        """Close after the peer has taken what was written."""
        await self._credit.wait()
        self.close()

    def close(self) -> None:
        if not self.closed:
            self._connection.send(wire.CLSE, self.local_id, self.remote_id)
            self.on_close()

    def on_payload(self, payload: bytearray) -> None:
        self._queue.append(payload)
        self._queued += len(payload)
        self._arrived.set()
        if self._queued < _RECEIVE_WINDOW:
            self._connection.send(wire.OKAY, self.local_id, self.remote_id)
        else:
            self._owes_okay = True

    def on_okay(self) -> None:
        self._credit.set()

    def on_close(self) -> None:
        self._closed.set()
        self._arrived.set()
        self._credit.set()
        self._connection.forget(self)


class Connection(wire.FrameProtocol):
    def __init__(self, host: Host, registry: set[Connection]) -> None:
        super().__init__()
        self._host = host
        self._registry = registry
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_id = 1
        self._version = wire.VERSION
        self._online = False
        self._asked_for_trust = False
        self._held: list[bytes] | None = None
        """What waits for a frozen link; None: it is not frozen"""
        self.max_payload = wire.MAX_PAYLOAD

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"a stream transport is needed, not {type(transport).__name__}")
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=8 * wire.MAX_PAYLOAD)
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._online = False
        self._registry.discard(self)
        self._close_streams()

    def abort(self) -> None:
        """Cut the cable: what is buffered is lost and the peer sees a reset."""
        if self._transport is not None:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()

    def freeze(self) -> None:
        """Nothing passes in either direction, and nobody is told."""
        if self._transport is not None and self._held is None:
            self._held = []
            self._transport.pause_reading()

    def thaw(self) -> None:
        held, self._held = self._held, None
        if self._transport is not None and held is not None:
            self._transport.writelines(held)
            self._transport.resume_reading()

    def inject(self, data: bytes) -> None:
        """Bytes between the frames that belong to none."""
        if self._transport is not None:
            self._transport.write(data)

    def pace_s(self, n_bytes: int) -> float:
        return self._host.pace_s(n_bytes)

    def _resume(self) -> None:
        if self._transport is not None and self._held is None:
            self._transport.resume_reading()

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | bytearray | memoryview = b"") -> None:
        if self._transport is None:
            return
        header = wire.frame_header(command, arg0, arg1, payload, checksum=self._version < wire.VERSION)
        if self._held is not None:
            self._held.extend((header, bytes(payload)))
        elif payload:
            self._transport.writelines((header, payload))
        else:
            self._transport.write(header)

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.local_id, None)

    def on_garbage(self, reason: str) -> None:
        _LOG.warning("dropping a connection: %s", reason)
        self.abort()

    def on_frame(self, command: int, arg0: int, arg1: int, payload: bytearray) -> None:
        if self._transport is not None and (wait_s := self._host.pace_s(len(payload))) > 0 and self._held is None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(wait_s, self._resume)
        if command == wire.CNXN:
            self._on_connect(arg0, arg1)
        elif command == wire.AUTH:
            self._on_auth(arg0)
        elif not self._online:
            self.on_garbage(f"command 0x{command:08x} before CNXN")
        elif command == wire.OPEN:
            self._on_open(arg0, payload)
        elif command in (wire.OKAY, wire.WRTE, wire.CLSE):
            self._on_stream_frame(command, arg0, arg1, payload)
        else:
            _LOG.warning("ignoring command 0x%08x", command)

    def _on_connect(self, version: int, max_payload: int) -> None:
        if self._host.is_offline():
            return
        if version < wire.VERSION_WITH_CHECKSUM or max_payload < 4096:
            self.on_garbage(f"CNXN with version 0x{version:08x} and a payload limit of {max_payload}")
            return
        self._close_streams()
        self._version = min(version, wire.VERSION)
        self.max_payload = min(max_payload, wire.MAX_PAYLOAD)
        if self._host.is_trusting():
            self._go_online()
        else:
            self.send(wire.AUTH, _AUTH_TOKEN, 0, _TOKEN)

    def _on_auth(self, kind: int) -> None:
        """Each key of the host is refused; its public key is kept in mind until somebody at the phone accepts it."""
        if kind == _AUTH_SIGNATURE:
            self.send(wire.AUTH, _AUTH_TOKEN, 0, _TOKEN)
        elif kind == _AUTH_PUBLIC_KEY:
            self._asked_for_trust = True
            self.trust()

    def trust(self) -> None:
        """Somebody at the phone accepted the host's key."""
        if self._asked_for_trust and not self._online and self._host.is_trusting():
            self._go_online()

    def _go_online(self) -> None:
        self._online = True
        self.send(wire.CNXN, wire.VERSION, wire.MAX_PAYLOAD, self._host.banner().encode())

    def _on_open(self, remote_id: int, payload: bytearray) -> None:
        name = payload.rstrip(b"\0").decode(errors="surrogateescape")
        service = self._host.open_service(name) if remote_id and len(self._streams) < _MAX_STREAMS else None
        if service is None:
            self.send(wire.CLSE, 0, remote_id)
            return
        stream = Stream(self, self._next_id, remote_id)
        self._next_id = self._next_id % 0x7FFFFFFF + 1
        self._streams[stream.local_id] = stream
        self.send(wire.OKAY, stream.local_id, remote_id)
        task = asyncio.get_running_loop().create_task(_serve(service, stream), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_service_end)

    def _on_service_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # One service's defect must not take the phone down: its client sees a closed stream, the log the cause.
            _LOG.error("service %r failed", task.get_name(), exc_info=error)

    def _on_stream_frame(self, command: int, remote_id: int, local_id: int, payload: bytearray) -> None:
        stream = self._streams.get(local_id)
        if stream is None or stream.remote_id != remote_id:
            if stream is None and command == wire.WRTE:
                self.send(wire.CLSE, 0, remote_id)
            return
        if command == wire.OKAY:
            stream.on_okay()
        elif command == wire.WRTE:
            stream.on_payload(payload)
        else:
            stream.close()

    def _close_streams(self) -> None:
        for stream in list(self._streams.values()):
            stream.on_close()


async def _serve(service: Callable[[Stream], Awaitable[None]], stream: Stream) -> None:
    try:
        with contextlib.suppress(StreamClosedError):
            await service(stream)
            await stream.finish()
    finally:
        stream.close()


_RESET_ON_CLOSE = b"\x01\x00\x00\x00\x00\x00\x00\x00"
"""``struct linger`` with l_onoff 1 and l_linger 0."""
