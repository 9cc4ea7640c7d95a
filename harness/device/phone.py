"""A phone that is held: its facts, its transport, its store and its lease."""

from __future__ import annotations

from dataclasses import dataclass

from harness.device.adb import AdbDevice
from harness.device.lease import Lease
from harness.device.store import PhoneStore
from harness.record.run import DeviceFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedPhone:
    """Use it as a context manager, or call ``release``."""

    facts: DeviceFacts
    device: AdbDevice
    store: PhoneStore
    lease: Lease

    def release(self) -> None:
        self.lease.release()

    def __enter__(self) -> LeasedPhone:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
