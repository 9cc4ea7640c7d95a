"""The sync protocol, spoken by the test on the far end of a real socket."""

from __future__ import annotations

import hashlib
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from harness.device import sync
from harness.device.shell import Patience
from harness.device.sync import SyncRefusedError
from harness.errors import HostError, TransferError

TARGET = PurePosixPath("/data/x")


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def exactly(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        data += sock.recv(n - len(data))
    return data


def with_far_end(far: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=far)
    thread.start()
    return thread


def test_a_file_is_sent_in_chunks_of_64_kib(wire: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    body = bytes(range(256)) * 400
    local = tmp_path / "f"
    local.write_bytes(body)
    chunks: list[bytes] = []

    def daemon() -> None:
        kind, n = struct.unpack("<4sI", exactly(wire[1], 8))
        assert (kind, exactly(wire[1], n)) == (b"SEND", b"/data/x,33188")
        while True:
            kind, n = struct.unpack("<4sI", exactly(wire[1], 8))
            if kind == b"DONE":
                break
            chunks.append(exactly(wire[1], n))
        wire[1].sendall(b"OKAY" + bytes(4))

    thread = with_far_end(daemon)
    counted: list[int] = []
    size = sync.send(
        SimpleNamespace(conn=wire[0]), local, TARGET, mode=0o644, patience=Patience.of(20), on_bytes=counted.append
    )
    thread.join()
    assert size == sum(counted) == 102_400
    assert b"".join(chunks) == body
    assert [len(chunk) for chunk in chunks] == [65_536, 36_864]


def test_only_the_spans_asked_for_are_sent_one_after_the_other(
    wire: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    body = bytes(i % 251 for i in range(200_000))
    local = tmp_path / "f"
    local.write_bytes(body)
    arrived = b""

    def daemon() -> None:
        nonlocal arrived
        _, n = struct.unpack("<4sI", exactly(wire[1], 8))
        exactly(wire[1], n)
        while (record := struct.unpack("<4sI", exactly(wire[1], 8)))[0] != b"DONE":
            arrived += exactly(wire[1], record[1])
        wire[1].sendall(b"OKAY" + bytes(4))

    thread = with_far_end(daemon)
    sent = sync.send(
        SimpleNamespace(conn=wire[0]),
        local,
        TARGET,
        mode=0o644,
        patience=Patience.of(20),
        on_bytes=lambda _: None,
        spans=[(100_000, 70_000), (3, 2)],
    )
    thread.join()
    assert sent == 70_002
    assert arrived == body[100_000:170_000] + body[3:5]


def test_a_file_that_became_shorter_is_the_hosts_fault(
    wire: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    local = tmp_path / "f"
    local.write_bytes(b"short")
    with pytest.raises(HostError, match="became shorter"):
        sync.send(
            SimpleNamespace(conn=wire[0]),
            local,
            TARGET,
            mode=0o644,
            patience=Patience.of(20),
            on_bytes=lambda _: None,
            spans=[(0, 6)],
        )


def test_the_daemons_own_words_are_kept_when_it_refuses(
    wire: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    local = tmp_path / "f"
    local.write_bytes(b"x")
    message = b"No space left on device"
    wire[1].sendall(b"FAIL" + struct.pack("<I", len(message)) + message)
    with pytest.raises(SyncRefusedError, match="No space left on device"):
        sync.send(
            SimpleNamespace(conn=wire[0]), local, TARGET, mode=0o644, patience=Patience.of(20), on_bytes=lambda _: None
        )


def test_a_refusal_ends_a_large_push_at_once(wire: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    local = tmp_path / "f"
    local.write_bytes(bytes(8 << 20))
    sent: list[int] = []
    wire[1].sendall(b"FAIL" + struct.pack("<I", 4) + b"full")
    with pytest.raises(SyncRefusedError, match="full"):
        sync.send(
            SimpleNamespace(conn=wire[0]), local, TARGET, mode=0o644, patience=Patience.of(20), on_bytes=sent.append
        )
    assert sent == []


def test_a_file_is_received_and_hashed(wire: tuple[socket.socket, socket.socket]) -> None:
    wire[1].sendall(
        b"DATA" + struct.pack("<I", 3) + b"abc" + b"DATA" + struct.pack("<I", 1) + b"d" + b"DONE" + bytes(4)
    )
    into = io.BytesIO()
    size, digest = sync.receive(SimpleNamespace(conn=wire[0]), TARGET, into, patience=Patience.of(20))
    assert (size, into.getvalue()) == (4, b"abcd")
    assert digest == hashlib.sha256(b"abcd").hexdigest()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"DATA" + struct.pack("<I", 65_537), "not a sync answer"),
        (b"WHAT" + bytes(4), "not a sync answer"),
        (b"DATA" + struct.pack("<I", 10) + b"cut", "in the middle of a file"),
    ],
)
def test_a_broken_answer_is_an_end_of_file(
    wire: tuple[socket.socket, socket.socket], answer: bytes, error: str
) -> None:
    wire[1].sendall(answer)
    wire[1].shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError, match=error):
        sync.receive(SimpleNamespace(conn=wire[0]), TARGET, io.BytesIO(), patience=Patience.of(20))


def test_a_file_without_end_is_cut_off(wire: tuple[socket.socket, socket.socket]) -> None:
    wire[1].sendall((b"DATA" + struct.pack("<I", 3) + b"abc") * 2)
    into = io.BytesIO()
    with pytest.raises(TransferError, match="larger than any file of a run"):
        sync.receive(SimpleNamespace(conn=wire[0]), TARGET, into, patience=Patience.of(20), max_bytes=5)
    assert into.getvalue() == b"abc"
