"""One file each way over adb's ``sync:`` service, with the phone's own words when it fails.

Request: four letters, length (4 bytes, little endian), path. SEND: DATA chunks of at most 64 KiB, then DONE with a
time; the answer is OKAY, or FAIL with a message. RECV: DATA chunks, then DONE, or FAIL.
"""

from __future__ import annotations

import hashlib
import select
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from harness.device.shell import Patience
from harness.errors import HostError, TransferError

CHUNK: Final = 64 * 1024
PULL_LIMIT: Final = 1 << 30
"""No file of a run is larger; a phone that sends on without end must not fill this host."""
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
) -> tuple[int, str]:
    """Send ``local``; returns bytes sent and their sha256 (what left this host, not what arrived)."""
    sock = connection.conn
    digest = hashlib.sha256()
    total = 0
    target = f"{remote},{stat.S_IFREG | mode}".encode()
    with local.open("rb") as stream:
        try:
            sock.settimeout(patience.remaining())
            sock.sendall(b"SEND" + struct.pack("<I", len(target)) + target)
            while block := stream.read(CHUNK):
                digest.update(block)
                sock.settimeout(patience.remaining())
                sock.sendall(b"DATA" + struct.pack("<I", len(block)) + block)
                patience.alive()
                total += len(block)
                on_bytes(len(block))
                if select.select([sock], [], [], 0)[0]:
                    # Nothing is due before DONE: the daemon has given up.
                    _answer(connection, patience)
                    raise EOFError("the daemon answered before the end of the file")
            sock.sendall(b"DONE" + struct.pack("<I", int(time.time())))
        except (BrokenPipeError, ConnectionResetError):
            # The daemon may have said why before it closed.
            _answer(connection, patience)
            raise
        _answer(connection, patience)
    return total, digest.hexdigest()


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
        connection.conn.settimeout(patience.remaining())
        block = connection.conn.recv(n - len(data))
        if not block:
            raise EOFError("the connection closed in the middle of a file")
        data += block
    return bytes(data)
