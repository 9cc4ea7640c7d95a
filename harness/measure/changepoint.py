"""Where the level of a noisy series changes: ramps and steps by least squares, and a test that allows for correlation.

One change is a level, a straight ramp from ``start`` to ``end``, and a second level; a step is a ramp without length.
The series is divided at the best change, then each part again. To judge a change, the noise is taken from what is left
after dividing further than needed (three times, whatever is found), as the long-run variance of an AR(1) process fitted
to it: s^2 (1 + rho) / (1 - rho). The gain of the change over a constant, divided by that variance, has to reach
``CRITICAL``, and the levels have to differ by what the caller calls the smallest change. Steps that follow each other
closely may come out as one ramp from the first to the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

MAX_BLOCKS: Final = 120
MIN_VALUES: Final = 256
"""A shorter series is not looked at: with strongly correlated noise nothing could be told."""
_MIN_PART: Final = 64
"""A shorter part of a series is not divided further."""
CRITICAL: Final = 120.0
"""Chosen by simulation: flat AR(1) noise of 0.9 between 300 tokens exceeds it in under 1 % of series, weaker
correlation or longer series far less often. ``make bench-verdicts`` measures it again."""
_DIVISIONS: Final = 3
_MIN_BLOCKS: Final = 12
_RHO_MAX: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``start``: the last index of the old level; ``end``: the first of the new one."""

    start: int
    end: int
    before: float
    after: float


def block_size(n: int) -> int:
    return max(1, -(-n // MAX_BLOCKS))


def block_medians(values: Values, size: int) -> Values:
    """Medians of consecutive blocks of ``size``; a rest that fills no block joins the last one."""
    n = len(values) // size
    medians = np.median(values[: n * size].reshape(n, size), axis=1)
    if n * size < len(values):
        medians[-1] = np.median(values[(n - 1) * size :])
    return medians


def fit_change(values: Values, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[Change, float]:
    """The ramp of least squares with a start in ``starts`` and a later end in ``ends`` (indices), and its gain: by how
    much it lowers the sum of squares of a constant. All sums over a ramp come from two cumulative sums."""
    n = len(values)
    a, b = (grid.ravel() for grid in np.meshgrid(starts, ends, indexing="ij"))
    a, b = a[b > a], b[b > a]
    length = (b - a).astype(np.float64)
    centred = values - values.mean()
    sums = np.r_[0.0, np.cumsum(centred)]
    moments = np.r_[0.0, np.cumsum(np.arange(n) * centred)]
    ramp_sum = (length - 1) / 2 + (n - b)
    power = (length - 1) * (2 * length - 1) / (6 * length) + (n - b) - ramp_sum**2 / n
    inner = (moments[b] - moments[a + 1] - a * (sums[b] - sums[a + 1])) / length
    product = inner + sums[n] - sums[b]
    gain = np.where(power > 1e-9, product**2 / np.maximum(power, 1e-9), 0.0)
    best = int(np.argmax(gain))
    slope = float(product[best] / power[best]) if gain[best] > 0 else 0.0
    before = float(values.mean()) - slope * float(ramp_sum[best]) / n
    return Change(start=int(a[best]), end=int(b[best]), before=before, after=before + slope), float(gain[best])


def find_changes(values: Values, *, smallest: float) -> tuple[Change, ...]:
    """All changes of at least ``smallest`` between the levels, in order; indices are those of ``values``."""
    whole = np.asarray(values, dtype=np.float64)
    if len(whole) < MIN_VALUES:
        return ()
    size = block_size(len(whole))
    noise = long_run_variance(block_medians(whole, size)) * size
    return tuple(_divide(whole, 0, smallest, noise))


def _divide(values: Values, offset: int, smallest: float, noise: float) -> list[Change]:
    """``noise``: long-run variance of single values, that of the whole series."""
    if len(values) < _MIN_PART:
        return []
    size = block_size(len(values))
    blocks = block_medians(values, size)
    coarse, gain = _best(blocks)
    if gain * size < CRITICAL * noise:
        return []
    change = _refined(values, blocks, size, coarse)
    before = _divide(values[: change.start + 1], offset, smallest, noise)
    after = _divide(values[change.end :], offset + change.end, smallest, noise)
    if abs(change.after - change.before) < smallest and not before and not after:
        return []
    return [
        *before,
        Change(start=change.start + offset, end=change.end + offset, before=change.before, after=change.after),
        *after,
    ]


def _best(blocks: Values) -> tuple[Change, float]:
    return fit_change(blocks, np.arange(len(blocks) - 1), np.arange(1, len(blocks)))


def long_run_variance(blocks: Values) -> float:
    """Of the noise around ``_DIVISIONS`` levels of division; a tiny part of the mean square at least."""
    rest = blocks - _fitted(blocks, _DIVISIONS)
    rest = rest - rest.mean()
    power = float(rest @ rest)
    rho = min(max(float(rest[1:] @ rest[:-1]) / power, 0.0), _RHO_MAX) if power > 0 else 0.0
    return max(power / len(rest) * (1 + rho) / (1 - rho), 1e-18 * float(blocks @ blocks) / len(blocks) + 1e-300)


def _fitted(blocks: Values, divisions: int) -> Values:
    n = len(blocks)
    if divisions == 0 or n < _MIN_BLOCKS:
        return np.full(n, blocks.mean())
    change, _ = _best(blocks)
    ramp = np.clip((np.arange(n) - change.start) / (change.end - change.start), 0.0, 1.0)
    fitted = change.before + (change.after - change.before) * ramp
    fitted[: change.start + 1] = _fitted(blocks[: change.start + 1], divisions - 1)
    fitted[change.end :] = _fitted(blocks[change.end :], divisions - 1)
    return fitted


def _refined(values: Values, blocks: Values, size: int, coarse: Change) -> Change:
    """From blocks to single values, around what was found; outliers are drawn in before."""
    if size == 1:
        return coarse
    level = np.repeat(blocks, size)[: len(values)]
    spread = 1.4826 * float(np.median(np.abs(values[: len(level)] - level)))
    tame = np.clip(values, blocks.min() - 4 * spread, blocks.max() + 4 * spread)
    last = len(values) - 1
    starts = np.arange(max(0, (coarse.start - 1) * size), min(last, (coarse.start + 2) * size))
    ends = np.arange(max(1, (coarse.end - 1) * size), min(last + 1, (coarse.end + 2) * size))
    return fit_change(tame, starts, np.unique(np.r_[ends, starts + 1]))[0]
