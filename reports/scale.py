"""Numbers of an axis: its range, round ticks and their labels, and which of many points are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.text import number


def nice_ticks(low: float, high: float, about: int, *, whole: bool = False) -> tuple[float, ...]:
    """Round values (1, 2 or 5 times a power of ten apart) within ``low`` .. ``high``; integers if ``whole``."""
    if high <= low:
        return (low,)
    raw = (high - low) / max(about, 1)
    power: float = 10.0 ** math.floor(math.log10(raw))
    steps = [power * factor for factor in (10.0, 5.0, 2.0, 1.0, 0.5)]
    wanted = min(step for step in steps if step >= raw * 0.999)
    for step in (step for step in steps if step <= wanted):
        step = max(step, 1.0) if whole else step
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if last - first + 1 >= min(3, about):
            break
    return tuple(index * step for index in range(first, last + 1))


def padded_range(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """A y range that holds all values with some air; a constant gets a range around it, never of zero height."""
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
    span = high - low
    if span <= 0:
        span = abs(high) * 0.1 or 1.0
        return (low if from_zero else low - span / 2), high + span / 2
    return (low if from_zero and low == 0 else low - 0.06 * span), high + 0.08 * span


def tick_label(value: float, step: float) -> str:
    places = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return number(value, decimals=min(places, 6))


def thinned(n: int, keep: int) -> tuple[int, ...]:
    """``keep`` evenly spaced indices of 0 .. n-1, first and last among them; all of them when there are no more."""
    if n <= keep:
        return tuple(range(n))
    if keep < 2:
        return (0,) if keep == 1 else ()
    return tuple(round(index * (n - 1) / (keep - 1)) for index in range(keep))


def compact(value: float) -> float | int | None:
    """Six significant digits: far finer than any clock or sensor here, and short in the file."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
