"""One file each way over adb's ``sync:`` service, with the phone's own words when it fails.

Request: four letters, length (4 bytes, little endian), path. SEND: DATA chunks of at most 64 KiB, then DONE with a
time; the answer is OKAY, or FAIL with a message. RECV: DATA chunks, then DONE, or FAIL.
"""

from __future__ import annotations

import hashlib
import os
import select
import stat
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from harness.device.shell import Patience
from harness.errors import HostError, TransferError

CHUNK: Final = 64 * 1024
PULL_LIMIT: Final = 1 << 30
"""No file of a run is larger; a phone that sends on without end must not fill this host."""
_RECORD: Final = 8 + CHUNK
_RECORDS_A_WRITE: Final = 15
"""Together just under 1 MiB, the most that one frame to the phone carries."""
_MAX_MESSAGE: Final = 64 * 1024


class SyncRefusedError(Exception):
    """The phone's daemon said FAIL; the text is its own."""


def send(
    connection: Any,
    local: Path,
    remote: PurePosixPath,
    *,
    mode: int,
    patience: Patience,
    on_bytes: Callable[[int], None],
    spans: Sequence[tuple[int, int]] | None = None,
) -> int:
    """Send ``local``, or only its ``spans`` (offset, bytes) one after the other; returns the bytes sent.

    Nothing is hashed on the way: what arrived is hashed on the phone. Raises ``HostError`` when the file is shorter
    than it was.
    """
    sock = connection.conn
    total = 0
    target = f"{remote},{stat.S_IFREG | mode}".encode()
    buffer = memoryview(bytearray(_RECORD * _RECORDS_A_WRITE))
    with local.open("rb", buffering=0) as stream:
        if spans is None:
            spans = [(0, os.fstat(stream.fileno()).st_size)]
        try:
            sock.settimeout(patience.remaining())
            sock.sendall(b"SEND" + struct.pack("<I", len(target)) + target)
            for offset, n_bytes in spans:
                end = offset + n_bytes
                while offset < end:
                    n = min(end - offset, CHUNK * _RECORDS_A_WRITE)
                    records = _fill(buffer, stream.fileno(), offset, n)
                    if records is None:
                        raise HostError(f"{local} became shorter while it was sent", next_step="make the file again")
                    _write(connection, records, patience)
                    offset += n
                    total += n
                    on_bytes(n)
            sock.sendall(b"DONE" + struct.pack("<I", int(time.time())))
        except (BrokenPipeError, ConnectionResetError):
            # The daemon may have said why before it closed.
            _answer(connection, patience)
            raise
        _answer(connection, patience)
    return total


def _write(connection: Any, records: memoryview, patience: Patience) -> None:
    """Send all of it, unless the daemon says something: nothing is due before DONE, so it has given up."""
    sock = connection.conn
    while records:
        heard, free, _ = select.select([sock], [sock], [], patience.remaining())
        if heard:
            _answer(connection, patience)
            raise EOFError("the daemon answered before the end of the file")
        if not free or patience.over:
            raise TimeoutError
        sock.settimeout(patience.remaining())
        records = records[sock.send(records) :]
        patience.alive()


def _fill(buffer: memoryview, descriptor: int, offset: int, n_bytes: int) -> memoryview | None:
    """``n_bytes`` of a file as DATA records, read straight into place. None: the file ends before."""
    full, rest = divmod(n_bytes, CHUNK)
    sizes = [CHUNK] * full + ([rest] if rest else [])
    parts = []
    for index, size in enumerate(sizes):
        start = index * _RECORD
        struct.pack_into("<4sI", buffer, start, b"DATA", size)
        parts.append(buffer[start + 8 : start + 8 + size])
    if os.preadv(descriptor, parts, offset) != n_bytes:
        return None
    return buffer[: full * _RECORD + (8 + rest if rest else 0)]


def receive(
    connection: Any, remote: PurePosixPath, target: BinaryIO, *, patience: Patience, max_bytes: int = PULL_LIMIT
) -> tuple[int, str]:
    """Write a file of the phone to ``target``; returns size and sha256 of what was received."""
    sock = connection.conn
    name = str(remote).encode()
    digest = hashlib.sha256()
    total = 0
    sock.settimeout(patience.remaining())
    sock.sendall(b"RECV" + struct.pack("<I", len(name)) + name)
    while True:
        kind, n = struct.unpack("<4sI", _exactly(connection, 8, patience))
        if kind == b"DONE":
            return total, digest.hexdigest()
        if kind == b"FAIL":
            raise SyncRefusedError(_exactly(connection, min(n, _MAX_MESSAGE), patience).decode("utf-8", "replace"))
        if kind != b"DATA" or n > CHUNK:
            raise EOFError(f"not a sync answer: {kind!r}, {n}")
        if total + n > max_bytes:
            raise TransferError(
                f"{remote.name} on the phone is larger than any file of a run",
                found=f"over {max_bytes} bytes",
                expected=f"at most {max_bytes} bytes",
                next_step="look what writes into the run folder on the phone",
            )
        block = _exactly(connection, n, patience)
        patience.alive()
        digest.update(block)
        try:
            target.write(block)
        except OSError as exc:
            raise HostError(
                f"this host cannot store {remote.name}", found=str(exc), next_step="free space in the results folder"
            ) from exc
        total += n


def _answer(connection: Any, patience: Patience) -> None:
    kind, n = struct.unpack("<4sI", _exactly(connection, 8, patience))
    if kind == b"FAIL":
        raise SyncRefusedError(_exactly(connection, min(n, _MAX_MESSAGE), patience).decode("utf-8", "replace"))
    if kind != b"OKAY":
        raise EOFError(f"not a sync answer: {kind!r}")


def _exactly(connection: Any, n: int, patience: Patience) -> bytes:
    data = bytearray()
    while len(data) < n:
        if patience.over:
            raise TimeoutError
        connection.conn.settimeout(patience.remaining())
        block = connection.conn.recv(n - len(data))
        if not block:
            raise EOFError("the connection closed in the middle of a file")
        data += block
    return bytes(data)
