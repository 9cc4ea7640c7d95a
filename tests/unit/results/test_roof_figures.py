"""Speed as a share of what memory and processor allow, from what each run carries itself."""

from __future__ import annotations

import dataclasses

import pytest

from harness.journal import Journal
from harness.record.run import Cell
from harness.record.vocabulary import Source, Status
from harness.results.derive import derive
from harness.results.gate import judge_journal, read_limits
from harness.soc import KvPrecision, Precision


def figures(runs):
    return {m.metric: m for m in derive(Journal(runs=tuple(runs)))}


def on(runs, part, precision=Precision.W8A16):
    cell = Cell(model="synthetic-llama", precision=precision, kv=KvPrecision.KV8, part=part)
    return [
        dataclasses.replace(run, source=Source.PHONE, cell=cell, log=dataclasses.replace(run.log, contexts=()))
        for run in runs
    ]


def test_the_share_is_of_the_bandwidth_of_its_own_run(make):
    """50 tokens/s (first and last repetition) of 10^9 bytes; runs of 62.5, 62.5 and 125 GB/s give 80, ... and 40 %."""
    one, two, three = make.with_bandwidth(make.three_runs("s", (20.0,) * 6), 62.5)
    found = figures([one, two, *make.with_bandwidth([three], 125.0)])
    assert found["decode_efficiency_percent"].samples == pytest.approx((80.0, 80.0, 80.0, 80.0, 40.0, 40.0))
    assert found["memory_gb_per_s"].samples == pytest.approx((62.5, 62.5, 125.0))


def test_a_run_without_a_bandwidth_has_no_share(make):
    assert "decode_efficiency_percent" not in figures(make.three_runs("s", make.STEADY))
    assert "memory_gb_per_s" not in figures(make.three_runs("s", make.STEADY))


def test_an_emulated_share_is_shown_and_judged_by_nothing(make, journals):
    runs = make.with_bandwidth(make.three_runs("s", make.STEADY, virtual=True), 62.5)
    found = figures(runs)["decode_efficiency_percent"]
    assert found.value == pytest.approx(80.0)
    assert "emulated" in found.refuted_by
    limits = read_limits(journals.parent / "limits_efficiency.toml")
    judged = judge_journal(Journal(sessions=(make.session("s"),), runs=tuple(runs)), limits)
    (verdict,) = [v for v in judged.verdicts if v.metric == "decode_efficiency_percent"]
    assert verdict.status is Status.INVALID


@pytest.mark.parametrize(("part", "gb_per_s"), [("SM8550", 60.0), ("SM8650", 62.5), ("SM8750", 70.0)])
def test_one_rule_serves_phones_of_every_soc(make, journals, part, gb_per_s):
    runs = on(make.with_bandwidth(make.three_runs("s", make.STEADY), gb_per_s), part)
    limits = read_limits(journals.parent / "limits_efficiency.toml")
    judged = judge_journal(Journal(sessions=(make.session("s"),), runs=tuple(runs)), limits)
    (verdict,) = [v for v in judged.verdicts if v.metric == "decode_efficiency_percent"]
    assert (verdict.status, verdict.value) == (Status.PASS, pytest.approx(100 * 50 / gb_per_s))


def test_a_decode_speed_that_the_peak_of_the_memory_cannot_feed_is_a_fault(make):
    """33.3 tokens/s of 3e9 bytes are 100 GB/s, of 76.8."""
    moved = dataclasses.replace(make.MOVED, weights=2_900_000_000)
    runs = [dataclasses.replace(run, moved=moved) for run in on(make.three_runs("s", make.SLOW), "SM8650")]
    (why,) = figures(runs)["decode_tps"].refuted_by
    assert why == "measurement_fault: more than 100 % of what the memory can move (130 % of the peak of SM8650)"
    unknown = [dataclasses.replace(run, moved=moved) for run in on(make.three_runs("s", make.SLOW), "SM8450")]
    assert figures(unknown)["decode_tps"].refuted_by == ()  # of this SoC no peak is known


def test_prefill_is_set_against_the_published_peak_where_there_is_one(make):
    """500 tokens/s of 13e9 operations are 6.5 of 26 TOPS: 25 %."""

    def found(part, precision=Precision.W8A16, operations=13_000_000_000):
        runs = on(make.three_runs("s", make.STEADY), part, precision)
        return figures([dataclasses.replace(r, operations_per_token=operations) for r in runs])[
            "prefill_efficiency_percent"
        ]

    assert found("SM8350").value == pytest.approx(25.0)
    assert found("SM8650").value is None
    assert found("SM8650").reason == "no peak of SM8650 is published for w8a16"
    assert found("SM8350", Precision.FP16).reason == "no peak of SM8350 is published for fp16"
    (why, *_) = found("SM8350", operations=53_000_000_000).refuted_by
    assert why.startswith("measurement_fault")
