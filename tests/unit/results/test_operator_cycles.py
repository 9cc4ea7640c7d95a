"""Cycles of operators, from profiles built by hand; and what a profiled run does not touch."""

from __future__ import annotations

import dataclasses

import pytest

from harness.journal import Journal
from harness.record.runner import Profile, ProfileEvent
from harness.record.vocabulary import Suite
from harness.results.derive import derive
from harness.results.operators import operators_of
from reports.operators import SHOWN, operator_tables


def event(name, value, *, kind=404, unit="cycles", depth=1):
    return ProfileEvent(name=name, type=kind, unit=unit, value=value, depth=depth)


def profile(graph, position, cycles, *, repetition=0, warmup=False):
    whole = event("Accelerator (execute) time (cycles)", 999, kind=3003, depth=0)
    events = (whole, event("yields", 3, kind=3009, unit="count", depth=0), *(event(*item) for item in cycles))
    return Profile(
        prompt_id="long", repetition=repetition, warmup=warmup, graph=graph, level="detailed", position=position,
        events=events,
    )  # fmt: skip


def profiled(make, profiles):
    """Prompts of 64 tokens: what begins at 64 or later is a decode step."""
    run = make.three_runs("s", make.STEADY)[0]
    generations = tuple(g for g in run.log.generations if g.prompt_id == "long")
    log = dataclasses.replace(run.log, profiles=tuple(profiles), generations=generations)
    return dataclasses.replace(run, run_id="profiled", workload=str(Suite.OPERATORS), log=log)


PROFILES = (
    profile("ar64", 0, [("a", 10_000), ("b", 1)], warmup=True),
    profile("ar64", 0, [("a", 300), ("b", 100)]),
    profile("ar1", 70, [("a", 30), ("b", 50), ("a", 20)]),
    profile("ar64", 0, [("a", 500), ("b", 100)], repetition=1),
    profile("ar1", 70, [("a", 70), ("b", 50)], repetition=1),
)


def test_the_dearest_operator_of_each_graph_comes_first():
    """ar64: medians 400 and 100 of 500. ar1: 60 (50 and 70) and 50."""
    found = [(o.graph, o.operator, o.cycles, round(o.share, 3)) for o in operators_of(PROFILES)]
    assert found == [
        ("ar64", "a", 400.0, 0.8),
        ("ar64", "b", 100.0, 0.2),
        ("ar1", "a", 60.0, 0.545),
        ("ar1", "b", 50.0, 0.455),
    ]


def test_sums_of_a_chunk_and_of_a_step_are_void_as_a_speed(make):
    """Chunks 400 and 600 cycles, steps 100 and 120; neither execution as a whole nor counts are operators."""
    found = {m.metric: m for m in derive(Journal(runs=(profiled(make, PROFILES),)))}
    assert found["prefill_cycles"].samples == (400.0, 600.0)
    assert found["decode_cycles"].value == pytest.approx(110.0)
    assert any(why.startswith("observer_effect") for why in found["decode_cycles"].refuted_by)


def test_a_profiled_run_gives_no_other_figure_and_voids_none(make):
    runs = make.three_runs("s", make.STEADY)
    alone = {m.metric: m for m in derive(Journal(runs=tuple(runs)))}
    beside = {m.metric: m for m in derive(Journal(runs=(*runs, profiled(make, PROFILES))))}
    for metric in ("load_ms", "decode_tps", "peak_rss_bytes", "peak_npu_celsius"):
        assert beside[metric] == alone[metric], metric


def test_a_library_that_counts_no_cycles_leaves_a_reason(make):
    run = profiled(make, [profile("ar1", 70, [])])
    found = {m.metric: m for m in derive(Journal(runs=(run,)))}
    assert found["decode_cycles"].value is None
    assert found["decode_cycles"].reason == "the library counted no cycles of operators"


def test_the_report_has_a_table_for_each_graph_and_sums_the_rest(make):
    many = profile("ar1", 70, [(f"op{i:02}", 100 - i) for i in range(SHOWN + 2)])
    first, second = operator_tables(Journal(runs=(profiled(make, [many, PROFILES[1]]),)))
    assert "ar64" in first.title
    assert (first.rows[0].operator, first.rows[0].cycles, first.rows[0].share) == ("a", "300", "75.0")
    assert second.rows[-1].operator == "2 other operators"
    assert second.rows[-1].cycles == str(100 - SHOWN + 100 - SHOWN - 1)
