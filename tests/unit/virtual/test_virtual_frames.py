from __future__ import annotations

import struct

import pytest

from harness.virtual.adbd import wire


class Collector(wire.FrameProtocol):
    def __init__(self) -> None:
        super().__init__()
        self.frames: list[tuple[int, int, int, bytes]] = []
        self.complaints: list[str] = []

    def on_frame(self, command: int, arg0: int, arg1: int, payload: bytearray) -> None:
        self.frames.append((command, arg0, arg1, bytes(payload)))

    def on_garbage(self, reason: str) -> None:
        self.complaints.append(reason)

    def feed(self, data: bytes, step: int) -> None:
        """As a socket would: never more than the buffer asked for, here at most ``step`` bytes at a time."""
        rest = memoryview(data)
        while rest and not self.complaints:
            buffer = self.get_buffer(-1)
            count = min(len(buffer), len(rest), step)
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self.buffer_updated(count)


def _frame(command: int, arg0: int, arg1: int, payload: bytes) -> bytes:
    return wire.frame_header(command, arg0, arg1, payload, checksum=False) + payload


@pytest.mark.parametrize("step", [1, 7, 24, 1000])
def test_frames_are_the_same_however_the_bytes_arrive(step: int) -> None:
    collector = Collector()
    collector.feed(
        _frame(wire.WRTE, 1, 2, b"x" * 100) + _frame(wire.OKAY, 3, 4, b"") + _frame(wire.WRTE, 5, 6, b"y"), step
    )
    assert collector.frames == [
        (wire.WRTE, 1, 2, b"x" * 100),
        (wire.OKAY, 3, 4, b""),
        (wire.WRTE, 5, 6, b"y"),
    ]
    assert collector.complaints == []


def test_a_header_is_laid_out_as_the_protocol_says() -> None:
    header = wire.frame_header(wire.OPEN, 1, 2, b"ab", checksum=True)
    assert header == b"OPEN" + struct.pack("<5I", 1, 2, 2, 97 + 98, 0xB1BAAFB0)


def test_no_checksum_is_sent_to_a_current_peer() -> None:
    assert struct.unpack("<6I", wire.frame_header(wire.WRTE, 1, 2, b"ab", checksum=False))[4] == 0


def test_a_wrong_magic_is_garbage() -> None:
    collector = Collector()
    collector.feed(struct.pack("<6I", wire.WRTE, 1, 2, 0, 0, 0), 24)
    assert collector.frames == []
    assert "magic 0x00000000 does not belong to command 0x45545257" in collector.complaints[0]


@pytest.mark.parametrize(("length", "accepted"), [(1 << 20, True), ((1 << 20) + 1, False), (0xFFFFFFFF, False)])
def test_a_payload_may_have_one_mebibyte_and_no_more(length: int, accepted: bool) -> None:
    collector = Collector()
    collector.feed(struct.pack("<6I", wire.WRTE, 1, 2, length, 0, wire.WRTE ^ 0xFFFFFFFF), 24)
    assert (collector.complaints == []) is accepted
