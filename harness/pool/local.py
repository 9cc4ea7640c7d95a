"""The phones of one adb server: which there are, which are usable and why not, and how to hold one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.device.adb import Adb, AdbDevice
from harness.device.changes import restore
from harness.device.identity import confirm, read_facts
from harness.device.lease import Lease, default_state_dir
from harness.device.phone import LeasedPhone
from harness.device.server import Attached
from harness.device.store import PhoneStore
from harness.errors import InfraError
from harness.record.run import DeviceFacts

_WHY_NOT: Final[dict[str, str]] = {
    "offline": "offline: adb has lost the connection; replug the phone or reconnect it",
    "unauthorized": "unauthorized: unlock the phone and allow USB debugging for this host",
    "authorizing": "authorizing: the phone is still checking this host's key; try again in a few seconds",
    "connecting": "connecting: the phone is still being connected; try again in a few seconds",
    "recovery": "recovery: the phone is in recovery mode; reboot it",
    "sideload": "sideload: the phone waits for an update; reboot it",
    "gone": "gone: adb has lost the phone while it was looked at; check cable and power",
    "rescue": "rescue: the phone is in rescue mode; reboot it",
    "bootloader": "bootloader: the phone is in its boot loader; reboot it",
    "no permissions": "no permissions: this user may not open the USB device; add a udev rule for the phone",
}
_PASSING: Final = ("offline", "authorizing", "connecting")
"""States that a phone is also in for a moment after its connection broke, and that hide why it is not usable"""
_SETTLE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneInfo:
    """One phone. ``facts is None``: it could not be asked. ``reason``: why it is not usable, None when it is."""

    transport: str
    state: str
    facts: DeviceFacts | None
    usable: bool
    reason: str | None


def discover(adb_host: str = "127.0.0.1", adb_port: int = 5037) -> tuple[PhoneInfo, ...]:
    """Every phone of the server, once, in order of its serial. Raises ``HostError`` where there is no server."""
    adb = Adb(adb_host, adb_port)
    attached = adb.devices()
    if not attached:
        return ()
    with ThreadPoolExecutor(max_workers=min(len(attached), 8)) as workers:
        found = list(workers.map(lambda line: _look_at(adb, line), attached))
    return without_duplicates(found)


def without_duplicates(found: list[PhoneInfo]) -> tuple[PhoneInfo, ...]:
    """Two transports of one serial are one phone: the usable one is taken, USB before network."""

    def rank(info: PhoneInfo) -> tuple[bool, bool, str]:
        return (not info.usable, ":" in info.transport, info.transport)

    kept: dict[str, PhoneInfo] = {}
    for info in sorted(found, key=rank):
        key = info.facts.serial if info.facts is not None and info.facts.serial else f"transport {info.transport}"
        kept.setdefault(key, info)
    return tuple(sorted(kept.values(), key=lambda info: (info.facts.serial if info.facts else "", info.transport)))


def acquire(
    facts: DeviceFacts,
    *,
    holder: str,
    adb_host: str = "127.0.0.1",
    adb_port: int = 5037,
    state_dir: Path | None = None,
) -> LeasedPhone:
    """Hold a phone: nobody else runs on it until ``release``. ``holder`` is shown to whoever is refused.

    Raises ``LeaseError`` naming the holder, ``PhoneLostError`` when the transport now leads to another phone or none,
    ``PhoneStorageError`` when programs cannot run from its storage. What a run that crashed had set on the phone is
    put back first.
    """
    device = Adb(adb_host, adb_port).device(facts.transport)
    now, reason = confirm(device, facts)
    if reason is not None:
        raise InfraError(f"phone {facts.serial} is not usable", found=reason)
    lease = Lease.take(device, now, holder=holder, state_dir=state_dir or default_state_dir())
    try:
        store = PhoneStore(device)
        store.prepare()
        store.clean()
        restore(device)
    except BaseException:
        lease.release()
        raise
    return LeasedPhone(facts=now, device=device, store=store, lease=lease)


def _look_at(adb: Adb, line: Attached) -> PhoneInfo:
    device = adb.device(line.transport)
    if line.state in _PASSING:
        line = replace(line, state=_settled(device))
    if line.state != "device":
        return _unusable(line, _WHY_NOT.get(line.state, f"{line.state}: not a state to run in; reboot the phone"))
    try:
        if "shell_v2" not in device.features():
            return _unusable(line, "its adb daemon has no shell v2; Android 7 or newer is needed")
        facts, reason = read_facts(device)
    except InfraError as exc:
        # Between the list and the question the phone may have gone; then the state says it better.
        return _unusable(line, _WHY_NOT.get(device.state(), f"does not answer: {exc}"))
    return PhoneInfo(transport=line.transport, state=line.state, facts=facts, usable=reason is None, reason=reason)


def _settled(device: AdbDevice) -> str:
    """The state that a phone in a passing one comes to, within ``_SETTLE_S``."""
    deadline = time.monotonic() + _SETTLE_S
    while (state := device.state()) in _PASSING and time.monotonic() < deadline:
        time.sleep(0.05)
    return state


def _unusable(line: Attached, reason: str) -> PhoneInfo:
    return PhoneInfo(transport=line.transport, state=line.state, facts=None, usable=False, reason=reason)
