"""Cold, warming, steady or throttled: the parts of one generation, from its token stamps and a temperature together.

A generation is cut where its speed changes (``changepoint.find_changes`` over the logarithm of the gaps). The fastest
level is the peak. What lies before it is cold; what lies after it and is slower is throttled, if the temperature rose
meanwhile, and slowed if it did not: a change of schedule or clock policy is not heat. The peak itself is warming until
the temperature has settled, then steady. Without a temperature, speed alone decides.

A graph of static shape computes its whole context in every step, so depth alone does not slow it down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.measure.changepoint import MIN_VALUES, Change, find_changes
from harness.measure.thermal import usable_celsius
from harness.record.run import SensorSeries

SMALLEST_CHANGE: Final = 0.03
"""Relative. Levels that differ by less are one level."""
HEAT_CELSIUS: Final = 2.0
"""A slow-down counts as throttling from this rise of temperature on; sensors step by up to 1 °C."""
SETTLED_CELSIUS: Final = 1.0
SETTLED_S: Final = 60.0
"""A temperature is settled when it stays within ``SETTLED_CELSIUS`` of its end for at least this long."""
SETTLED_GENERATIONS: Final = 5
DRIFT: Final = 0.01
"""Of a sustained load; relative"""
_LEAST_GAPS: Final = 32
_LEAST_SHARE: Final = 0.1
"""The last level is a steady state only if it has at least this many gaps and this share of the time."""


class Condition(StrEnum):
    COLD = "cold"
    WARMING = "warming"
    STEADY = "steady"
    THROTTLED = "throttled"
    SLOWED = "slowed"
    """Slower than before, and the temperature did not rise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Gaps ``first`` to ``end`` (excluded) of a generation; gap i lies between tokens i and i + 1."""

    condition: Condition
    first: int
    end: int
    tps: float
    """Gaps over time"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """One sensor during the generation: usable readings only."""

    sensor: str
    domain: str
    at_ns: NDArray[np.int64]
    celsius: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    windows: tuple[Window, ...]
    peak_tps: float
    """Of the fastest level"""
    steady_tps: float | None
    """Of the last level. None: the generation did not end in a steady state; ``unsteady`` says why."""
    unsteady: str | None
    tokens_to_throttle: int | None
    """Tokens until the first throttled gap. None: never throttled."""
    seconds_to_throttle: float | None
    """From the first token to the first throttled gap"""


def steadiness(token_ns: Sequence[int], temperature: Temperature | None = None) -> Steadiness | None:
    """None when there are too few gaps (``MIN_VALUES``) to tell, or the clock stood still between two tokens."""
    stamps = np.asarray(token_ns, dtype=np.int64)
    gaps = np.diff(stamps)
    if len(gaps) < MIN_VALUES or (gaps <= 0).any():
        return None
    changes = find_changes(np.log(gaps.astype(np.float64)), smallest=math.log1p(SMALLEST_CHANGE))
    levels = _levels(changes, len(gaps))
    speeds = [_tps(stamps, first, end) for first, end in levels]
    long_enough = [i for i, (first, end) in enumerate(levels) if end - first >= _LEAST_GAPS]
    peak = max(long_enough or range(len(levels)), key=lambda i: speeds[i])
    slow = [i for i in range(peak + 1, len(levels)) if speeds[i] * (1 + SMALLEST_CHANGE) <= speeds[peak]]
    throttle = changes[slow[0] - 1].start + 1 if slow else None
    hot = throttle is None or temperature is None or _rise(temperature, stamps[0], stamps[-1]) >= HEAT_CELSIUS
    settled = None if temperature is None else _settled_since(temperature)
    windows = _windows(levels, peak, set(slow), Condition.THROTTLED if hot else Condition.SLOWED, stamps, settled)
    unsteady = _unsteady(levels[-1], stamps, temperature, settled)
    throttled = throttle is not None and hot
    return Steadiness(
        windows=windows,
        peak_tps=speeds[peak],
        steady_tps=speeds[-1] if unsteady is None else None,
        unsteady=unsteady,
        tokens_to_throttle=throttle + 1 if throttled and throttle is not None else None,
        seconds_to_throttle=float(stamps[throttle] - stamps[0]) / 1e9 if throttled and throttle is not None else None,
    )


def _levels(changes: Sequence[Change], n: int) -> list[tuple[int, int]]:
    """(first, end) of the level before, between and after the changes."""
    firsts = [0, *(change.end for change in changes)]
    ends = [*(change.start + 1 for change in changes), n]
    return list(zip(firsts, ends, strict=True))


def _tps(stamps: NDArray[np.int64], first: int, end: int) -> float:
    return (end - first) / (float(stamps[end] - stamps[first]) / 1e9)


def _windows(
    levels: Sequence[tuple[int, int]],
    peak: int,
    slow: set[int],
    slower: Condition,
    stamps: NDArray[np.int64],
    settled: int | None,
) -> tuple[Window, ...]:
    """One window per level; a ramp goes with the slower of its two sides. The peak is cut where heat has settled."""
    found: list[tuple[Condition, int, int]] = []
    at = 0
    for i, (first, end) in enumerate(levels):
        condition = Condition.COLD if i < peak else slower if i in slow else Condition.STEADY
        if at < first:
            ramp = Condition.COLD if i <= peak else slower
            found.append((ramp, at, first))
        cut = end
        if condition is Condition.STEADY and settled is not None:
            cut = min(max(int(np.searchsorted(stamps, settled)), first), end)
            found.append((Condition.WARMING, first, cut))
            first = cut
        found.append((condition, first, end))
        at = end
    return tuple(
        Window(condition=condition, first=first, end=end, tps=_tps(stamps, first, end))
        for condition, first, end in found
        if end > first
    )


def _unsteady(
    last: tuple[int, int], stamps: NDArray[np.int64], temperature: Temperature | None, settled: int | None
) -> str | None:
    first, end = last
    share = float(stamps[end] - stamps[first]) / float(stamps[-1] - stamps[0])
    if end - first < _LEAST_GAPS or share < _LEAST_SHARE:
        return f"the speed still changed {end - first} tokens before the end"
    if temperature is not None and settled is not None and settled >= int(stamps[-1]):
        return f"the temperature {temperature.sensor} had not settled for {SETTLED_S:.0f} s at the end"
    return None


def last_level(speeds: Sequence[float]) -> list[float]:
    """The longest end of the row that stays within ``SMALLEST_CHANGE`` of its own median."""
    for start in range(len(speeds)):
        level = list(speeds[start:])
        middle = float(np.median(level))
        if all(abs(v / middle - 1) < SMALLEST_CHANGE for v in level):
            return level
    return []


def unsettled(speeds: Sequence[float], temperature: Temperature | None) -> str | None:
    """Why a sustained load has to go on, or None: it is in a steady state.

    ``speeds``: of its generations so far. The last level needs ``SETTLED_GENERATIONS``, whose later half is not
    ``DRIFT`` slower or faster than the earlier one, and the temperature has to have settled. Without a temperature
    nothing tells a phone that has not warmed up from one that stays as it is, so twice as many are needed.
    """
    level = last_level(speeds)
    wanted = SETTLED_GENERATIONS * (2 if temperature is None else 1)
    if len(level) < wanted:
        return f"{len(level)} generations of one speed, {wanted} are needed"
    half = len(level) // 2
    drift = float(np.median(level[-half:])) / float(np.median(level[:half])) - 1
    if abs(drift) >= DRIFT:
        return f"the speed still drifts by {100 * drift:+.1f} % over {len(level)} generations"
    if temperature is not None and _settled_since(temperature) == np.iinfo(np.int64).max:
        return f"the temperature {temperature.sensor} has not settled for {SETTLED_S:.0f} s"
    return None


def _rise(temperature: Temperature, start_ns: int, end_ns: int) -> float:
    """Highest reading minus the first one."""
    inside = (temperature.at_ns >= start_ns) & (temperature.at_ns <= end_ns)
    readings = temperature.celsius[inside]
    return float(readings.max() - readings[0]) if len(readings) else 0.0


def _settled_since(temperature: Temperature) -> int:
    """The first moment (ns) from which on it stays near its end; the largest int64 when it did not stay long enough."""
    n_end = max(1, len(temperature.celsius) // 10)
    away = np.abs(temperature.celsius - np.median(temperature.celsius[-n_end:])) > SETTLED_CELSIUS
    outside = np.flatnonzero(away)
    first = int(outside[-1]) + 1 if len(outside) else 0
    if first >= len(away) or temperature.at_ns[-1] - temperature.at_ns[first] < SETTLED_S * 1e9:
        return int(np.iinfo(np.int64).max)
    return int(temperature.at_ns[first])


def leading_temperature(sensors: Iterable[SensorSeries], start_ns: int, end_ns: int) -> Temperature | None:
    """The sensor that rose most between two moments; at least 3 usable readings. One sensor: domains are not mixed."""
    best: Temperature | None = None
    for series in sensors:
        if series.unit != "celsius" or series.state not in ("ok", "partial"):
            continue
        pairs = [
            (at, value)
            for at, value in zip(series.monotonic_ns, series.values, strict=False)
            if value is not None and usable_celsius(value) and start_ns <= at <= end_ns
        ]
        if len(pairs) < 3:
            continue
        found = Temperature(
            sensor=series.name,
            domain=series.domain,
            at_ns=np.array([at for at, _ in pairs], dtype=np.int64),
            celsius=np.array([value for _, value in pairs], dtype=np.float64),
        )
        if best is None or _rise(found, start_ns, end_ns) > _rise(best, start_ns, end_ns):
            best = found
    return best
