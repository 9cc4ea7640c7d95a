"""A against B: order, estimate, levels, and the three outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.measure import paired

ORDER = paired.a_comes_first(40)


def test_arms_alternate_in_balanced_blocks():
    assert paired.arm_order(8) == "ABBABAABBAABABBA"
    assert paired.a_comes_first(8).tolist() == [True, False, False, True, False, True, True, False]
    for n in paired.LOOKS:
        assert paired.a_comes_first(n).sum() == n // 2
        assert paired.arm_order(n).count("A") == n


def test_the_estimate_is_the_mean_and_its_error_is_that_of_two_groups():
    """A-first pairs 0.02 and 0.04, B-first pairs -0.01 and 0.01: group means 0.03 and 0, mean 0.015; sum of squares
    2e-4 + 2e-4 over 2 degrees of freedom is 2e-4; times (1/2 + 1/2) / 4 is 5e-5."""
    found = paired.estimate(np.array([0.02, -0.01, 0.01, 0.04]), np.array([True, False, False, True]))
    assert found.harm == pytest.approx(0.015)
    assert found.error == pytest.approx(math.sqrt(5e-5))


def test_a_drift_through_the_run_does_not_move_the_estimate():
    runs = 0.005 * np.arange(24)
    arms = paired.arm_order(12)
    harms = np.array([(runs[2 * i + 1] - runs[2 * i]) * (1 if arms[2 * i] == "A" else -1) for i in range(12)])
    found = paired.estimate(harms, ORDER[:12])
    assert found.harm == pytest.approx(0.0, abs=1e-12)
    assert found.error == pytest.approx(0.0, abs=1e-12)


def test_one_stalled_run_does_not_hide_a_difference():
    harms = 0.03 + 0.005 * np.random.default_rng(1).standard_normal(12)
    stalled = harms.copy()
    stalled[5] += 1.0
    assert paired.estimate(stalled, ORDER[:12]).harm == pytest.approx(0.03, abs=0.01)
    assert paired.looks(stalled[None], ORDER)[-1].worse.all()


def test_equal_runs_without_noise_have_no_p_value_to_fear():
    assert paired.looks(np.zeros((1, 12)), ORDER)[-1].p == 1.0
    assert paired.looks(np.full((1, 12), 0.02), ORDER)[-1].p == 0.0


def test_errors_of_metrics_that_are_alike_are_drawn_together():
    """Variances 1, 2 and 4 over 10 degrees of freedom: their logarithms vary by 0.48, chance alone gives trigamma(5) =
    0.2213, so d0 is at least 2 / 0.2591 = 7.72. The common variance is exp(mean of ln s^2 - digamma(5) + ln 5 +
    digamma(3.86) - ln 3.86) = 1.936; the first becomes (7.72 x 1.936 + 10) / 17.72 = 1.408."""
    error, freedom = paired.moderated(np.sqrt(np.array([1.0, 2.0, 4.0])), 10)
    assert freedom == pytest.approx([17.72], abs=0.01)
    assert np.square(error) == pytest.approx([1.408, 1.972, 3.101], abs=2e-3)


def test_equal_errors_say_at_most_three_times_what_one_says():
    error, freedom = paired.moderated(np.full(6, 0.5), 10)
    assert freedom == [30.0]
    assert error == pytest.approx(np.full(6, 0.5), rel=0.05)


def test_metrics_of_unlike_noise_keep_their_own_errors():
    errors = np.array([0.01, 0.1, 1.0, 10.0])
    error, freedom = paired.moderated(errors, 10)
    assert error == pytest.approx(errors, rel=0.1)
    assert freedom[0] < 10.5
    for few in (np.array([1.0, 2.0]), np.array([1.0, 2.0, 0.0])):
        error, freedom = paired.moderated(few, 10)
        assert error.tolist() == few.tolist()
        assert freedom == [10.0]


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_false_fails_stay_below_what_may_be_spent_however_strong_the_noise(scale):
    """4000 runs of six equal metrics: half of ALPHA is 0.48 %, 19 runs, give or take 3 x 4.4."""
    paths = 0.014 * scale * np.random.default_rng(77).standard_normal((4000, 6, 40))
    failed = np.zeros(len(paths), bool)
    for look in paired.looks(paths, ORDER):
        failed |= look.worse.any(axis=-1)
    assert failed.sum() <= 32


def test_a_precise_comparison_is_given_an_interval_of_95_percent():
    """40 pairs of 0.1 %: the standard error is 63 times smaller than the smallest effect; of 10 %, larger than it."""
    noise = np.random.default_rng(5).standard_normal((1, 40))
    for sd, spent in ((0.001, paired.SPENT_PRECISE[-1]), (0.1, paired.SPENT[-1])):
        look = paired.looks(sd * noise, ORDER)[-1]
        error = paired.estimate(sd * noise, ORDER).error
        assert (look.high - look.low) / 2 == pytest.approx(stats.t.isf(spent / 2, 38) * error)


def test_what_looks_spend_is_what_the_levels_say():
    assert sum(paired.SPENT) == pytest.approx(paired.ALPHA)
    assert paired.ALPHA < 0.01
    assert sum(paired.SPENT_PRECISE) == pytest.approx(0.05)
    assert sum(paired.SPENT_ON_PASS) == pytest.approx(0.014)
    assert all(precise >= noisy for precise, noisy in zip(paired.SPENT_PRECISE, paired.SPENT, strict=True))


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.01, 0.02, 0.03, 0.9], [True, True, True, False]),
        ([0.02, 0.02, 0.9, 0.9], [True, True, False, False]),
        ([0.03, 0.9, 0.9, 0.9], [False] * 4),
        ([0.04, 0.04, 0.04, 0.04], [True] * 4),
    ],
)
def test_several_metrics_go_through_the_step_up_rule(p, expected):
    """alpha 0.04 over 4 metrics: thresholds 0.01, 0.02, 0.03, 0.04."""
    assert paired.rejected(np.array(p), alpha=0.04).tolist() == expected


def harms(level, noise, n_metrics=1, seed=3):
    return level + noise * np.random.default_rng(seed).standard_normal((n_metrics, 40))


def test_a_large_harm_is_worse_at_the_first_look():
    look = paired.decide(paired.looks(harms(0.2, 0.01), ORDER))
    assert look.n_pairs == 8
    assert look.worse.all()


def test_no_harm_is_fine_once_the_bound_is_below_the_smallest_effect():
    look = paired.decide(paired.looks(harms(0.0, 0.005), ORDER))
    assert look.fine.all()
    assert look.upper[0] < math.log1p(0.01)


def test_a_harm_below_the_smallest_effect_is_never_worse():
    """0.5 % with hardly any noise: the interval excludes 0, and nobody has to care."""
    look = paired.decide(paired.looks(harms(0.005, 0.0005), ORDER))
    assert look.low[0] > 0
    assert not look.worse.any()
    assert look.fine.all()


def test_where_the_smallest_effect_lies_inside_the_interval_nothing_is_decided():
    look = paired.looks(harms(0.004, 0.02), ORDER)[0]
    assert look.low[0] < math.log1p(0.01) < look.upper[0]
    assert not look.worse.any()
    assert not look.fine.any()


def test_a_gain_is_fine_and_not_worse():
    look = paired.decide(paired.looks(harms(-0.1, 0.01), ORDER))
    assert look.fine.all()
    assert not look.worse.any()
    assert look.high[0] < 0


def test_an_interval_excludes_zero_exactly_where_the_rule_rejects_at_one_look():
    n_rejected = 0
    for seed in range(200):
        (look,) = paired.looks(harms(0.015, 0.01, n_metrics=6, seed=seed)[:, :8], ORDER)
        assert ((look.low > 0) | (look.high < 0)).tolist() == paired.rejected(look.p).tolist()
        n_rejected += int(paired.rejected(look.p).sum())
    assert n_rejected >= 5


def test_fewer_pairs_than_the_first_look_decide_nothing():
    assert paired.looks(harms(0.5, 0.01)[:, :7], ORDER) == ()
    assert paired.decide(()) is None


def test_runs_of_a_simulation_are_judged_alike_alone_and_together():
    data = np.stack([harms(0.01, 0.01, n_metrics=3, seed=s) for s in range(5)])
    together = paired.looks(data, ORDER)
    for i in range(5):
        for all_runs, alone in zip(together, paired.looks(data[i], ORDER), strict=True):
            assert np.array_equal(all_runs.worse[i], alone.worse)
            assert all_runs.p[i] == pytest.approx(alone.p)
