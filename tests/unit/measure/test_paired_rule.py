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
    assert found.p == pytest.approx(2 * stats.t.sf(0.015 / math.sqrt(5e-5), 2))


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
    found = paired.estimate(np.zeros(12), ORDER[:12])
    assert found.p == 1.0
    assert paired.estimate(np.full(12, 0.02), ORDER[:12]).p == 0.0


def test_the_sequential_level_is_that_of_the_simulated_null():
    """Of 20 000 paths with no difference, 1 % have a sequential p-value up to 0.01: 200, give or take 3 x 14."""
    paths = np.random.default_rng(77).standard_normal((20_000, 40))
    smallest = np.full(len(paths), np.inf)
    for n, weight in zip(paired.LOOKS, paired.WEIGHTS, strict=True):
        smallest = np.minimum(smallest, paired.estimate(paths[:, :n], ORDER[:n]).p / weight)
    assert abs((paired.sequential_p(smallest) <= 0.01).sum() - 200) <= 43


def test_weights_are_shares():
    assert sum(paired.WEIGHTS) == pytest.approx(1.0)
    assert len(paired.WEIGHTS) == len(paired.LOOKS)


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
        (look,) = paired.looks(harms(0.01, 0.01, n_metrics=6, seed=seed)[:, :8], ORDER)
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
