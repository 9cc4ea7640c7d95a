"""A against B in one run: paired, interleaved, judged at a few looks, several metrics at once.

Arms alternate on one phone in the order of ``arm_order``: ABBA BAAB ... A pair is an A and a B next to each other; its
*harm* is ln(B / A), signed so that positive is worse. Drift over a pair cancels between pairs that begin with A and
pairs that begin with B, so the estimate is the mean of the two groups' means, and noise is taken around each group's
own level. An outlier is drawn in to its side of its group's median: it counts, but not by its size.

After each number of pairs in ``LOOKS`` the data may be judged. The two-sided p-value of Student's t at a look is
divided by the look's share in ``WEIGHTS``; the smallest over the looks so far is turned into the *sequential* p-value
by ``_TABLE``, its distribution with no difference (simulated by ``benchmarks/calibrate_paired.py``). Over several
metrics the sequential p-values go through Benjamini and Hochberg's step-up rule at ``ALPHA``, which holds for metrics
that are independent or move together. Intervals have the same level as the decision: an interval excludes 0 at a
look when the rule rejects by that look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LOOKS: Final = (8, 12, 20, 28, 40)
"""Pairs after which a decision may fall; the last is the budget."""
WEIGHTS: Final = (0.02, 0.33, 0.025, 0.025, 0.60)
ALPHA: Final = 0.014
"""Two-sided, over all looks and metrics; one half of it, 0.7 %, is what false FAILs may take."""
SMALLEST_EFFECT: Final = 0.01
"""Relative. A smaller harm is nobody's concern."""
_FENCE: Final = 7.0
_DRAWN_IN: Final = 3.0
"""Robust standard deviations beyond which a pair is an outlier, and to which it is then drawn in."""
_TABLE: Final[tuple[tuple[float, float], ...]] = (
    (2.233e-07, 1e-05),
    (1.317e-06, 3e-05),
    (1.522e-05, 0.0001),
    (9.448e-05, 0.0003),
    (5.144e-04, 0.001),
    (2.073e-03, 0.003),
    (8.620e-03, 0.01),
    (2.961e-02, 0.03),
    (1.102e-01, 0.1),
    (3.688e-01, 0.3),
    (1.0, 0.6),
)
"""Smallest p / weight, and the probability of it or a smaller one"""

Array = NDArray[np.float64]


def arm_order(n_pairs: int) -> str:
    """``ABBABAAB...``: the Thue-Morse sequence, so that pairs that begin with A and with B are balanced in every block
    of two, and drifts of higher order cancel too."""
    return "".join("B" if i.bit_count() % 2 else "A" for i in range(2 * n_pairs))


def a_comes_first(n_pairs: int) -> NDArray[np.bool_]:
    return np.array([pair.bit_count() % 2 == 0 for pair in range(n_pairs)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Arrays of one shape, that of the input without its last axis."""

    harm: Array
    """ln(B / A), positive is worse"""
    error: Array
    """Standard error"""
    p: Array
    """Two-sided, of this look alone"""


def estimate(harms: Array, a_first: NDArray[np.bool_]) -> Estimate:
    """``harms``: (..., n_pairs). Both orders have to occur at least twice."""
    groups = [harms[..., a_first], harms[..., ~a_first]]
    medians = [np.median(group, axis=-1, keepdims=True) for group in groups]
    away = np.concatenate([group - median for group, median in zip(groups, medians, strict=True)], axis=-1)
    n = harms.shape[-1]
    deviation = 1.4826 * np.median(np.abs(away), axis=-1, keepdims=True) * np.sqrt(n / (n - 2))
    tame = [
        np.where(
            np.abs(group - median) > _FENCE * deviation,
            median + _DRAWN_IN * deviation * np.sign(group - median),
            group,
        )
        for group, median in zip(groups, medians, strict=True)
    ]
    means = [group.mean(axis=-1) for group in tame]
    squares = sum(np.square(group - mean[..., None]).sum(axis=-1) for group, mean in zip(tame, means, strict=True))
    error = np.sqrt(squares / (n - 2) * sum(1 / group.shape[-1] for group in groups) / 4)
    harm = (means[0] + means[1]) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, np.abs(harm) / error, np.where(harm == 0, 0.0, np.inf))
    return Estimate(harm=harm, error=error, p=2 * stats.t.sf(t, n - 2))


def sequential_p(weighted: Array) -> Array:
    """From the smallest p / weight over the looks to the probability of one as small with no difference."""
    x, y = np.log(np.array(_TABLE)).T
    at = np.log(np.clip(weighted, 1e-300, 1.0))
    inside = np.interp(at, x, y)
    return np.asarray(np.exp(np.where(at < x[0], y[0] + (at - x[0]), inside)))


def _nominal_level(level: Array) -> Array:
    """The inverse of ``sequential_p``."""
    x, y = np.log(np.array(_TABLE)).T
    at = np.log(level)
    return np.asarray(np.exp(np.where(at < y[0], x[0] + (at - y[0]), np.interp(at, y, x))))


def rejected(p: Array, alpha: float = ALPHA) -> NDArray[np.bool_]:
    """Benjamini and Hochberg's step-up rule over the last axis."""
    m = p.shape[-1]
    order = np.sort(p, axis=-1)
    below = order <= alpha * np.arange(1, m + 1) / m
    count = np.where(below.any(axis=-1), m - np.argmax(below[..., ::-1], axis=-1), 0)
    return np.asarray(p <= alpha * count[..., None] / m) & (count[..., None] > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All metrics after ``n_pairs``; arrays are (..., n_metrics)."""

    n_pairs: int
    harm: Array
    low: Array
    high: Array
    """Sequential interval of ``harm``, corrected for looks and metrics"""
    upper: Array
    """Upper end of the sequential interval that is corrected for looks only"""
    p: Array
    """Sequential p-value"""
    worse: NDArray[np.bool_]
    """The interval excludes 0, and the harm reaches the smallest effect: FAIL."""
    fine: NDArray[np.bool_]
    """``upper`` lies below the smallest effect. All metrics have to be fine for a PASS, so nothing is gained by having
    many of them and no correction for their number is due (an intersection-union test)."""


def looks(harms: Array, a_first: NDArray[np.bool_], *, smallest: float = SMALLEST_EFFECT) -> tuple[Look, ...]:
    """Every look that the data are long enough for. ``harms``: (..., n_metrics, n_pairs).

    Later looks know the earlier ones: p-values never grow. The interval is that of the look itself.
    """
    least = np.log1p(smallest)
    smallest_p = np.full(harms.shape[:-1], np.inf)
    found: list[Look] = []
    for n, weight in zip(LOOKS, WEIGHTS, strict=True):
        if n > harms.shape[-1]:
            break
        now = estimate(harms[..., :n], a_first[:n])
        smallest_p = np.minimum(smallest_p, now.p / weight)
        p = sequential_p(smallest_p)
        reject = rejected(p)
        m = p.shape[-1]
        level = ALPHA * np.maximum(reject.sum(axis=-1, keepdims=True), 1) / m
        half = stats.t.isf(np.minimum(_nominal_level(level) * weight, 1.0) / 2, n - 2) * now.error
        low, high = now.harm - half, now.harm + half
        alone = float(_nominal_level(np.array(ALPHA))) * weight
        upper = now.harm + stats.t.isf(alone / 2, n - 2) * now.error
        found.append(
            Look(
                n_pairs=n,
                harm=now.harm,
                low=low,
                high=high,
                upper=upper,
                p=p,
                worse=reject & (low > 0) & (now.harm >= least),
                fine=upper < least,
            )
        )
    return tuple(found)


def decide(all_looks: Sequence[Look]) -> Look | None:
    """The first look at which some metric is worse or all are fine; else the last one. None without a look.

    For one run only: arrays of shape (n_metrics,). What comes after a decision is not looked at.
    """
    for look in all_looks:
        if look.worse.any() or look.fine.all():
            return look
    return all_looks[-1] if all_looks else None
