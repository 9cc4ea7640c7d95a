"""Where the level of a series changes: found where planted, and not found where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from harness.measure.changepoint import block_medians, find_changes, fit_change, long_run_variance


def noise(rng, n_series, n, rho, sd=0.02):
    """AR(1) noise of standard deviation ``sd``, shape (n_series, n)."""
    steps = rng.normal(size=(n_series, n + 200)) * sd * np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], steps, axis=1)[:, 200:]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_flat_noise_hardly_ever_has_a_change(rho):
    """At most 1 % may; of 300 series more than 8 would be (p < 0.01)."""
    series = noise(np.random.default_rng(11), 300, 300, rho)
    assert sum(len(find_changes(values, smallest=0.03)) > 0 for values in series) <= 8


def test_the_long_run_variance_allows_for_correlation():
    """AR(1) of 0.5 with variance 1 has (1 + 0.5) / (1 - 0.5) = 3; the fit takes some of it away."""
    found = [long_run_variance(values) for values in noise(np.random.default_rng(6), 100, 1000, 0.5, sd=1.0)]
    assert np.median(found) == pytest.approx(3.0, rel=0.15)


def test_the_gain_is_what_the_fit_takes_off_the_sum_of_squares():
    values = np.array([0.0, 0.3, 0.1, 1.9, 2.2, 2.0])
    change, gain = fit_change(values, np.array([2]), np.array([3]))
    left, right = values[:3], values[3:]
    residual = ((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum()
    assert gain == pytest.approx(((values - values.mean()) ** 2).sum() - residual)
    assert (change.before, change.after) == pytest.approx((left.mean(), right.mean()))


def test_a_constant_series_has_no_change():
    assert find_changes(np.full(500, 3.0), smallest=0.0) == ()


def test_a_step_without_noise_is_found_exactly():
    (change,) = find_changes(np.r_[np.full(300, 1.0), np.full(200, 2.0)], smallest=0.1)
    assert (change.start, change.end) == (299, 300)
    assert (change.before, change.after) == pytest.approx((1.0, 2.0))


def test_a_ramp_without_noise_is_found_exactly():
    values = np.interp(np.arange(100), [30, 50], [0.0, 1.0])
    change, _ = fit_change(values, np.arange(99), np.arange(1, 100))
    assert (change.start, change.end) == (30, 50)
    assert (change.before, change.after) == pytest.approx((0.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_a_step_in_noise_is_found_within_five_percent(rho):
    rng = np.random.default_rng(5)
    for series in noise(rng, 30, 1000, rho):
        at = int(rng.integers(200, 700))
        changes = find_changes(series + 0.25 * (np.arange(1000) >= at), smallest=0.03)
        assert abs(changes[0].end - at) <= 0.05 * at
        assert changes[-1].after == pytest.approx(0.25, abs=0.02)


def test_a_level_that_returns_gives_both_changes():
    levels = np.repeat([0.0, 0.3, 0.0], 400)
    changes = find_changes(levels + noise(np.random.default_rng(2), 1, 1200, 0.5)[0], smallest=0.03)
    assert [change.end for change in changes] == pytest.approx([400, 800], abs=20)


def test_a_change_below_the_smallest_is_none():
    values = 0.02 * (np.arange(1000) >= 500) + noise(np.random.default_rng(1), 1, 1000, 0.0, sd=0.005)[0]
    assert find_changes(values, smallest=0.03) == ()
    assert len(find_changes(values, smallest=0.01)) == 1


def test_single_long_stalls_are_no_change():
    values = noise(np.random.default_rng(4), 1, 600, 0.0)[0]
    values[[100, 300, 301, 500]] += 3.0
    assert find_changes(values, smallest=0.03) == ()


def test_too_short_a_series_is_not_looked_at():
    assert find_changes(np.r_[np.zeros(127), np.ones(128)], smallest=0.1) == ()


def test_a_rest_that_fills_no_block_joins_the_last_one():
    assert block_medians(np.array([1.0, 1.0, 5.0, 5.0, 9.0]), 2).tolist() == [1.0, 5.0]
