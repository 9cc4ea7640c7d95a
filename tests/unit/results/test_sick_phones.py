"""A sick phone among healthy ones, by numbers that can be followed by hand."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

from harness.journal import Journal
from harness.record.baseline import Baseline, BaselineFigure
from harness.record.run import Cell
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source, Suite
from harness.results.derive import derive
from harness.results.findings import find
from harness.results.phones import phone_health
from harness.soc import KvPrecision, Precision

CELL = Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")


@pytest.fixture(scope="module")
def make():
    path = Path(__file__).parents[2] / "data" / "make_journals.py"
    spec = importlib.util.spec_from_file_location("make_journals_for_canaries", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def canary(serial, value, *, metric="canary_tps", source=Source.PHONE, refuted=()):
    return Measurement(
        metric=metric, cell=CELL, source=source, serial=serial, value=value, samples=(value,), interval=None,
        run_ids=(f"run of {serial}",), reason=None, refuted_by=refuted, error=None,
    )  # fmt: skip


def stored(serial, values, *, source=Source.PHONE, at="2026-01-01T00:00:00+00:00"):
    figure = BaselineFigure(
        metric="canary_tps", cell=CELL, source=source, serial=serial, samples=tuple(values), run_ids=("r",), identity={}
    )
    return Baseline(
        schema="snapgate.baseline/1", reason="x", measured_at=at, promoted_at=at, session_ids=("s",), figures=(figure,)
    )


def sick(measurements, *baselines):
    return [phone.serial for phone in phone_health(Journal(baselines=baselines), measurements) if phone.is_sick]


def test_the_slow_one_of_four_is_sick_and_the_evidence_says_beside_whom():
    """Others of D: 1000, 1010, 990; median 1000; distances 0, 1, 1 %: spread 1.4826 % or so. 850 is 15 % below."""
    phones = [canary("A", 1000.0), canary("B", 1010.0), canary("C", 990.0), canary("D", 850.0)]
    found = {phone.serial: phone for phone in phone_health(Journal(), phones)}
    assert found["D"].others_median == pytest.approx(1000.0)
    assert found["D"].below_others_percent == pytest.approx(15.0)
    assert found["D"].others_spread_percent == pytest.approx(1.49, abs=0.02)
    assert sick(phones) == ["D"]
    (finding,) = find(Journal(), phones)
    assert (finding.rule, finding.where, finding.run_ids) == ("sick_phone", "D", ("run of D",))
    assert "other phones with SM8650: median 1000, spread 1.5 %; this one +15.0 % below it" in finding.evidence


def test_phones_that_differ_much_among_themselves_make_no_one_sick():
    """Others of D: 1000, 1300, 760: distances 26 and 27 %, spread 48 %: 15 % below the median is nothing."""
    assert sick([canary("A", 1000.0), canary("B", 1300.0), canary("C", 760.0), canary("D", 850.0)]) == []


@pytest.mark.parametrize(("value", "expected"), [(901.0, []), (899.0, ["D"])])
def test_a_tenth_is_the_least_that_counts(value, expected):
    assert sick([canary("A", 1000.0), canary("B", 1000.0), canary("C", 1000.0), canary("D", value)]) == expected


def test_of_two_phones_nobody_can_say_which_is_the_odd_one():
    assert sick([canary("A", 1000.0), canary("B", 500.0)]) == []


def test_a_phone_is_held_against_its_own_baseline_the_newest():
    older, newer = stored("A", [2000.0]), stored("A", [1000.0, 1010.0, 990.0], at="2026-02-01T00:00:00+00:00")
    assert sick([canary("A", 920.0)], older, newer) == []
    assert sick([canary("A", 880.0)], older, newer) == ["A"]
    assert sick([canary("A", 880.0)], stored("B", [1000.0])) == []
    assert sick([canary("A", 880.0)], stored("A", [1000.0], source=Source.VIRTUAL)) == []


def test_emulated_and_refuted_figures_say_nothing():
    healthy = [canary("A", 1000.0), canary("B", 1000.0), canary("C", 1000.0)]
    assert sick([*healthy, canary("D", 500.0, source=Source.VIRTUAL)]) == []
    assert sick([*healthy, canary("D", 500.0, refuted=("throttled start",))]) == []
    assert sick([*healthy, canary("D", 500.0, metric="decode_tps")]) == []


def test_the_bandwidth_of_the_memory_counts_apart():
    phones = [canary(serial, 60.0, metric="memory_gb_per_s") for serial in "ABC"]
    assert sick([*phones, canary("D", 40.0, metric="memory_gb_per_s"), canary("D", 1000.0)]) == ["D"]


def test_the_canary_is_the_decode_speed_of_the_toy_graph_and_of_nothing_else(make):
    runs = make.three_runs("s", make.STEADY)
    of_model = {m.metric: m for m in derive(Journal(runs=tuple(runs)))}
    assert "canary_tps" not in of_model
    toys = tuple(dataclasses.replace(run, workload=Suite.TOY) for run in runs)
    of_toy = {m.metric: m for m in derive(Journal(runs=toys))}
    assert of_toy["canary_tps"].value == of_model["decode_tps"].value
    assert "decode_tps" not in of_toy
