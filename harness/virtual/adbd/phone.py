"""The daemon's services put together: what a connection may open, and what the supervisor may ask for."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from . import logcat
from .board import Board
from .connection import Connection, Stream
from .faults import FaultList
from .processes import Processes, running_commands
from .shell import Service, exec_service, hung_service, shell_service
from .sync import serve_sync

_LOG = logging.getLogger(__name__)
FEATURES = ("shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir", "fixed_push_symlink_timestamp", "sendrecv_v2")
_TICK_S = 1.0
_BANNER_KEYS = ("ro.product.name", "ro.product.model", "ro.product.device")


class Phone:
    """``root`` is the folder of state files, ``/dev/vdev`` inside the phone."""

    def __init__(self, root: Path, report: Callable[[dict[str, Any]], None]) -> None:
        self._root = root
        self._report = report
        self._board = Board(root)
        self._processes = Processes()
        self._faults = FaultList()
        self._offline_until: float | None = None
        self._connections: set[Connection] = set()

    def new_connection(self) -> Connection:
        return Connection(self, self._connections)

    async def run(self) -> None:
        """Boot, then let time pass until cancelled."""
        loop = asyncio.get_running_loop()
        self._processes.install()
        loop.add_signal_handler(signal.SIGUSR1, self._ask_for_reboot)
        self._board.publish()
        self._finish_boot()
        last = loop.time()
        while True:
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            self._board.tick(now - last, loaded=not self._board.load_processes.isdisjoint(running_commands()))
            last = now

    def banner(self) -> str:
        properties = self._properties()
        pairs = "".join(f"{key}={properties.get(key, '')};" for key in _BANNER_KEYS)
        return f"device::{pairs}features={','.join(FEATURES)}"

    def is_offline(self) -> bool:
        return self._offline_until is not None and asyncio.get_running_loop().time() < self._offline_until

    def open_service(self, name: str) -> Callable[[Stream], Awaitable[None]] | None:
        if name.startswith(("shell:", "shell,")):
            if self._faults.take("hang_shell", name.partition(":")[2]):
                return hung_service()
            return shell_service(name, self._processes)
        if name.startswith("exec:"):
            return exec_service(name, self._processes)
        if name == "sync:":
            return self._sync_service()
        if name == "reboot:":
            return self._reboot
        if name == "root:":
            return _text_service("adbd cannot run as root in production builds\n")
        if name == "unroot:":
            return _text_service("adbd not running as root\n")
        return None

    def handle(self, request: dict[str, Any]) -> None:
        """Carry out one request of the supervisor. Raises ValueError (or KeyError, TypeError) if it is malformed."""
        match request["op"]:
            case "set_temperature":
                self._board.set_temperature(request["zone"], request["celsius"])
            case "set_battery":
                self._board.set_battery(request["percent"], request["charging"])
            case "log":
                logcat.append(self._root / "log", request["text"], tag=request["tag"], level=request["level"], pid=1)
            case "fault":
                self._faults.add(request["fault"])
            case "clear_faults":
                self._faults.clear()
                self._offline_until = None
            case "offline":
                self._offline_until = asyncio.get_running_loop().time() + request["seconds"]
                self._cut_cable()
            case "disconnect":
                self._cut_cable()
            case other:
                raise ValueError(f"unknown operation {other!r}")

    def _cut_cable(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _sync_service(self) -> Service:
        async def serve(stream: Stream) -> None:
            await serve_sync(stream, self._faults, self._cut_cable)

        return serve

    async def _reboot(self, stream: Stream) -> None:
        await stream.finish()
        self._ask_for_reboot()

    def _ask_for_reboot(self) -> None:
        self._report({"event": "reboot"})

    def _properties(self) -> dict[str, str]:
        lines = (self._root / "props").read_text(encoding="utf-8").splitlines()
        return {key: value for key, _, value in (line.partition("=") for line in lines)}

    def _finish_boot(self) -> None:
        logcat.append(
            self._root / "log",
            "virtual phone: boot completed; nothing measured here says anything about a real phone",
            tag="snapgate",
            level="I",
            pid=1,
        )
        properties = self._properties()
        properties["sys.boot_completed"] = properties["dev.bootcomplete"] = "1"
        temporary = self._root / ".props.new"
        temporary.write_text("".join(f"{key}={properties[key]}\n" for key in sorted(properties)), encoding="utf-8")
        temporary.replace(self._root / "props")


def _text_service(text: str) -> Service:
    async def serve(stream: Stream) -> None:
        await stream.write(text.encode())

    return serve
