"""adb's server protocol, as little of it as the supervisor needs, and where the adb program is."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path

from harness.errors import HostError, InfraError

_LENGTH_DIGITS = 4


def find_adb() -> Path:
    """``SNAPGATE_ADB``, else the program inside the adbutils wheel, else PATH's.

    The wheel's comes first because its version is pinned: a client of another version would try to kill the server.
    """
    named = os.environ.get("SNAPGATE_ADB")
    if named:
        if not os.access(named, os.X_OK):
            raise HostError(
                "the adb program of SNAPGATE_ADB cannot be run",
                found=named,
                expected="an executable file",
                next_step="correct SNAPGATE_ADB or unset it",
            )
        return Path(named).resolve()
    spec = importlib.util.find_spec("adbutils")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, "binaries", "adb")
        if os.access(path, os.X_OK):
            return path.resolve()
    found = shutil.which("adb")
    if found is None:
        raise HostError(
            "virtual phones need adb",
            found="no adb in the adbutils package and none in PATH",
            expected="adb 1.0.41",
            next_step="pip install adbutils, or name the program in SNAPGATE_ADB",
        )
    return Path(found).resolve()


def ask(port: int, service: str, *, timeout_s: float = 10.0) -> str:
    """One ``host:`` service's answer. Raises InfraError if the server is not there or refuses."""
    request = service.encode()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(b"%04x%b" % (len(request), request))
            status = _receive(connection, 4)
            length = int(_receive(connection, _LENGTH_DIGITS), 16)
            body = _receive(connection, length).decode(errors="replace")
    except (OSError, ValueError) as exc:
        raise InfraError(
            f"the private adb server did not answer {service!r}",
            found=f"{exc}",
            expected=f"an adb server on 127.0.0.1:{port}",
            next_step="read adb-server.log in the state folder",
        ) from exc
    if status != b"OKAY":
        raise InfraError(f"adb refused {service!r}", found=body, expected="OKAY")
    return body


def _receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ValueError(f"the connection ended after {len(parts)} of {count} bytes")
        parts += part
    return bytes(parts)


def device_state(port: int, transport: str) -> str:
    """``device``, ``offline``, ...; ``absent`` if the server does not know it."""
    for line in ask(port, "host:devices").splitlines():
        name, _, state = line.partition("\t")
        if name == transport:
            return state
    return "absent"
