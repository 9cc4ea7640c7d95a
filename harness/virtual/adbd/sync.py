"""The file service, protocol versions 1 and 2: stat, list, send, receive."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from .connection import Stream
from .faults import FaultList

_REQUEST = struct.Struct("<4sI")
_STAT_V1 = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_ENTRY_V1 = struct.Struct("<4sIIII")
_ENTRY_V2 = struct.Struct("<4sIQQIIIIQqqqI")
_CHUNK = 64 * 1024
"""Bytes: the most that one DATA record may carry."""
_CHUNKS_PER_WRITE = 15
"""So many full DATA records and a final DONE fit into one frame of 1 MiB."""
_MAX_PATH = 1024
NOEXEC = Path("/dev/vdev/noexec")
"""While it is there nothing becomes executable, as on a storage that is mounted noexec."""
_MASK = 0xFFFFFFFF


class _ProtocolError(Exception):
    """The client does not speak the protocol; there is nothing to answer."""


class _Reader:
    """Cuts the stream's frames into records without joining them first."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = memoryview(b"")

    async def some(self, limit: int) -> memoryview:
        """At least one and at most ``limit`` bytes."""
        while not self._rest:
            payload = await self._stream.read()
            if payload is None:
                raise EOFError
            self._rest = memoryview(payload)
        taken, self._rest = self._rest[:limit], self._rest[limit:]
        return taken

    def has_more(self) -> bool:
        return bool(self._rest)

    async def exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            parts += await self.some(count - len(parts))
        return bytes(parts)


async def serve_sync(stream: Stream, faults: FaultList, cut_cable: Callable[[], None]) -> None:
    """Answer one client's requests until it is done. ``cut_cable`` drops the whole connection at once."""
    session = _Session(stream, faults, cut_cable)
    with contextlib.suppress(EOFError):
        try:
            await session.run()
        except _ProtocolError as exc:
            await session.fail(str(exc))


class _Session:
    def __init__(self, stream: Stream, faults: FaultList, cut_cable: Callable[[], None]) -> None:
        self._stream = stream
        self._reader = _Reader(stream)
        self._faults = faults
        self._cut_cable = cut_cable

    async def run(self) -> None:
        while True:
            kind, length = _REQUEST.unpack(await self._reader.exactly(_REQUEST.size))
            if kind == b"QUIT":
                return
            if length > _MAX_PATH:
                raise _ProtocolError(f"path of {length} bytes, at most {_MAX_PATH} are allowed")
            path = os.fsdecode(await self._reader.exactly(length))
            if kind == b"STAT":
                await self._stat_v1(path)
            elif kind in (b"STA2", b"LST2"):
                await self._stat_v2(kind, path)
            elif kind == b"LIST":
                await self._list_v1(path)
            elif kind == b"LIS2":
                await self._list_v2(path)
            elif kind == b"SEND":
                path, _, mode = path.rpartition(",")
                await self._send(path, _mode_number(mode))
            elif kind == b"SND2":
                _, mode_bits, flags = struct.unpack("<4sII", await self._reader.exactly(12))
                _refuse_flags(flags)
                await self._send(path, mode_bits)
            elif kind == b"RECV":
                await self._receive(path)
            elif kind == b"RCV2":
                _, flags = struct.unpack("<4sI", await self._reader.exactly(8))
                _refuse_flags(flags)
                await self._receive(path)
            else:
                raise _ProtocolError(f"unknown command {kind!r}")

    async def fail(self, message: str) -> None:
        body = message.encode()
        await self._stream.write(_REQUEST.pack(b"FAIL", len(body)) + body)

    async def _stat_v1(self, path: str) -> None:
        try:
            found = os.lstat(path)
        except (OSError, ValueError):
            await self._stream.write(_STAT_V1.pack(b"STAT", 0, 0, 0))
            return
        await self._stream.write(
            _STAT_V1.pack(b"STAT", found.st_mode, found.st_size & _MASK, int(found.st_mtime) & _MASK)
        )

    async def _stat_v2(self, kind: bytes, path: str) -> None:
        await self._stream.write(_STAT_V2.pack(kind, *_stat_fields(path, follow=kind == b"STA2")))

    async def _list_v1(self, path: str) -> None:
        records = bytearray()
        for name in _names(path):
            with contextlib.suppress(OSError):
                found = os.lstat(Path(path) / name)
                raw = os.fsencode(name)
                records += _ENTRY_V1.pack(
                    b"DENT", found.st_mode, found.st_size & _MASK, int(found.st_mtime) & _MASK, len(raw)
                )
                records += raw
        records += _ENTRY_V1.pack(b"DONE", 0, 0, 0, 0)
        await self._stream.write(records)

    async def _list_v2(self, path: str) -> None:
        records = bytearray()
        for name in _names(path):
            raw = os.fsencode(name)
            records += _ENTRY_V2.pack(b"DNT2", *_stat_fields(str(Path(path) / name), follow=False), len(raw))
            records += raw
        records += _ENTRY_V2.pack(b"DONE", *(0,) * 12)
        await self._stream.write(records)

    async def _receive(self, path: str) -> None:
        try:
            fd = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as exc:
            await self.fail(f"open failed: {_reason(exc)}")
            return
        try:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                await self.fail("read failed: Is a directory")
                return
            if await self._receive_badly(fd, path):
                return
            at_end = False
            while not at_end:
                records, at_end = await asyncio.to_thread(_read_records, fd)
                # The final DONE must travel in the frame of the last DATA: apart, they cost 40 ms a file.
                await self._stream.write(records)
        except OSError as exc:
            await self.fail(f"read failed: {_reason(exc)}")
        finally:
            os.close(fd)

    async def _receive_badly(self, fd: int, path: str) -> bool:
        """Whether a fault was drawn for this file, and the file sent with it. A place beyond its end is its end."""
        drawn = {kind: self._faults.take(kind, path) for kind in ("disconnect_pull", "corrupt_pull", "truncate_pull")}
        fault = next((fault for fault in drawn.values() if fault is not None), None)
        if fault is None:
            return False
        data = bytearray(await asyncio.to_thread(Path(f"/proc/self/fd/{fd}").read_bytes))
        place = min(fault.after_bytes, max(0, len(data) - 1))
        if fault.kind == "corrupt_pull":
            data[place : place + 1] = bytes(byte ^ 1 for byte in data[place : place + 1])
        else:
            del data[place:]
        for start in range(0, len(data), _CHUNK):
            part = data[start : start + _CHUNK]
            await self._stream.write(_REQUEST.pack(b"DATA", len(part)) + part)
        if fault.kind == "disconnect_pull":
            self._cut_cable()
            raise EOFError
        await self._stream.write(_REQUEST.pack(b"DONE", 0))
        return True

    async def _send(self, path: str, mode: int) -> None:
        try:
            await asyncio.to_thread(Path(path).parent.mkdir, mode=0o775, parents=True, exist_ok=True)
        except (OSError, ValueError) as exc:
            await self._drain_and_fail(f"secure_mkdirs failed: {_reason(exc)}")
            return
        try:
            target: _File | _Link = _Link(path) if stat.S_ISLNK(mode) else await self._create(path, mode)
        except (OSError, ValueError) as exc:
            await self._drain_and_fail(f"couldn't create file: {_reason(exc)}")
            return
        try:
            modified = await self._fill(target)
        except _CutError:
            target.discard(keep=True)
            self._cut_cable()
            raise EOFError from None
        except OSError as exc:
            target.discard(keep=False)
            await self._drain_and_fail(f"write failed: {_reason(exc)}", inside_data=self._inside_data)
            return
        except BaseException:
            target.discard(keep=True)
            raise
        try:
            await asyncio.to_thread(target.complete, modified)
        except OSError as exc:
            await self.fail(f"couldn't finish file: {_reason(exc)}")
            return
        await self._stream.write(_REQUEST.pack(b"OKAY", 0))

    async def _create(self, path: str, mode: int) -> _File:
        return await asyncio.to_thread(_File, path, mode, self._faults)

    _inside_data = 0
    """Bytes of the current DATA record that were not read yet."""

    async def _fill(self, target: _File | _Link) -> int:
        """DATA records into ``target`` until DONE; returns the modification time it carries."""
        pending: list[memoryview] = []
        while True:
            kind, value = _REQUEST.unpack(await self._reader.exactly(_REQUEST.size))
            if kind == b"DONE":
                if pending:
                    await asyncio.to_thread(target.write, pending)
                return int(value)
            if kind != b"DATA" or value > _CHUNK:
                raise _ProtocolError(f"expected DATA of at most {_CHUNK} bytes, found {kind!r} {value}")
            self._inside_data = value
            while self._inside_data:
                part = await self._reader.some(self._inside_data)
                self._inside_data -= len(part)
                pending.append(part)
                if not self._reader.has_more():
                    # The frame is used up: write its pieces with one call, outside the event loop.
                    await asyncio.to_thread(target.write, pending)
                    pending = []

    async def _drain_and_fail(self, message: str, *, inside_data: int = 0) -> None:
        """Say FAIL at once, but keep reading to DONE: a client that is still sending must not be cut off."""
        await self.fail(message)
        remaining = inside_data
        while True:
            while remaining:
                remaining -= len(await self._reader.some(remaining))
            kind, value = _REQUEST.unpack(await self._reader.exactly(_REQUEST.size))
            if kind == b"DONE":
                return
            if kind != b"DATA" or value > _CHUNK:
                raise _ProtocolError(f"expected DATA or DONE, found {kind!r} {value}")
            remaining = value


class _CutError(Exception):
    """A disconnect fault is due."""


class _File:
    """A file being received, with the faults that were drawn for it."""

    def __init__(self, path: str, mode: int, faults: FaultList) -> None:
        self._path = Path(path)
        self._disconnect = faults.take("disconnect_push", path)
        self._corrupt = faults.take("corrupt_push", path)
        self._no_space = faults.take("no_space", path)
        self._truncate = faults.take("truncate_push", path)
        self._written = 0
        # As the genuine daemon does: the owner's permissions are copied to group and others.
        owner = mode >> 6 & 7
        self._mode = owner << 6 | owner << 3 | owner
        if NOEXEC.exists():
            self._mode &= ~0o111
        if self._path.is_symlink() or self._path.is_file():
            self._path.unlink()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)

    def write(self, parts: list[memoryview]) -> None:
        size = sum(map(len, parts))
        if self._disconnect is not None and self._written + size > self._disconnect.after_bytes:
            self._write_all([memoryview(b"".join(parts))[: max(0, self._disconnect.after_bytes - self._written)]])
            raise _CutError
        if self._no_space is not None and self._written + size > self._no_space.after_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write_all(parts)

    def _write_all(self, parts: list[memoryview]) -> None:
        pending = [part for part in parts if part]
        while pending:
            count = os.writev(self._fd, pending[:512])
            self._written += count
            while pending and count >= len(pending[0]):
                count -= len(pending.pop(0))
            if pending and count:
                pending[0] = pending[0][count:]

    def complete(self, modified: int) -> None:
        if self._truncate is not None:
            os.ftruncate(self._fd, min(self._truncate.after_bytes, max(0, self._written - 1)))
        if self._corrupt is not None:
            self._flip_byte(min(self._corrupt.after_bytes, self._written - 1))
        os.fchmod(self._fd, self._mode)
        os.close(self._fd)
        os.utime(self._path, (modified, modified))

    def _flip_byte(self, offset: int) -> None:
        if offset < 0:
            return
        with self._path.open("r+b") as file:
            file.seek(offset)
            (value,) = file.read(1)
            file.seek(offset)
            file.write(bytes((value ^ 0x01,)))

    def discard(self, *, keep: bool) -> None:
        """A cut cable leaves what had arrived under the final name, a failed write removes it."""
        os.close(self._fd)
        if not keep:
            self._path.unlink(missing_ok=True)


class _Link:
    """A symbolic link being received: its target arrives as the file's contents, ended by a zero byte."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._target = bytearray()

    def write(self, parts: list[memoryview]) -> None:
        for part in parts:
            self._target += part
        if len(self._target) > _MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def complete(self, modified: int) -> None:
        self._path.unlink(missing_ok=True)
        self._path.symlink_to(os.fsdecode(bytes(self._target).partition(b"\0")[0]))
        os.utime(self._path, (modified, modified), follow_symlinks=False)

    def discard(self, *, keep: bool) -> None:
        """Nothing was made yet."""


def _read_records(fd: int) -> tuple[memoryview, bool]:
    """Up to 15 DATA records of 64 KiB, read straight into place; with DONE behind them at the end of the file."""
    step = _REQUEST.size + _CHUNK
    buffer = bytearray(step * _CHUNKS_PER_WRITE + _REQUEST.size)
    view = memoryview(buffer)
    slots = [view[start + _REQUEST.size : start + step] for start in range(0, step * _CHUNKS_PER_WRITE, step)]
    count = os.readv(fd, slots)
    full, rest = divmod(count, _CHUNK)
    for index in range(full):
        _REQUEST.pack_into(buffer, index * step, b"DATA", _CHUNK)
    end = full * step
    if rest:
        _REQUEST.pack_into(buffer, end, b"DATA", rest)
        end += _REQUEST.size + rest
    at_end = count == 0
    if not at_end and stat.S_ISREG(os.fstat(fd).st_mode):
        at_end = os.lseek(fd, 0, os.SEEK_CUR) >= os.fstat(fd).st_size > 0
    if at_end:
        _REQUEST.pack_into(buffer, end, b"DONE", 0)
        end += _REQUEST.size
    return view[:end], at_end


def _names(path: str) -> list[str]:
    try:
        return [".", "..", *sorted(entry.name for entry in Path(path).iterdir())]
    except (OSError, ValueError):
        return []


def _stat_fields(path: str, *, follow: bool) -> tuple[int, ...]:
    """Error, device, inode, mode, links, uid, gid, size and the three times, as the version 2 records order them."""
    try:
        found = Path(path).stat(follow_symlinks=follow)
    except OSError as exc:
        return (exc.errno or errno.EIO, *(0,) * 10)
    except ValueError:
        return (errno.EINVAL, *(0,) * 10)
    return (
        0,
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_size,
        int(found.st_atime),
        int(found.st_mtime),
        int(found.st_ctime),
    )


def _mode_number(text: str) -> int:
    if not text.isdigit():
        _refuse(f"SEND needs 'path,mode', found mode {text!r}")
    return int(text)


def _refuse_flags(flags: int) -> None:
    if flags:
        _refuse(f"no compression was offered, but flags 0x{flags:x} ask for it")


def _refuse(message: str) -> NoReturn:
    raise _ProtocolError(message)


def _reason(exc: OSError | ValueError) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
