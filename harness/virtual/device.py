"""One phone from the supervisor's side: its sandbox, its port, its boots and the line to its daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.errors import HostError, InfraError, UserError

from .adb_server import ask, device_state
from .android_tools import AndroidTools
from .isolation import Isolation, Sandbox, phone_command
from .profile import Profile
from .root import PhoneIdentity, build_root, empty_storage, prepare_boot
from .sandbox import Interpreter

_LOG = logging.getLogger(__name__)
_READY_TIMEOUT_S = 60.0
_ONLINE_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 20.0
_POLL_S = 0.05
_TRACER_END_S = 10.0
_POWER_OFF_S = 0.5
"""How long a rebooting phone is off at least; adb must see it go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What all phones of one supervisor share."""

    sandbox: Sandbox
    interpreter: Interpreter
    tools: AndroidTools
    adb_port: int


class Device:
    def __init__(self, host: Host, profile: Profile, serial: str, folder: Path, storage_bytes: int | None) -> None:
        self.serial = serial
        self.marker = profile.soc.marker
        self.boot_id: str | None = None
        self._host = host
        self._profile = profile
        self._folder = folder
        self._storage_bytes = storage_bytes
        # Bound for the phone's whole life, but never listening: nobody else gets the port while the phone is off.
        self._port_holder = _bound(("127.0.0.1", 0))
        self._address: tuple[str, int] = self._port_holder.getsockname()
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 1
        self._cpus: frozenset[int] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._reboots: set[asyncio.Task[None]] = set()

    @property
    def transport(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def describe(self) -> dict[str, Any]:
        return {
            "marker": self.marker,
            "serial": self.serial,
            "transport": self.transport,
            "boot_id": self.boot_id,
            "state": "on" if self.is_on else "off",
            "storage_bytes": self._storage_bytes,
        }

    async def create(self) -> None:
        """Build the root folder, boot, and come online."""
        identity = PhoneIdentity(
            serial=self.serial,
            network="none" if self._host.sandbox.own_network else "host",
            isolation=self._host.sandbox.isolation.value,
        )
        root = self._folder / "root"
        await asyncio.to_thread(build_root, root, self._profile, identity, self._host.tools, self._host.interpreter)
        async with self._changing:
            await self._boot()

    async def reboot(self) -> None:
        async with self._changing:
            await self._power_off()
            await asyncio.sleep(_POWER_OFF_S)
            await self._boot()

    async def kill(self) -> None:
        """A power cut: the phone stays off until it is rebooted."""
        async with self._changing:
            await self._power_off()

    async def remove(self) -> None:
        """Off for good, port given up, folder deleted."""
        for task in tuple(self._reboots):
            task.cancel()
        async with self._changing:
            await self._power_off()
        self._port_holder.close()
        await asyncio.to_thread(remove_tree, self._folder)

    async def command(self, message: dict[str, Any]) -> None:
        """Have the phone's daemon carry out one operation."""
        if self._writer is None or not self.is_on:
            raise InfraError(
                f"virtual phone {self.serial} is off", found=f"{message['op']!r}", next_step="reboot it first"
            )
        number, self._next_id = self._next_id, self._next_id + 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self._writer.write(json.dumps({**message, "id": number}).encode() + b"\n")
            result = await asyncio.wait_for(answer, _ANSWER_TIMEOUT_S)
        except TimeoutError as exc:
            raise InfraError(f"virtual phone {self.serial} does not answer", found=f"{message['op']!r}") from exc
        finally:
            self._answers.pop(number, None)
        if "error" in result:
            raise UserError(f"virtual phone {self.serial} refused {message['op']!r}", found=result["error"])

    async def _boot(self) -> None:
        root = self._folder / "root"
        self.boot_id = await asyncio.to_thread(prepare_boot, root)
        if self._storage_bytes is not None and self._host.sandbox.isolation is Isolation.PATHS:
            await asyncio.to_thread(empty_storage, root)
        ours, theirs = socket.socketpair()
        listener = _bound(self._address)
        log_path = self._folder / "adbd.log"
        with log_path.open("ab") as log:
            command = phone_command(
                self._host.sandbox,
                self._host.interpreter,
                root,
                storage_bytes=self._storage_bytes,
                listen_fd=listener.fileno(),
                control_fd=theirs.fileno(),
            )
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(), theirs.fileno()),
                )
            finally:
                listener.close()
                theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(reader, ready))
        try:
            await asyncio.wait_for(ready, _READY_TIMEOUT_S)
        except (TimeoutError, EOFError) as exc:
            await self._power_off()
            tail = log_path.read_text(encoding="utf-8", errors="replace").strip()[-600:]
            raise HostError(
                f"virtual phone {self.serial} did not boot",
                found=tail or "no message",
                expected=f"its daemon within {_READY_TIMEOUT_S:.0f} s",
                next_step=f"read {log_path}",
            ) from exc
        self._pin()
        await self._come_online()

    def use_cpus(self, cpus: frozenset[int]) -> None:
        """The CPUs of the host that this phone may use, from now on and after each boot."""
        self._cpus = cpus
        self._pin()

    def _pin(self) -> None:
        if self._process is None or self._cpus is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            sandbox = psutil.Process(self._process.pid)
            for process in (sandbox, *sandbox.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.cpu_affinity(sorted(self._cpus))

    async def _come_online(self) -> None:
        deadline = asyncio.get_running_loop().time() + _ONLINE_TIMEOUT_S
        state = "absent"
        said = ""
        while asyncio.get_running_loop().time() < deadline:
            state = await asyncio.to_thread(device_state, self._host.adb_port, self.transport)
            if state == "device":
                return
            if state == "absent":
                said = await asyncio.to_thread(ask, self._host.adb_port, f"host:connect:{self.transport}")
            await asyncio.sleep(_POLL_S)
        raise HostError(
            f"virtual phone {self.serial} did not come online",
            found=f"state {state!r}; adb said {said!r}",
            expected=f"state 'device' within {_ONLINE_TIMEOUT_S:.0f} s",
            next_step=f"read {self._folder / 'adbd.log'}",
        )

    async def _power_off(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        process, self._process = self._process, None
        if process is not None:
            await end_process(process, self._host.sandbox.isolation)
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _listen(self, reader: asyncio.StreamReader, ready: asyncio.Future[None]) -> None:
        while line := await _line(reader):
            message = json.loads(line)
            if message.get("event") == "ready" and not ready.done():
                ready.set_result(None)
            elif message.get("event") == "reboot":
                task = asyncio.create_task(self._reboot_by_itself())
                self._reboots.add(task)
                task.add_done_callback(self._reboots.discard)
            elif (answer := self._answers.get(message.get("id", 0))) is not None and not answer.done():
                answer.set_result(message)
        if not ready.done():
            ready.set_exception(EOFError())
        else:
            _LOG.warning("phone %s: its daemon ended", self.serial)

    async def _reboot_by_itself(self) -> None:
        _LOG.info("phone %s asked for a reboot", self.serial)
        try:
            await self.reboot()
        except (HostError, InfraError):
            _LOG.exception("phone %s did not come back", self.serial)


async def end_process(process: asyncio.subprocess.Process, isolation: Isolation) -> None:
    """Returns when nothing that it started runs any more. A killed bwrap waits for its namespace; a tracer ends what it
    traces, and waits for that, when it is asked to."""
    if isolation is Isolation.PATHS:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _TRACER_END_S)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


def _bound(address: tuple[str, int]) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address)
    return bound


def remove_tree(folder: Path) -> None:
    """Delete a phone's folder, also where a program on the phone took away its own permissions."""
    if not folder.exists():
        return
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o700)
    shutil.rmtree(folder)
