"""The benchmark of verdicts counts what it says it counts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.measure.paired import a_comes_first, arm_order

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("bench_verdicts", FOLDER / "verdicts.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def test_bounds_of_a_share_are_exact(bench):
    """No hit in 299: 0.99^299 is just under 5 %; all hits: the lower bound of 299 is 99 %."""
    assert bench.upper_bound(0, 299) == pytest.approx(1 - 0.05 ** (1 / 299))
    assert bench.upper_bound(0, 299) == pytest.approx(0.01, abs=1e-4)
    assert bench.lower_bound(299, 299) == pytest.approx(0.99, abs=1e-4)
    assert bench.upper_bound(5, 5) == 1.0


def test_harms_are_b_minus_a_whichever_came_first(bench):
    runs = np.array([[5.0 if arm == "B" else 2.0 for arm in arm_order(6)]])
    assert bench.pair_harms(runs).tolist() == [[3.0] * 6]


def test_outcomes_are_counted_once_each(bench):
    rng = np.random.default_rng(1)
    worse = 0.2 + 0.01 * rng.standard_normal((10, 2, 40))
    fine = 0.001 * rng.standard_normal((20, 2, 40))
    unclear = 0.5 * rng.standard_normal((30, 2, 40))
    found = bench.outcomes(np.concatenate([worse, fine, unclear]))
    assert (found["fail"], found["early"], found["pass"], found["inconclusive"]) == (10, 10, 20, 30)
    assert found["found"] >= 10


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_noise_has_the_deviation_and_correlation_it_names(bench, rho):
    noise = bench.ar1(np.random.default_rng(2), (400, 200), rho)
    assert noise.std() == pytest.approx(0.01, rel=0.05)
    assert np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())[0, 1] == pytest.approx(rho, abs=0.02)


def test_every_rule_scores_a_slower_candidate_higher(bench):
    rng = np.random.default_rng(3)
    same, slower = (bench.scores(rng, "AR(1) 0", 50, effect) for effect in (0.0, 0.10))
    for rule in bench.RULES:
        assert np.median(slower[rule]) > same[rule].max(), rule


def test_arms_of_the_rivals_run_one_after_the_other(bench):
    runs = np.arange(24.0)[None] ** 2
    assert bench.mean_difference(runs, runs, runs)[0] == pytest.approx(np.mean(runs[0, 12:]) - np.mean(runs[0, :12]))
    assert a_comes_first(bench.N_PAIRS).sum() == 6


def test_a_phone_that_never_throttles_is_measured_by_both_waits(bench):
    """Heat settles at once: 2 legs of 3 x 15 s and a start of 3 s; or 12 x 15 s of waiting and 5 x 15 s."""
    calm = bench.waits.Phone(
        celsius=np.full(1200, 40.0), constant_s=1.0, slower=0.0, knee_s=1e6, ramp_s=1.0, noise=np.zeros(99)
    )
    assert bench.waits.detected(calm) == pytest.approx((93.0, 0.0))
    assert bench.waits.fixed(calm) == pytest.approx((255.0, 0.0))


def test_the_error_of_a_wait_that_is_too_short_is_that_of_the_throttling(bench):
    """Half as fast from 300 s on: after 255 s nothing of it is seen."""
    late = bench.waits.Phone(
        celsius=30 + 0.05 * np.arange(1200.0), constant_s=1.0, slower=np.log(2), knee_s=300, ramp_s=1.0,
        noise=np.zeros(99),
    )  # fmt: skip
    assert bench.waits.fixed(late)[1] == pytest.approx(-np.log(2))
    assert bench.waits.detected(late)[1] == pytest.approx(0.0)


def test_the_page_is_written_with_the_seed_named(bench, tmp_path):
    out = tmp_path / "page.md"
    assert bench.main(["--scale", "0.0001", "--out", str(out)]) == 0
    page = out.read_text()
    digest, _ = bench.commit()
    assert digest[:16] in page
    for title in (
        "## No difference",
        "## A planted slow-down of 3 %",
        "## Against other rules",
        "## Change points",
        "## Until a",
    ):
        assert title in page
