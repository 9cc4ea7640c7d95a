"""One free phone of several, held for as long as it is needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from harness.device.phone import LeasedPhone
from harness.errors import InfraError, LeaseError
from harness.plugin.share import Share
from harness.pool.local import acquire
from harness.record.run import DeviceFacts

LEASE_WAIT_S: Final = 600.0


@contextlib.contextmanager
def hold_one(
    phones: tuple[DeviceFacts, ...], share: Share, *, worker: str, say: Callable[[str], None]
) -> Iterator[LeasedPhone]:
    """Any free phone of the given ones; waits for one as long as ``LEASE_WAIT_S``.

    A phone that is gone is passed over while another is there; only where none is left its error is raised.
    """
    deadline = time.monotonic() + LEASE_WAIT_S
    told = False
    while True:
        busy: LeaseError | None = None
        lost: InfraError | None = None
        for facts in phones:
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
