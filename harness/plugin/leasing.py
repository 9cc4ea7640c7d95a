"""One free phone of several, held for as long as it is needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from harness.device.lease import default_state_dir
from harness.device.phone import LeasedPhone
from harness.errors import InfraError, LeaseError, PhoneStorageError
from harness.plugin.share import Share
from harness.pool.local import acquire
from harness.pool.quarantine import Quarantine
from harness.record.run import DeviceFacts

LEASE_WAIT_S: Final = 600.0


def quarantine_of(share: Share) -> Quarantine:
    folder = share.phones.lease_dir
    return Quarantine(default_state_dir() if folder is None else Path(folder), share.session_id)


@contextlib.contextmanager
def hold_one(
    phones: tuple[DeviceFacts, ...], share: Share, *, worker: str, say: Callable[[str], None]
) -> Iterator[LeasedPhone]:
    """Any free phone of the given ones; waits for one as long as ``LEASE_WAIT_S``.

    A phone that is gone is passed over while another is there; only where none is left its error is raised. One that
    is quarantined is not used again in this run.
    """
    quarantine = quarantine_of(share)
    deadline = time.monotonic() + LEASE_WAIT_S
    told = False
    while True:
        busy: LeaseError | None = None
        lost: InfraError | None = None
        for facts in phones:
            cause = quarantine.cause(facts.serial)
            if cause is not None:
                lost = lost or InfraError(
                    f"phone {facts.serial} is quarantined for the rest of this run",
                    found=cause,
                    next_step="mend the phone, then go on with --resume",
                )
                continue
            try:
                phone = acquire(
                    facts,
                    holder=f"snapgate {share.session_id} {worker}",
                    adb_host=share.phones.adb_host,
                    adb_port=share.phones.adb_port,
                    state_dir=None if share.phones.lease_dir is None else Path(share.phones.lease_dir),
                )
            except LeaseError as exc:
                busy = exc
                continue
            except InfraError as exc:
                lost = exc
                if isinstance(exc, PhoneStorageError):
                    quarantine.add(facts.serial, f"{type(exc).__name__} when it was leased: {exc}")
                continue
            try:
                yield phone
            finally:
                phone.release()
            return
        if busy is None and lost is not None:
            raise lost
        if busy is not None and time.monotonic() > deadline:
            raise busy
        if not told:
            say(f"waiting for a phone: {busy}")
            told = True
        time.sleep(1.0)
