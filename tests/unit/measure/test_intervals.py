"""Confidence intervals: coverage, determinism, and what too little data gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.measure import statistics


@pytest.mark.parametrize("interval", [statistics.median_interval, statistics.mean_interval])
def test_fewer_than_two_samples_or_a_nan_give_no_interval(interval):
    assert interval([]) is None
    assert interval([1.0]) is None
    assert interval([1.0, math.nan, 2.0]) is None
    assert interval([1.0, math.inf]) is None


def test_equal_samples_give_a_point():
    assert statistics.median_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    assert statistics.mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_the_median_interval_is_within_the_samples_and_holds_the_median():
    samples = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]
    low, high = statistics.median_interval(samples)
    assert 10.0 <= low < 13.0 < high <= 16.0


def test_the_same_samples_give_the_same_interval():
    samples = [1.0, 3.0, 2.0, 5.0, 4.0]
    assert statistics.median_interval(samples) == statistics.median_interval(samples)


def test_samples_without_spread_in_the_jackknife_still_give_an_interval():
    assert statistics.median_interval([1.0, 1.0, 1.0, 1.0, 2.0]) == (1.0, 2.0)


def test_the_mean_interval_is_students():
    samples = [1.0, 2.0, 4.0]
    expected = stats.t.interval(0.95, 2, loc=np.mean(samples), scale=stats.sem(samples))
    assert statistics.mean_interval(samples) == pytest.approx(expected)


def test_the_median_interval_covers_the_true_median():
    """60 samples of 15 normal values: at 95 % the number of misses is binomial; more than 10 has p < 0.001."""
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(60):
        low, high = statistics.median_interval(rng.normal(100.0, 5.0, size=15).tolist())
        missed += not low <= 100.0 <= high
    assert missed <= 10


def test_the_ratio_interval_is_students_when_all_windows_are_equally_long():
    nll, reference = [20.0, 21.0, 24.0], [20.0, 20.0, 22.0]
    d = np.array([0.0, 1.0, 2.0]) / 10
    low, high = stats.t.interval(0.95, 2, loc=d.mean(), scale=stats.sem(d))
    found = statistics.perplexity_ratio_interval(nll, reference, [10, 10, 10])
    assert found == pytest.approx((math.exp(low), math.exp(high)))


def test_equal_scores_give_the_ratio_one():
    assert statistics.perplexity_ratio_interval([5.0, 6.0], [5.0, 6.0], [3, 4]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("nll", "reference", "n"),
    [([5.0], [5.0], [3]), ([5.0, math.nan], [5.0, 5.0], [3, 3]), ([], [], []), ([5.0, 5.0], [5.0, 5.0], [0, 0])],
)
def test_a_ratio_of_too_little_is_no_interval(nll, reference, n):
    assert statistics.perplexity_ratio_interval(nll, reference, n) is None
