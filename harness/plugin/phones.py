"""Which phones this run has: attached ones, or virtual ones that the controller starts. Workers are handed the list."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import HostError
from harness.plugin.options import PhoneChoice, Settings
from harness.pool.local import PhoneInfo, discover
from harness.record.codec import from_json, to_json
from harness.record.run import DeviceFacts
from harness.soc import BY_MARKER, SOCS
from harness.virtual.lab import PhoneSpec, VirtualLab


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneList:
    """What every process of the run agrees on."""

    adb_host: str
    adb_port: int
    phones: tuple[DeviceFacts, ...]
    unusable: tuple[str, ...]
    """Phones that are attached but cannot be used, and why."""
    notes: tuple[str, ...]
    lease_dir: str | None
    """Where locks of phones that this run started live; None: the host's common place."""

    def matching(self, part: str) -> tuple[DeviceFacts, ...]:
        return tuple(phone for phone in self.phones if phone.part == part)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = to_json(self)
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PhoneList:
        return from_json(data, cls, name="phone list of the controller")


NO_PHONES: Final = PhoneList(adb_host="", adb_port=0, phones=(), unusable=(), notes=(), lease_dir=None)


class PhoneRack:
    """Owned by the controller: finds the phones, and ends what it started."""

    def __init__(self) -> None:
        self._lab: VirtualLab | None = None
        self._state: Path | None = None

    def find(self, settings: Settings, markers: Iterable[str], per_soc: int, say: Callable[[str], None]) -> PhoneList:
        """``markers``: the SoCs to have virtual phones of, ``per_soc`` each, if it comes to that."""
        notes: list[str] = []
        found: tuple[PhoneInfo, ...] = ()
        if settings.phones is not PhoneChoice.VIRTUAL:
            try:
                found = discover(settings.adb_host, settings.adb_port)
            except HostError:
                if settings.phones is PhoneChoice.ATTACHED or settings.require_device:
                    raise
        usable = tuple(info.facts for info in found if info.usable and info.facts is not None)
        unusable = tuple(f"{info.transport}: {info.reason}" for info in found if not info.usable)
        host, port = settings.adb_host, settings.adb_port
        wants_virtual = settings.phones is PhoneChoice.VIRTUAL or (
            settings.phones is PhoneChoice.AUTO and not usable and not settings.require_device
        )
        if wants_virtual:
            if settings.phones is PhoneChoice.AUTO:
                notes.append("no phone is attached: running on VIRTUAL phones; speed, heat and power are not judged")
            self._state = Path(tempfile.mkdtemp(prefix="snapgate-"))
            specs = [PhoneSpec(marker=marker) for marker in markers for _ in range(per_soc)]
            self._lab = VirtualLab.start(self._state, specs, progress=say)
            host, port = self._lab.adb_host, self._lab.adb_port
            found = discover(host, port)
            usable = tuple(info.facts for info in found if info.usable and info.facts is not None)
            unusable += tuple(f"{info.transport}: {info.reason}" for info in found if not info.usable)
        return PhoneList(
            adb_host=host,
            adb_port=port,
            phones=usable,
            unusable=unusable,
            notes=tuple(notes),
            lease_dir=None if self._state is None else str(self._state / "leases"),
        )

    def close(self) -> None:
        if self._lab is not None:
            self._lab.stop()
            self._lab = None
        if self._state is not None:
            shutil.rmtree(self._state, ignore_errors=True)
            self._state = None


def markers_asked_for(expression: str, catalogue: Iterable[str]) -> tuple[str, ...]:
    """SoC markers named in ``-m``; if it names none, those of the model catalogue."""
    words = set(re.findall(r"\w+", expression))
    named = tuple(soc.marker for soc in SOCS if soc.marker in words)
    return named or tuple(name for name in dict.fromkeys(catalogue) if name in BY_MARKER)
