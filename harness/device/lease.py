"""One holder per phone: a file lock on this host, and a fence file on the phone against other hosts.

The lock is the kernel's (``flock``): it is free the moment its holder is dead. The fence is text on the phone that
says who holds it and until which uptime of the phone it is valid; each run renews it. A fence is void when it has
lapsed, when the phone has rebooted since, or when it was written by a dead holder of the very lock that we now hold.
Two hosts that write at the same moment are told apart by reading back: the last writer holds the phone, and the other
finds out at the latest when it renews, before its next run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from harness.device.adb import AdbDevice
from harness.device.conditions import parse_uptime
from harness.device.faults import command_fault
from harness.device.identity import split_sections
from harness.device.store import ROOT
from harness.device.text import printable
from harness.errors import HostError, InfraError, LeaseError
from harness.record.run import DeviceFacts

STATE_VARIABLE: Final = "SNAPGATE_STATE_DIR"
FENCE: Final = ROOT / "lease.json"
VALID_S: Final = 900.0
LONGEST_S: Final = 24 * 3600.0
"""No run asks for more. A fence that claims more is damaged, and must not hold the phone until it reboots."""

_READ: Final = """
echo "--snapgate boot_id"; cat /proc/sys/kernel/random/boot_id
echo "--snapgate uptime"; cat /proc/uptime
echo "--snapgate fence"; [ -f "$1" ] && head -c 2000 "$1"
exit 0
"""
_WRITE: Final = 'mkdir -p "$(dirname "$1")" && cat > "$1.$2" && mv -f "$1.$2" "$1"'


def default_state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where locks live: ``SNAPGATE_STATE_DIR``, else the user's XDG state folder. Users of one host must agree."""
    environment = os.environ if environment is None else environment
    if named := environment.get(STATE_VARIABLE):
        return Path(named)
    if base := environment.get("XDG_STATE_HOME"):
        return Path(base) / "snapgate"
    return Path.home() / ".local" / "state" / "snapgate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What stands on the phone. ``lock``: host and path of the file lock behind it."""

    holder: str
    lock: str
    nonce: str
    boot_id: str
    valid_until_uptime_s: float


def parse_fence(text: str) -> Fence | None:
    """None for an empty or damaged fence: a fence nobody can read holds nobody back."""
    try:
        data: Any = json.loads(text)
        return Fence(
            holder=printable(str(data["holder"])),
            lock=printable(str(data["lock"]), 500),
            nonce=printable(str(data["nonce"])),
            boot_id=printable(str(data["boot_id"])),
            valid_until_uptime_s=float(data["valid_until_uptime_s"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def fence_holds(fence: Fence | None, *, boot_id: str, uptime_s: float, own_lock: str) -> bool:
    """Whether somebody else's fence still stands. ``own_lock`` is a lock that we hold, so its last holder is gone."""
    return (
        fence is not None
        and fence.lock != own_lock
        and fence.boot_id == boot_id
        and uptime_s < fence.valid_until_uptime_s <= uptime_s + LONGEST_S
    )


class Lease:
    """A phone held by this process. Use it as a context manager, or call ``release``."""

    def __init__(self, device: AdbDevice, facts: DeviceFacts, lock: FileLock, holder: str, lock_name: str) -> None:
        self._device = device
        self._facts = facts
        self._lock = lock
        self._lock_name = lock_name
        self._nonce = secrets.token_hex(8)
        self.holder = holder

    @classmethod
    def take(cls, device: AdbDevice, facts: DeviceFacts, *, holder: str, state_dir: Path) -> Lease:
        """Raises ``LeaseError`` at once, naming the holder, when the phone is taken."""
        lock_path = _lock_path(state_dir, facts.serial)
        lock = FileLock(lock_path, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout as exc:
            raise LeaseError(
                f"phone {facts.serial} is in use",
                found=f"held by {_read_note(lock_path)}",
                expected="a free phone",
                next_step="wait for that run to end, or choose another phone",
            ) from exc
        except OSError as exc:
            raise HostError(
                f"cannot lock phone {facts.serial}: {lock_path} is not usable",
                found=str(exc),
                expected="a folder this user may write to",
                next_step=f"set {STATE_VARIABLE} to a folder that all users of this host can write to",
            ) from exc
        lease = cls(device, facts, lock, holder, f"{socket.gethostname()}:{lock_path}")
        try:
            _write_note(lock_path, f"{holder} (process {os.getpid()})")
            lease._fence(VALID_S, first=True)
        except BaseException:
            lock.release()
            raise
        return lease

    def renew(self, valid_s: float = VALID_S) -> None:
        """Keep the phone for at least ``valid_s`` more, a day at most. ``LeaseError``: another host has taken it."""
        self._fence(valid_s, first=False)

    def release(self) -> None:
        """Give the phone back. The host's lock always goes; the fence goes if the phone can be reached."""
        try:
            with contextlib.suppress(InfraError, HostError):
                fence = self._look()[0]
                if fence is not None and fence.nonce == self._nonce:
                    self._device.run(["rm", "-f", FENCE], timeout_s=10, what="give the phone back")
        finally:
            self._lock.release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _look(self) -> tuple[Fence | None, str, float]:
        what = "read the fence"
        result = self._device.script(_READ, FENCE, what=what)
        if result.exit_code != 0:
            raise command_fault(result, what=what, phone=self._device.transport)
        sections = split_sections(result.text)
        uptime = parse_uptime(sections.get("uptime", ""))
        if uptime is None:
            raise InfraError(f"{what}: phone {self._device.transport} does not tell its uptime", found=result.said())
        return parse_fence(sections.get("fence", "")), printable(sections.get("boot_id", ""), 64), uptime

    def _fence(self, valid_s: float, *, first: bool) -> None:
        fence, boot_id, uptime = self._look()
        ours = fence is not None and fence.nonce == self._nonce
        if not ours and fence_holds(fence, boot_id=boot_id, uptime_s=uptime, own_lock=self._lock_name):
            raise self._taken(fence, uptime, first=first)
        written = Fence(
            holder=self.holder,
            lock=self._lock_name,
            nonce=self._nonce,
            boot_id=boot_id,
            valid_until_uptime_s=uptime + min(valid_s, LONGEST_S - VALID_S),
        )
        body = json.dumps(
            {
                "holder": written.holder,
                "lock": written.lock,
                "nonce": written.nonce,
                "boot_id": written.boot_id,
                "valid_until_uptime_s": written.valid_until_uptime_s,
            }
        )
        what = "write the fence"
        result = self._device.script(_WRITE, FENCE, self._nonce, stdin=body.encode(), what=what)
        if result.exit_code != 0:
            raise command_fault(result, what=what, phone=self._device.transport)
        fence, _, uptime = self._look()
        if fence is None or fence.nonce != self._nonce:
            raise self._taken(fence, uptime, first=first)

    def _taken(self, fence: Fence | None, uptime: float, *, first: bool) -> LeaseError:
        holder = fence.holder if fence is not None else "somebody who removed our fence"
        left = f", for at most {fence.valid_until_uptime_s - uptime:.0f} s more" if fence is not None else ""
        return LeaseError(
            f"phone {self._facts.serial} is in use" if first else f"the lease of phone {self._facts.serial} was lost",
            found=f"held by {holder}{left}",
            expected="a free phone" if first else f"held by {self.holder}",
            next_step="wait for that run to end, or choose another phone",
        )


def _lock_path(state_dir: Path, serial: str) -> Path:
    folder = state_dir / "leases"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise HostError(
            f"cannot make {folder}",
            found=str(exc),
            next_step=f"set {STATE_VARIABLE} to a folder this user can write to",
        ) from exc
    return folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', serial)}.lock"


def _note_path(lock_path: Path) -> Path:
    return lock_path.with_suffix(".holder")


def _write_note(lock_path: Path, text: str) -> None:
    note = _note_path(lock_path)
    temporary = note.with_name(f"{note.name}.{os.getpid()}")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(note)


def _read_note(lock_path: Path) -> str:
    try:
        return printable(_note_path(lock_path).read_text(encoding="utf-8", errors="replace")) or "an unknown holder"
    except OSError:
        return "an unknown holder"
