"""``python -m harness.virtual.supervisor``: owns the private adb server and the phones, and ends them all.

It runs until told to stop, until SIGTERM, or until the process given as ``--owner`` is gone. Should it be killed
itself, the kernel kills the phones and the adb server with it (their parent-death signal; all that a phone runs ends
with its pid namespace or its tracer).

State folder: ``supervisor.lock`` (held while it lives), ``control.sock``, ``lab.json``, ``supervisor.log``,
``adb-server.log``, ``adb-home/`` (the private key), ``phones/<serial>/``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HostError, InfraError, SnapGateError, UserError

from .adb_server import ask, find_adb
from .android_tools import find_android_tools
from .control import LOCK_NAME, SOCKET_NAME, encode_error
from .device import Device, Host, end_process, remove_tree
from .isolation import Isolation, adb_server_command, probe_sandbox
from .profile import load_profile
from .sandbox import check_place, find_interpreter

_LOG = logging.getLogger(__name__)
_ADB_START_TIMEOUT_S = 60.0
_POLL_S = 0.05
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_LINE_LIMIT = 1024 * 1024


class Supervisor:
    """Lives in the state folder, which must be the current directory (a socket's path has to be short)."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._devices: dict[str, Device] = {}
        self._adb: asyncio.subprocess.Process | None = None
        self._adb_isolation = Isolation.NAMESPACES
        self._host: Host | None = None
        self._server: asyncio.Server | None = None
        self._adding = asyncio.Lock()
        self.stopping = asyncio.Event()

    async def start(self) -> None:
        check_place(self._state_dir)
        await asyncio.to_thread(remove_tree, self._state_dir / "phones")
        (self._state_dir / "phones").mkdir()
        sandbox = await asyncio.to_thread(probe_sandbox)
        if sandbox.reduction is not None:
            _LOG.warning("%s", sandbox.reduction)
        self._adb_isolation = sandbox.isolation
        interpreter = find_interpreter()
        tools = find_android_tools()
        home = self._state_dir / "adb-home"
        home.mkdir(mode=0o700, exist_ok=True)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            port: int = listener.getsockname()[1]
            arguments = ["-L", f"acceptfd:{listener.fileno()}", "nodaemon", "server"]
            with (self._state_dir / "adb-server.log").open("ab") as log:
                self._adb = await asyncio.create_subprocess_exec(
                    *adb_server_command(sandbox, find_adb(), home, arguments),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(),),
                )
        await self._wait_for_adb(port)
        self._host = Host(sandbox=sandbox, interpreter=interpreter, tools=tools, adb_port=port)
        (self._state_dir / "lab.json").write_text(json.dumps({"pid": os.getpid(), "adb_port": port}), encoding="utf-8")
        Path(SOCKET_NAME).unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, SOCKET_NAME, limit=_LINE_LIMIT)

    async def _wait_for_adb(self, port: int) -> None:
        deadline = asyncio.get_running_loop().time() + _ADB_START_TIMEOUT_S
        while self._adb is not None and self._adb.returncode is None:
            try:
                await asyncio.to_thread(ask, port, "host:version", timeout_s=_ADB_START_TIMEOUT_S)
            except InfraError:
                if asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(_POLL_S)
            else:
                return
        log = self._state_dir / "adb-server.log"
        raise HostError(
            "the private adb server did not start",
            found=log.read_text(encoding="utf-8", errors="replace").strip()[-600:] or "no message",
            expected=f"an answer on 127.0.0.1:{port} within {_ADB_START_TIMEOUT_S:.0f} s",
            next_step=f"read {log}",
        )

    async def stop(self) -> None:
        """End everything and leave only logs and the adb key behind."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(device.remove() for device in self._devices.values()), return_exceptions=True)
        self._devices.clear()
        if self._adb is not None and self._adb.returncode is None:
            await end_process(self._adb, self._adb_isolation)
        for name in (SOCKET_NAME, "lab.json"):
            (self._state_dir / name).unlink(missing_ok=True)
        await asyncio.to_thread(remove_tree, self._state_dir / "phones")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(answer: dict[str, Any]) -> None:
            writer.write(json.dumps(answer).encode() + b"\n")

        try:
            message = json.loads(await reader.readline() or b"{}")
            try:
                say({"result": await self._carry_out(message, lambda text: say({"progress": text}))})
            except SnapGateError as exc:
                say({"error": encode_error(exc)})
            except (KeyError, TypeError, ValueError) as exc:
                say({"error": encode_error(UserError("a malformed request to the supervisor", found=repr(exc)))})
            await writer.drain()
        except ConnectionError:
            _LOG.info("a client went away before its answer")
        finally:
            writer.close()

    async def _carry_out(self, message: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
        match message["op"]:
            case "add":
                return {"phones": await self._add(message["phones"], progress)}
            case "list":
                return self._describe()
            case "stop":
                self.stopping.set()
                return {}
            case "reboot":
                await self._device(message).reboot()
            case "kill":
                await self._device(message).kill()
            case "phone":
                await self._device(message).command(message["request"])
            case other:
                raise ValueError(f"unknown operation {other!r}")
        return self._device(message).describe()

    def _describe(self) -> dict[str, Any]:
        if self._host is None:
            raise HostError("the supervisor is not ready")
        return {
            "pid": os.getpid(),
            "adb_port": self._host.adb_port,
            "isolation": self._host.sandbox.isolation.value,
            "reduction": self._host.sandbox.reduction,
            "adb_alive": self._adb is not None and self._adb.returncode is None,
            "phones": [device.describe() for device in self._devices.values()],
        }

    def _device(self, message: dict[str, Any]) -> Device:
        device = self._devices.get(message["serial"])
        if device is None:
            raise UserError(
                "no such virtual phone",
                found=f"{message['serial']!r}",
                expected=f"one of {', '.join(self._devices) or 'none'}",
            )
        return device

    async def _add(self, wanted: list[dict[str, Any]], progress: Callable[[str], None]) -> list[dict[str, Any]]:
        if self._host is None:
            raise HostError("the supervisor is not ready")
        if self._host.sandbox.reduction is not None and not self._devices:
            progress(self._host.sandbox.reduction)
        async with self._adding:
            new: list[Device] = []
            for entry in wanted:
                profile = load_profile(entry["marker"])
                serial = entry["serial"] or self._free_serial(profile.soc.marker)
                if not _SERIAL.fullmatch(serial) or serial in self._devices:
                    await self._forget(new)
                    raise UserError(
                        "this serial cannot be given to a virtual phone",
                        found=repr(serial),
                        expected="up to 32 letters, digits, '.', '_' or '-', not in use yet",
                        next_step="leave the serial out to have one chosen",
                    )
                progress(f"starting a virtual {profile.soc.marketing_name} ({profile.soc.part}), serial {serial}")
                folder = self._state_dir / "phones" / serial
                device = Device(self._host, profile, serial, folder, entry["storage_bytes"])
                self._devices[serial] = device
                new.append(device)
            results = await asyncio.gather(*(device.create() for device in new), return_exceptions=True)
            failed = next((result for result in results if isinstance(result, BaseException)), None)
            if failed is not None:
                await self._forget(new)
                raise failed
            self._share_cpus()
            for device in new:
                progress(f"{device.serial} is online as {device.transport}")
            return [device.describe() for device in new]

    def _share_cpus(self) -> None:
        """Each phone gets CPUs of its own: the threads of QNN's emulator spin, and two emulators on the same CPUs slow
        each other down several times over."""
        shares = share_cpus(sorted(os.sched_getaffinity(0)), len(self._devices))
        for device, cpus in zip(self._devices.values(), shares, strict=True):
            device.use_cpus(cpus)

    async def _forget(self, devices: list[Device]) -> None:
        for device in devices:
            del self._devices[device.serial]
            await device.remove()

    def _free_serial(self, marker: str) -> str:
        number = 1
        while (serial := f"VDEV{marker.upper()}{number:03d}") in self._devices:
            number += 1
        return serial


def share_cpus(cpus: Sequence[int], n_phones: int) -> list[frozenset[int]]:
    """CPUs for each of ``n_phones``: equal shares, or with more phones than CPUs one each, in turn."""
    if n_phones >= len(cpus):
        return [frozenset({cpus[k % len(cpus)]}) for k in range(n_phones)]
    return [frozenset(cpus[k::n_phones]) for k in range(n_phones)]


async def _run(state_dir: Path, ready_fd: int, owner: int | None) -> None:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(state_dir)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stopping.set)
    if owner is not None:
        try:
            watched = os.pidfd_open(owner)
        except ProcessLookupError:
            return
        loop.add_reader(watched, supervisor.stopping.set)
    starting = loop.create_task(supervisor.start())
    stopping = loop.create_task(supervisor.stopping.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            try:
                starting.result()
            except SnapGateError as exc:
                _report(ready_fd, {"error": encode_error(exc)})
                return
            _report(ready_fd, {"ready": True})
            await stopping
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        if owner is not None:
            loop.remove_reader(watched)
        await supervisor.stop()


def _report(fd: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, json.dumps(message).encode() + b"\n")
    os.close(fd)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--owner", type=int)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s supervisor %(levelname)s %(message)s")
    state_dir: Path = options.state_dir.resolve()
    os.chdir(state_dir)
    lock = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        in_use = HostError(
            "these virtual phones' state folder is in use",
            found=f"a running supervisor in {state_dir}",
            expected="a folder of its own",
            next_step="stop it with 'snapgate virtual stop', or choose another state folder",
        )
        _report(options.ready_fd, {"error": encode_error(in_use)})
        return
    asyncio.run(_run(state_dir, options.ready_fd, options.owner))


if __name__ == "__main__":
    main()
