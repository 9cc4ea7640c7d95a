"""Whatever arrives at the phone's port, the phone stays up and serves the next client."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from typing import Any

import pytest

from harness.virtual import VirtualPhone

pytestmark = pytest.mark.lane("virtual")

CNXN, OPEN, OKAY, CLSE, WRTE = 0x4E584E43, 0x4E45504F, 0x59414B4F, 0x45534C43, 0x45545257
VERSION = 0x01000001


def frame(command: int, arg0: int, arg1: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack("<6I", command, arg0, arg1, size, 0, command ^ 0xFFFFFFFF) + payload


HELLO = frame(CNXN, VERSION, 1 << 20, b"host::features=shell_v2\0")


def talk(phone: VirtualPhone, data: bytes) -> bytes:
    """Send, then read until the phone closes or has nothing more to say for half a second."""
    host, port = phone.transport.split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.settimeout(0.5)
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                received += part
        except (TimeoutError, ConnectionError):
            pass
    return received


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(struct.pack("<6I", CNXN, VERSION, 1 << 20, 0, 0, 1), id="bad magic"),
        pytest.param(frame(CNXN, VERSION, 1 << 20, length=0xFFFFFFFF), id="4 GiB announced"),
        pytest.param(frame(CNXN, VERSION, 1 << 20, length=(1 << 20) + 1), id="one byte too many announced"),
        pytest.param(frame(CNXN, VERSION, 0), id="no payload allowed"),
        pytest.param(frame(OPEN, 1, 0, b"shell:echo hi\0"), id="open before connect"),
        pytest.param(HELLO[:10], id="half a header"),
        pytest.param(HELLO[:40], id="half a payload"),
    ],
)
def test_a_bad_opening_gets_no_answer_and_does_no_harm(phone: VirtualPhone, adb: Any, data: bytes) -> None:
    assert talk(phone, data) == b""
    assert adb.shell("echo alive") == "alive\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(OPEN, 0, 0, b"shell:echo hi\0"), id="stream number 0"),
        pytest.param(frame(OPEN, 1, 0, b"nonsense:\0"), id="unknown service"),
        pytest.param(frame(OPEN, 1, 0, b"\xff\xfe\x00\x01"), id="service of no text"),
        pytest.param(frame(OPEN, 1, 0, b""), id="service of no name"),
        pytest.param(frame(WRTE, 7, 7, b"x"), id="write to no stream"),
    ],
)
def test_a_bad_request_is_refused_with_close(phone: VirtualPhone, adb: Any, data: bytes) -> None:
    answer = talk(phone, HELLO + data)
    assert answer[:4] == b"CNXN"
    assert b"CLSE" in answer
    assert adb.shell("echo alive") == "alive\n"


@pytest.mark.parametrize(
    "sync",
    [
        pytest.param(b"STAT" + struct.pack("<I", 0xFFFFFFFF), id="path of 4 GiB"),
        pytest.param(b"NOPE" + struct.pack("<I", 1) + b"x", id="unknown command"),
        pytest.param(b"SEND" + struct.pack("<I", 5) + b"a,b,c", id="mode of no number"),
        pytest.param(b"SEND" + struct.pack("<I", 8) + b"/sdcard,", id="no mode"),
        pytest.param(
            b"SEND" + struct.pack("<I", 15) + b"/sdcard/f,33188" + b"DATA" + struct.pack("<I", 65537),
            id="DATA too large",
        ),
        pytest.param(
            b"SEND" + struct.pack("<I", 15) + b"/sdcard/f,33188" + b"WHAT" + struct.pack("<I", 0), id="no DATA"
        ),
        pytest.param(b"RECV" + struct.pack("<I", 4) + b"\0\0\0\0", id="path of zero bytes"),
        pytest.param(b"RECV" + struct.pack("<I", 7) + b"/sdcard", id="a folder to receive"),
    ],
)
def test_a_bad_file_request_gets_fail(phone: VirtualPhone, adb: Any, sync: bytes) -> None:
    opened = HELLO + frame(OPEN, 1, 0, b"sync:\0")
    host, port = phone.transport.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(opened)
        received = b""
        while b"OKAY" not in received:
            received += connection.recv(65536)
        local_id = struct.unpack_from("<I", received, received.index(b"OKAY") + 4)[0]
        connection.sendall(frame(WRTE, 1, local_id, sync))
        while b"FAIL" not in received:
            part = connection.recv(65536)
            assert part, received
            received += part
    assert adb.shell("echo alive") == "alive\n"


def test_random_bytes_and_random_frames_never_bring_the_phone_down(phone: VirtualPhone, adb: Any) -> None:
    chance = random.Random(20240501)
    host, port = phone.transport.split(":")
    services = [b"shell,v2:cat\0", b"sync:\0", b"exec:cat\0", b"shell,v2,pty:cat\0", b"shell:\0"]
    for _ in range(60):
        data = bytearray(HELLO)
        for number in range(1, 6):
            data += frame(OPEN, number, 0, chance.choice(services))
        for _ in range(chance.randrange(40)):
            payload = chance.randbytes(chance.choice([0, 1, 8, 300, 5000]))
            data += frame(
                chance.choice([OPEN, OKAY, CLSE, WRTE, CNXN]), chance.randrange(8), chance.randrange(8), payload
            )
        data += chance.randbytes(chance.randrange(64))
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(data)
            # The phone may have dropped the connection already.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
    assert adb.shell("echo alive") == "alive\n"
    assert len(adb.shell("ls /proc/1/fd").split()) < 40


def test_a_peer_of_the_older_protocol_gets_checksums(phone: VirtualPhone) -> None:
    answer = talk(phone, frame(CNXN, 0x01000000, 4096, b"host::\0"))
    command, version, limit, length, checksum, _ = struct.unpack_from("<6I", answer)
    assert (command, version, limit) == (CNXN, VERSION, 1 << 20)
    assert checksum == sum(answer[24 : 24 + length])
