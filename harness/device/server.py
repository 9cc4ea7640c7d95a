"""What an adb server is asked first: a connection that starts no server, and its list of devices."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Final

from adbutils import AdbConnection

from harness.device.text import printable

_STATES: Final = (
    "device|offline|unauthorized|authorizing|connecting|recovery|sideload|bootloader|rescue|host|detached"
    "|no permissions"
)
_DEVICE_LINE: Final = re.compile(rf"(?P<transport>\(no serial number\)|\S+)\s+(?P<state>{_STATES})\b(?P<rest>.*)")
_CONNECT_S: Final = 5.0


class ServerConnection(AdbConnection):  # type: ignore[misc]
    """Connects once. adbutils itself would start a server where nobody answers, and leave a socket open."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        super().__init__(host, port)

    def _safe_connect(self) -> socket.socket:
        connected = socket.create_connection(self._address, timeout=_CONNECT_S)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """One line of ``adb devices -l``. ``transport`` is adb's name for the connection, not an identity."""

    transport: str
    state: str
    detail: str


def parse_devices(text: str) -> tuple[Attached, ...]:
    """The devices of a ``devices-l`` answer. Daemon and version noise is passed over."""
    found = []
    for line in text.splitlines():
        match = _DEVICE_LINE.fullmatch(line.strip())
        if match is not None:
            found.append(
                Attached(
                    transport=printable(match["transport"]),
                    state=match["state"],
                    detail=printable(match["rest"]),
                )
            )
    return tuple(found)
