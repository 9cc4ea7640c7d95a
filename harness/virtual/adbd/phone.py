"""The daemon's services put together: what a connection may open, and what the supervisor may ask for."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from . import logcat
from .board import Board
from .connection import Connection, Stream
from .faults import FaultList
from .processes import Processes, processes_named, resident_bytes, running_commands
from .shell import Damage, Service, exec_service, hung_service, shell_service
from .sync import NOEXEC, serve_sync

_LOG = logging.getLogger(__name__)
FEATURES = ("shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir", "fixed_push_symlink_timestamp", "sendrecv_v2")
_TICK_S = 1.0
_MODES = ("device", "recovery", "sideload")
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
        self._mode = _MODES[0]
        self._trusting = True
        self._rate: float | None = None
        """Bytes a second of a slow link"""
        self._clock_held = False

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
            if self._clock_held:
                last = now
                continue
            names = self._board.load_processes
            loaded = not names.isdisjoint(running_commands())
            self._board.tick(now - last, loaded=loaded, resident_bytes=resident_bytes(names) if loaded else 0)
            last = now

    def banner(self) -> str:
        properties = self._properties()
        pairs = "".join(f"{key}={properties.get(key, '')};" for key in _BANNER_KEYS)
        return f"{self._mode}::{pairs}features={','.join(FEATURES)}"

    def is_offline(self) -> bool:
        return self._offline_until is not None and asyncio.get_running_loop().time() < self._offline_until

    def is_trusting(self) -> bool:
        return self._trusting

    def pace_s(self, n_bytes: int) -> float:
        return 0.0 if self._rate is None else n_bytes / self._rate

    def open_service(self, name: str) -> Callable[[Stream], Awaitable[None]] | None:
        if name.startswith(("shell:", "shell,")):
            if self._faults.take("hang_shell", name.partition(":")[2]):
                return hung_service()
            return shell_service(name, self._processes, self._damage(name.partition(":")[2]))
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
                self._clear_faults()
            case "freeze":
                self._freeze(request["seconds"])
            case "slow":
                if request["bytes_per_s"] is not None and request["bytes_per_s"] < 1024:
                    raise ValueError("a link of less than 1024 bytes a second never ends a handshake")
                self._rate = request["bytes_per_s"]
            case "garbage":
                noise = random.Random(request["seed"]).randbytes(request["n_bytes"])  # noqa: S311
                for connection in list(self._connections):
                    connection.inject(noise)
            case "trust":
                self._trust(request["trusted"])
            case "mode":
                self._set_mode(request["mode"])
            case "noexec":
                NOEXEC.touch() if request["on"] else NOEXEC.unlink(missing_ok=True)
            case "clock_offset":
                (self._root / "clock_offset").write_text(f"{int(request['seconds'])}\n", encoding="ascii")
            case "press_memory":
                self._board.press_memory(request["n_bytes"])
            case "kill_for_memory":
                self._kill_for_memory(request["name"], kill=request["kill"])
            case "wrap_log":
                (self._root / "log").write_text("", encoding="ascii")
                logcat.append(self._root / "log", "noise\n" * request["lines"], tag="chatty", level="I", pid=1)
            case "hold_clock":
                self._clock_held = request["on"]
            case "advance":
                if not 0 <= request["load"] <= 1 or not 0 < request["seconds"] <= 86400:
                    raise ValueError("seconds must be more than 0 and at most a day, load 0 to 1")
                self._board.advance(request["seconds"], request["load"])
            case "offline":
                self._offline_until = asyncio.get_running_loop().time() + request["seconds"]
                self._cut_cable()
            case "disconnect":
                self._cut_cable()
            case other:
                raise ValueError(f"unknown operation {other!r}")

    def _damage(self, command: str) -> Damage:
        garbage = self._faults.take("garbage_shell", command)
        return Damage(
            no_exit=self._faults.take("no_exit", command) is not None,
            crlf=self._faults.take("crlf", command) is not None,
            garbage=b"\x00\xff\xfe{]\x1b[2J\n" if garbage is not None else b"",
        )

    def _clear_faults(self) -> None:
        self._faults.clear()
        self._offline_until = self._rate = None
        self._clock_held = False
        self._board.press_memory(0)
        NOEXEC.unlink(missing_ok=True)
        (self._root / "clock_offset").unlink(missing_ok=True)
        for connection in list(self._connections):
            connection.thaw()
        if self._mode != _MODES[0]:
            self._set_mode(_MODES[0])
        if not self._trusting:
            self._trust(True)

    def _freeze(self, seconds: float) -> None:
        frozen = list(self._connections)
        for connection in frozen:
            connection.freeze()

        def thaw() -> None:
            for connection in frozen:
                connection.thaw()

        asyncio.get_running_loop().call_later(seconds, thaw)

    def _trust(self, trusted: bool) -> None:
        self._trusting = trusted
        for connection in list(self._connections):
            if trusted:
                connection.trust()
            else:
                connection.abort()

    def _set_mode(self, mode: str) -> None:
        if mode not in _MODES:
            raise ValueError(f"unknown mode {mode!r}; one of {', '.join(_MODES)}")
        self._mode = mode
        self._cut_cable()

    def _kill_for_memory(self, name: str, *, kill: bool) -> None:
        """As Android's lmkd does and says it; without ``kill`` it only says so, as of a process long gone."""
        found = processes_named(name) if kill else [4321]
        for pid in found:
            text = f"Kill '{name}' ({pid}), uid 2000, oom_score_adj 0 to free 4445960kB rss; low watermark"
            logcat.append(self._root / "log", text, tag="lowmemorykiller", level="I", pid=400)
            if kill:
                os.kill(pid, signal.SIGKILL)
        if not found:
            raise ValueError(f"no process {name!r} runs")

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
