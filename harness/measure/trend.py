"""Does a figure grow over rounds? The Theil-Sen slope, which a few odd rounds do not move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from harness.measure.statistics import CONFIDENCE, Interval

MIN_POINTS: Final = 5
"""With fewer, the distribution-free 95 % interval of the slope is wider than the data can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    slope: float
    """In the unit of y per unit of x"""
    interval: Interval
    """95 %, from Kendall's tau (Sen 1968, as ``scipy.stats.theilslopes``)"""
    n: int


def trend(x: Sequence[float], y: Sequence[float]) -> Trend | None:
    """None with under ``MIN_POINTS`` points, with one x only, or where a value is not finite."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(a) != len(b) or len(a) < MIN_POINTS or len(set(a)) < 2 or not np.isfinite(np.r_[a, b]).all():
        return None
    found = stats.theilslopes(b, a, alpha=CONFIDENCE)
    return Trend(slope=float(found.slope), interval=(float(found.low_slope), float(found.high_slope)), n=len(a))


def relative_trend(x: Sequence[float], y: Sequence[float]) -> Trend | None:
    """As ``trend``, in percent of the median of y."""
    middle = float(np.median(y)) if len(y) else 0.0
    found = trend(x, y)
    if found is None or middle == 0:
        return None
    low, high = sorted(100.0 * bound / middle for bound in found.interval)
    return Trend(slope=100.0 * found.slope / middle, interval=(low, high), n=found.n)
