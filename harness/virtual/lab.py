"""Virtual phones for as long as a ``with`` block, and the handle to each of them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import harness
from harness.errors import HostError

from . import control

ADB_HOST = "127.0.0.1"
_STOP_TIMEOUT_S = 30.0


def _quiet(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSpec:
    """A phone to start: which SoC, and how large its ``/data/local/tmp`` is.

    ``serial`` None: ``VDEV`` + marker + number. ``storage_bytes`` None: as large as the host's disk, kept over a
    reboot; a number: a memory file system of that size, emptied by a reboot.
    """

    marker: str = "gen3"
    serial: str | None = None
    storage_bytes: int | None = None


class VirtualPhone:
    """A running phone. ``transport`` is the serial that adb knows it by, ``serial`` its own (``ro.serialno``)."""

    def __init__(self, state_dir: Path, described: dict[str, Any]) -> None:
        self._state_dir = state_dir
        self.marker: str = described["marker"]
        self.serial: str = described["serial"]
        self.transport: str = described["transport"]

    def __repr__(self) -> str:
        return f"VirtualPhone({self.marker}, {self.serial}, {self.transport})"

    def reboot(self) -> None:
        """Power off and on again; returns when adb lists it as ``device``, with a new boot id."""
        control.request(self._state_dir, {"op": "reboot", "serial": self.serial})

    def kill(self) -> None:
        """A power cut. adb shows it as ``offline`` and forgets it after about a minute; ``reboot`` brings it back."""
        control.request(self._state_dir, {"op": "kill", "serial": self.serial})

    def set_temperature(self, zone: str, celsius: float | None) -> None:
        """Hold the thermal zone of that type at a temperature; None gives it back to the heat model."""
        self._ask({"op": "set_temperature", "zone": zone, "celsius": celsius})

    def set_battery(self, *, percent: float | None = None, charging: bool | None = None) -> None:
        self._ask({"op": "set_battery", "percent": percent, "charging": charging})

    def log(self, text: str, *, tag: str = "snapgate", level: str = "I") -> None:
        """Append to the phone's log, one entry for each line."""
        self._ask({"op": "log", "text": text, "tag": tag, "level": level})

    def disconnect(self) -> None:
        """Pull the cable and put it back at once: every adb connection is reset."""
        self._ask({"op": "disconnect"})

    def go_offline(self, seconds: float) -> None:
        """Drop the connections and leave adb's handshakes unanswered for so long."""
        self._ask({"op": "offline", "seconds": seconds})

    def fail_push_by_disconnect(self, after_bytes: int, *, pattern: str = "*", times: int = 1) -> None:
        """Reset the connection once a push to a matching path has written that many bytes."""
        self._fault("disconnect_push", pattern, times, after_bytes=after_bytes)

    def corrupt_push(self, *, pattern: str = "*", offset: int = 0, times: int = 1) -> None:
        """Flip one bit of the byte at ``offset`` of the next file pushed to a matching path; adb reports success."""
        self._fault("corrupt_push", pattern, times, after_bytes=offset)

    def fail_push_by_full_storage(self, after_bytes: int = 0, *, pattern: str = "*", times: int = 1) -> None:
        """Answer "no space left" once a push to a matching path has sent that many bytes."""
        self._fault("no_space", pattern, times, after_bytes=after_bytes)

    def hang_shell(self, *, pattern: str = "*", times: int = 1) -> None:
        """Accept the next shell whose command matches, never start it and never answer."""
        self._fault("hang_shell", pattern, times)

    def fail_pull(self, how: str, after_bytes: int = 0, *, pattern: str = "*", times: int = 1) -> None:
        """``how``: ``disconnect``, ``truncate`` (and report success) or ``corrupt``, at that byte of a pulled file."""
        self._fault(f"{how}_pull", pattern, times, after_bytes=after_bytes)

    def truncate_push(self, after_bytes: int = 0, *, pattern: str = "*", times: int = 1) -> None:
        """Keep only so many bytes of the next pushed file, and at least one too few; adb reports success."""
        self._fault("truncate_push", pattern, times, after_bytes=after_bytes)

    def spoil_shell(self, how: str, *, pattern: str = "*", times: int = 1) -> None:
        """``no_exit``: its exit code never comes; ``crlf``: its line ends are translated; ``garbage_shell``: bytes of
        nobody come before its output."""
        self._fault(how, pattern, times)

    def freeze(self, seconds: float) -> None:
        """Nothing passes the link for so long, in either direction; the connection stays."""
        self._ask({"op": "freeze", "seconds": seconds})

    def slow_down(self, bytes_per_s: float | None) -> None:
        """Hold the link to a rate, each way; None: as fast as it is."""
        self._ask({"op": "slow", "bytes_per_s": bytes_per_s})

    def send_garbage(self, n_bytes: int = 64, *, seed: int = 0) -> None:
        """Bytes between the frames of every connection: adb drops it and connects anew."""
        self._ask({"op": "garbage", "n_bytes": n_bytes, "seed": seed})

    def set_trust(self, trusted: bool) -> None:
        """False: adb shows ``unauthorized`` until it is True again: somebody accepted the host's key."""
        self._ask({"op": "trust", "trusted": trusted})

    def set_mode(self, mode: str) -> None:
        """``device``, ``recovery`` or ``sideload``, as adb lists it."""
        self._ask({"op": "mode", "mode": mode})

    def set_noexec(self, on: bool) -> None:
        """Nothing becomes executable any more, as on a storage mounted noexec."""
        self._ask({"op": "noexec", "on": on})

    def jump_clock(self, seconds: float) -> None:
        """Put the wall clock of ``date`` and of the log so far ahead of the host's, or behind it."""
        self._ask({"op": "clock_offset", "seconds": seconds})

    def press_memory(self, n_bytes: int) -> None:
        """Other apps hold so much more of the phone's memory; 0 ends it."""
        self._ask({"op": "press_memory", "n_bytes": n_bytes})

    def kill_for_memory(self, name: str, *, kill: bool = True) -> None:
        """lmkd kills every process of that name and logs it; ``kill=False``: it logs the end of another app."""
        self._ask({"op": "kill_for_memory", "name": name, "kill": kill})

    def wrap_log(self, lines: int = 2000) -> None:
        """Others wrote so much that the log holds nothing older."""
        self._ask({"op": "wrap_log", "lines": lines})

    def hold_clock(self, on: bool) -> None:
        """Heat and charge move by ``advance`` only: the same calls then always give the same state."""
        self._ask({"op": "hold_clock", "on": on})

    def advance(self, seconds: float, *, load: float = 0.0) -> None:
        """Let time pass at once for heat and battery, under a load of 0 to 1."""
        self._ask({"op": "advance", "seconds": seconds, "load": load})

    def clear_faults(self) -> None:
        """Everything works again; a link that was cut or a host that was not trusted comes back by itself."""
        self._ask({"op": "clear_faults"})

    def _fault(self, kind: str, pattern: str, times: int, *, after_bytes: int = 0) -> None:
        fault = {"kind": kind, "pattern": pattern, "times": times, "after_bytes": after_bytes}
        self._ask({"op": "fault", "fault": fault})

    def _ask(self, request: dict[str, Any]) -> None:
        control.request(self._state_dir, {"op": "phone", "serial": self.serial, "request": request})


class VirtualLab:
    """Phones and their private adb server, owned by this process and gone with it, however it ends."""

    def __init__(self, state_dir: Path, supervisor: subprocess.Popen[bytes]) -> None:
        self.state_dir = state_dir
        self._supervisor = supervisor
        self.adb_host = ADB_HOST
        described = control.request(state_dir, {"op": "list"})
        self.adb_port: int = described["adb_port"]
        self.isolation: str = described["isolation"]
        self.reduction: str | None = described["reduction"]
        self.phones: tuple[VirtualPhone, ...] = ()

    @classmethod
    def start(cls, state_dir: Path, phones: Sequence[PhoneSpec], progress: Callable[[str], None] = _quiet) -> Self:
        """Start the phones. ``state_dir`` is created if missing and must not be in use by another lab.

        Raises HostError if this host cannot run virtual phones, UserError for an unknown SoC.
        """
        supervisor = launch_supervisor(state_dir, owner=os.getpid())
        try:
            lab = cls(state_dir, supervisor)
            lab.add(phones, progress)
        except BaseException:
            end_supervisor(supervisor)
            raise
        return lab

    def add(self, phones: Sequence[PhoneSpec], progress: Callable[[str], None] = _quiet) -> tuple[VirtualPhone, ...]:
        new = add_phones(self.state_dir, phones, progress)
        self.phones += new
        return new

    def stop(self) -> None:
        """End the phones and the adb server and delete the phones' files. Safe to call twice."""
        end_supervisor(self._supervisor)
        self.phones = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def add_phones(
    state_dir: Path, phones: Sequence[PhoneSpec], progress: Callable[[str], None]
) -> tuple[VirtualPhone, ...]:
    message = {"op": "add", "phones": [asdict(spec) for spec in phones]}
    described = control.request(state_dir, message, progress)["phones"]
    return tuple(VirtualPhone(state_dir, phone) for phone in described)


def launch_supervisor(state_dir: Path, *, owner: int | None) -> subprocess.Popen[bytes]:
    """Start a supervisor and wait until it is ready. With an ``owner`` it ends when that process does."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "harness.virtual.supervisor", "--state-dir", str(state_dir)]
    command += ["--ready-fd", str(writer)]
    if owner is not None:
        command += ["--owner", str(owner)]
    package_folder = str(Path(harness.__file__).parents[1])
    search = os.pathsep.join(filter(None, (package_folder, os.environ.get("PYTHONPATH"))))
    with os.fdopen(reader, "rb") as ready, (state_dir / "supervisor.log").open("ab") as log:
        try:
            supervisor = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": search},
            )
        finally:
            os.close(writer)
        line = ready.readline()
    answer: dict[str, Any] = json.loads(line) if line else {}
    if "ready" in answer:
        return supervisor
    end_supervisor(supervisor)
    if "error" in answer:
        raise control.decode_error(answer["error"])
    raise HostError(
        "the virtual phones' supervisor did not start",
        found=(state_dir / "supervisor.log").read_text(encoding="utf-8", errors="replace").strip()[-600:],
        expected="a supervisor that reports ready",
        next_step=f"read {state_dir / 'supervisor.log'}",
    )


def end_supervisor(supervisor: subprocess.Popen[bytes]) -> None:
    if supervisor.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            supervisor.terminate()
        try:
            supervisor.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()


def wait_until_gone(state_dir: Path, timeout_s: float = _STOP_TIMEOUT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while control.is_running(state_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
