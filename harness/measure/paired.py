"""A against B in one run: paired, interleaved, judged at a few looks, several metrics at once.

Arms alternate on one phone in the order of ``arm_order``: ABBA BAAB ... A pair is an A and a B next to each other; its
*harm* is ln(B / A), signed so that positive is worse. Drift over a pair cancels between pairs that begin with A and
pairs that begin with B, so the estimate is the mean of the two groups' means, and noise is taken around each group's
own level. An outlier is drawn in to its side of its group's median: it counts, but not by its size.

A dozen pairs say little about their own noise, several metrics together say more: each metric's variance is drawn
towards what the metrics have in common, the further the more alike they are (``moderated``).

After each number of pairs in ``LOOKS`` the data may be judged, and each look may spend a part of the error
(Bonferroni over looks). Most goes to the look at 12 pairs, where a harm of a few percent shows, and to the last. Over
several metrics the p-values go through Benjamini and Hochberg's step-up rule, which holds for metrics that are
independent or move together. Intervals have the same level as the decision.

FAIL needs an interval that excludes 0 and an estimate of at least the smallest effect. Where the standard error is
small against that effect (``PRECISE``), the second alone holds false FAILs back, so there the interval has 95 %;
where it is not, only the interval does, and ``ALPHA`` is what it may err.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

LOOKS: Final = (8, 12, 20, 28, 40)
"""Pairs after which a decision may fall; the last is the budget."""
SPENT: Final = (0.0012, 0.0062, 0.0003, 0.0005, 0.0018)
"""Two-sided error of each look, over all metrics; one half of it is what false FAILs may take."""
ALPHA: Final = sum(SPENT)
SPENT_PRECISE: Final = (0.0012, 0.0062, 0.0003, 0.0005, 0.0418)
"""The same where the standard error is small against the smallest effect: 5 % together"""
PRECISE: Final = 3.5
"""So many standard errors make up the smallest effect: a chance estimate reaches it once in 4300 times."""
SPENT_ON_PASS: Final = (0.0003, 0.0046, 0.0004, 0.0004, 0.0083)
"""Two-sided; one half of it is what a PASS of a harm of the smallest effect may take."""
SMALLEST_EFFECT: Final = 0.01
"""Relative. A smaller harm is nobody's concern."""
_DRAWN_IN: Final = 3.0
"""Robust standard deviations to which an outlier is drawn in"""
_PRIOR: Final = 2.0
"""What metrics say together counts at most so many times what one says itself."""
_WIDER: Final = (1.31, 1.06, 1.01, 1.01, 1.0)
"""By how much drawing in understates the noise at each look: quantile of |t| at the level of one of six metrics, over
Student's. Simulated by ``benchmarks/calibrate_paired.py``."""

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


def _fence(n_pairs: int) -> float:
    """Robust standard deviations beyond which a pair is an outlier. A few pairs know their own spread poorly."""
    return max(7.0, 44.0 - 3.0 * n_pairs)


def estimate(harms: Array, a_first: NDArray[np.bool_]) -> Estimate:
    """``harms``: (..., n_pairs). Both orders have to occur at least twice."""
    groups = [harms[..., a_first], harms[..., ~a_first]]
    medians = [np.median(group, axis=-1, keepdims=True) for group in groups]
    away = np.concatenate([group - median for group, median in zip(groups, medians, strict=True)], axis=-1)
    n = harms.shape[-1]
    deviation = 1.4826 * np.median(np.abs(away), axis=-1, keepdims=True) * np.sqrt(n / (n - 2))
    tame = [
        np.where(
            np.abs(group - median) > _fence(n) * deviation,
            median + _DRAWN_IN * deviation * np.sign(group - median),
            group,
        )
        for group, median in zip(groups, medians, strict=True)
    ]
    means = [group.mean(axis=-1) for group in tame]
    squares = sum(np.square(group - mean[..., None]).sum(axis=-1) for group, mean in zip(tame, means, strict=True))
    error = np.sqrt(squares / (n - 2) * sum(1 / group.shape[-1] for group in groups) / 4)
    return Estimate(harm=(means[0] + means[1]) / 2, error=error)


def moderated(errors: Array, freedom: int) -> tuple[Array, Array]:
    """Standard errors (..., n_metrics) drawn towards each other, and their degrees of freedom (..., 1).

    Empirical Bayes: variances are taken to be a common one times a scaled inverse chi-square, whose degrees of freedom
    d0 come from the spread of their logarithms (Smyth 2004, 10.2202/1544-6115.1027, section 6.2); the posterior mean
    has ``freedom`` + d0. d0 is held to twice ``freedom``: a handful of metrics cannot show that they are all alike.
    Metrics of unlike noise have a small d0 and keep their own errors; so do fewer than three, or any without noise.
    """
    m = errors.shape[-1]
    none = np.full((*errors.shape[:-1], 1), float(freedom))
    if m < 3:
        return errors, none
    with np.errstate(divide="ignore", invalid="ignore"):
        z = 2 * np.log(errors) - special.digamma(freedom / 2) + np.log(freedom / 2)
        spread = z.var(axis=-1, ddof=1, keepdims=True) - special.polygamma(1, freedom / 2)
    usable = np.isfinite(spread)
    # trigamma(x) lies between 1/x and 1/x + 1/x^2, so this is at most the d0 of Smyth
    with np.errstate(divide="ignore", invalid="ignore"):
        prior = np.where(spread > 0, 2 / spread, np.inf)
    prior = np.where(usable, np.minimum(prior, _PRIOR * freedom), 0.0)
    safe = np.maximum(prior, 1e-6)
    with np.errstate(invalid="ignore"):
        common = np.exp(z.mean(axis=-1, keepdims=True) + special.digamma(safe / 2) - np.log(safe / 2))
    common = np.where(usable & (prior > 0), common, 0.0)
    return np.sqrt((prior * common + freedom * np.square(errors)) / (prior + freedom)), none + prior


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
    """Sequential p-value; ``ALPHA`` is its level"""
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
    p: Array = np.ones_like(harms[..., 0])
    found: list[Look] = []
    for n, noisy, precise, on_pass, wider in zip(LOOKS, SPENT, SPENT_PRECISE, SPENT_ON_PASS, _WIDER, strict=True):
        if n > harms.shape[-1]:
            break
        now = estimate(harms[..., :n], a_first[:n])
        error, freedom = moderated(now.error * wider, n - 2)
        spent = np.where(least >= PRECISE * error, precise, noisy)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(error > 0, np.abs(now.harm) / error, np.where(now.harm == 0, 0.0, np.inf))
        p = np.minimum(p, 2 * stats.t.sf(t, freedom) * ALPHA / spent)
        reject = rejected(p)
        share = np.maximum(reject.sum(axis=-1, keepdims=True), 1) / p.shape[-1]
        half = stats.t.isf(spent * share / 2, freedom) * error
        upper = now.harm + stats.t.isf(on_pass / 2, freedom) * error
        low = now.harm - half
        found.append(
            Look(
                n_pairs=n,
                harm=now.harm,
                low=low,
                high=now.harm + half,
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
