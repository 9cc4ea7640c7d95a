"""Energy of a stretch of time from the battery's own current and voltage; idle power is subtracted by the caller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.record.run import RunRecord, SensorSeries

MIN_READINGS: Final = 5
"""Of a stretch: fewer at 1 Hz cannot carry a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTrace:
    """Battery power; stamps are CLOCK_MONOTONIC of the phone."""

    at_ns: NDArray[np.float64]
    milliwatt: NDArray[np.float64]

    def energy_mj(self, start_ns: int, end_ns: int) -> float | None:
        """Trapezoid over the readings within; the ends are interpolated. None with under ``MIN_READINGS`` of them, or
        where readings do not reach both ends."""
        inside = (self.at_ns >= start_ns) & (self.at_ns <= end_ns)
        if inside.sum() < MIN_READINGS or self.at_ns[0] > start_ns or self.at_ns[-1] < end_ns:
            return None
        ends = np.interp([start_ns, end_ns], self.at_ns, self.milliwatt)
        at = np.concatenate(([start_ns], self.at_ns[inside], [end_ns]))
        power = np.concatenate((ends[:1], self.milliwatt[inside], ends[1:]))
        return float(np.trapezoid(power, at) / 1e9)

    def blocks_mw(self, seconds: float, end_ns: int) -> tuple[float, ...]:
        """Mean power of successive blocks that end by ``end_ns``."""
        width = seconds * 1e9
        number = ((self.at_ns - self.at_ns[0]) // width).astype(int)
        n_whole = max(0, int((min(end_ns, self.at_ns[-1]) - self.at_ns[0]) // width))
        return tuple(float(self.milliwatt[number == i].mean()) for i in range(n_whole) if (number == i).any())


def power_trace(run: RunRecord) -> PowerTrace | str:
    """The battery's power over a run; a text says why there is none. Discharge is negative on some phones and positive
    on others, so the size of the current counts, and only while nothing charges."""
    if run.conditions.charging:
        return "external power: the battery's current is not what the phone uses"
    if run.conditions.charging is None:
        return "the phone does not say whether it charges"
    current = _usable(run.sensors, "ua")
    voltage = _usable(run.sensors, "uv")
    if current is None or voltage is None:
        missing = " and ".join(name for name, s in (("current", current), ("voltage", voltage)) if s is None)
        return f"the phone shows no usable {missing} of its battery"
    pairs = [
        (at, abs(i) * v / 1e9)
        for at, i, v in zip(current.monotonic_ns, current.values, voltage.values, strict=False)
        if i is not None and v is not None
    ]
    if len(pairs) < MIN_READINGS:
        return f"only {len(pairs)} readings of the battery, {MIN_READINGS} are needed"
    signs = {np.sign(i) for i in current.values if i}
    if len(signs) > 1:
        return "the battery's current changed its sign: it was charged meanwhile"
    if len({i for i in current.values if i is not None}) == 1 and len(pairs) >= MIN_READINGS:
        return "the battery's current never changed: the reading is not live"
    return PowerTrace(at_ns=np.array([at for at, _ in pairs], float), milliwatt=np.array([p for _, p in pairs], float))


def _usable(sensors: Iterable[SensorSeries], unit: str) -> SensorSeries | None:
    found: Sequence[SensorSeries] = [
        s for s in sensors if s.domain == "battery" and s.unit == unit and s.state in ("ok", "partial")
    ]
    return found[0] if found else None
