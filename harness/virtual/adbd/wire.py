"""Frames of the adb transport: a header of six little-endian 32-bit words, then the payload.

The words are command, arg0, arg1, payload length, payload checksum and magic (the command's complement). From protocol
version 0x01000001 on the checksum is neither computed nor looked at.
"""

from __future__ import annotations

import asyncio
import struct

CNXN = 0x4E584E43
OPEN = 0x4E45504F
OKAY = 0x59414B4F
CLSE = 0x45534C43
WRTE = 0x45545257
AUTH = 0x48545541

VERSION_WITH_CHECKSUM = 0x01000000
VERSION = 0x01000001
MAX_PAYLOAD = 1024 * 1024
"""Bytes. What adb itself announces; nothing larger is ever sent or accepted."""

_HEADER = struct.Struct("<6I")
HEADER_SIZE = _HEADER.size


def frame_header(
    command: int, arg0: int, arg1: int, payload: bytes | bytearray | memoryview, *, checksum: bool
) -> bytes:
    summed = sum(payload) & 0xFFFFFFFF if checksum else 0
    return _HEADER.pack(command, arg0, arg1, len(payload), summed, command ^ 0xFFFFFFFF)


class FrameProtocol(asyncio.BufferedProtocol):
    """Cuts the byte stream into frames without copying payloads.

    A subclass gets whole frames in ``on_frame`` and loses the connection on anything that is not a frame: after a bad
    header there is no way to find the next one.
    """

    def __init__(self) -> None:
        self._header = bytearray(HEADER_SIZE)
        self._payload: bytearray | None = None
        self._filled = 0
        self._words = (0, 0, 0)

    def on_frame(self, command: int, arg0: int, arg1: int, payload: bytearray) -> None:
        raise NotImplementedError

    def on_garbage(self, reason: str) -> None:
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        target = self._header if self._payload is None else self._payload
        return memoryview(target)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._payload is None:
            if self._filled < HEADER_SIZE:
                return
            command, arg0, arg1, length, _, magic = _HEADER.unpack(self._header)
            self._filled = 0
            if magic != command ^ 0xFFFFFFFF:
                self.on_garbage(f"magic 0x{magic:08x} does not belong to command 0x{command:08x}")
                return
            if length > MAX_PAYLOAD:
                self.on_garbage(f"payload of {length} bytes, at most {MAX_PAYLOAD} are allowed")
                return
            self._words = (command, arg0, arg1)
            if length:
                self._payload = bytearray(length)
                return
            self.on_frame(command, arg0, arg1, bytearray())
            return
        if self._filled < len(self._payload):
            return
        payload, self._payload, self._filled = self._payload, None, 0
        self.on_frame(*self._words, payload)
