"""Suites that the page knows nothing of find their place in it by the journal alone."""

from __future__ import annotations

import dataclasses

import pytest

from harness.measure.metrics import METRICS
from harness.record.run import RunError
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source, Status, Suite
from harness.results.derive import derive
from harness.results.gate import judge_journal
from reports.overview import overview
from reports.render import render_html
from reports.seed import startup_table
from reports.speed import depth_charts, prompt_charts
from reports.suites import suites_section

MS = 1_000_000
RSS = (300, 310, 320, 330)
"""MiB at the end of each round"""


@pytest.fixture
def endurance(journals):
    """Four rounds on a phone: gaps of 20, 20, 25 and 40 ms, memory that grows by 10 MiB a round; then a failed one."""
    rounds = []
    for place, gap in enumerate((20.0, 20.0, 25.0, 40.0)):
        made = tuple(journals.generation(repetition=r, warmup=r == 0, gaps_ms=(gap,) * 10) for r in range(3))
        run = journals.run(
            f"round-{place}", source=Source.PHONE, serial="P1", workload="endurance", generations=made, sensors=()
        )
        memory = tuple(
            dataclasses.replace(m, vm_hwm_bytes=RSS[place] * 2**20, vm_rss_bytes=None) for m in run.log.memory
        )
        rounds.append(dataclasses.replace(run, log=dataclasses.replace(run.log, memory=memory)))
    lost = RunError(status=Status.INFRA, kind="PhoneLostError", message="the phone went away")
    rounds.append(
        journals.run("round-4", source=Source.PHONE, serial="P1", workload="endurance", error=lost, sensors=())
    )
    return dataclasses.replace(journals.passing(), runs=tuple(rounds))


def measured(journal, metric: str, value: float | None, *, run_ids: tuple[str, ...], reason: str = "") -> Measurement:
    return Measurement(
        metric=metric,
        cell=journal.runs[0].cell,
        source=Source.PHONE,
        serial="P1",
        value=value,
        samples=() if value is None else (value,) * 3,
        interval=None if value is None else (value - 1, value + 1),
        run_ids=run_ids,
        reason=reason or None,
        refuted_by=(),
        error=None,
    )


def test_rounds_are_drawn_one_after_the_other_with_the_run_of_each(endurance) -> None:
    (chart,) = suites_section(endurance, (), {}, hover_points=60).charts
    decode, load, memory = chart.data["panels"]
    assert decode["series"][0]["y"] == [50, 50, 40, 25]
    assert load["series"][0]["y"] == [660] * 4
    assert memory["series"][0]["y"] == list(RSS)
    assert memory["series"][0]["run_ids"] == ["round-0", "round-1", "round-2", "round-3"]
    assert chart.panels[2].series[0].points[3].hover.endswith("330.0 MiB at run 4, run round-3")
    assert "endurance · P1" in chart.subtitle
    assert chart.summary.startswith("4 runs, first to last: decode, median of its repetitions 50.00 to 25.00 tok/s; ")


def test_two_runs_are_no_line(endurance) -> None:
    two = dataclasses.replace(endurance, runs=endurance.runs[:2])
    assert suites_section(two, (), {}, hover_points=0).charts == ()


def test_runs_of_two_artifacts_are_two_lines(endurance) -> None:
    other = tuple(
        dataclasses.replace(run, run_id=f"b-{run.run_id}", artifact_id="beef" * 4) for run in endurance.runs[:3]
    )
    both = dataclasses.replace(endurance, runs=(*endurance.runs, *other))
    charts = suites_section(both, (), {}, hover_points=0).charts
    assert [len(chart.data["panels"][0]["series"][0]["run_ids"]) for chart in charts] == [4, 3]


def test_a_figure_stands_under_the_workload_of_its_runs(endurance, journals) -> None:
    journal = dataclasses.replace(endurance, runs=(*endurance.runs, journals.run("smoke-1", workload="smoke")))
    figures = (
        measured(journal, "tokens_to_throttle", 400.0, run_ids=("round-0", "round-1")),
        measured(journal, "steady_decode_tps", None, run_ids=("smoke-1",), reason="too few gaps"),
        measured(journal, "ttft_ms", 5.0, run_ids=("smoke-1",)),
    )
    tables = {table.workload: table.rows for table in suites_section(journal, figures, {}, hover_points=0).tables}
    assert list(tables) == ["endurance", "smoke"]
    (row,) = tables["endurance"]
    assert (row.metric, row.figure.text, row.figure.interval, row.n) == ("tokens_to_throttle", "400", "399 … 401", 3)
    (row,) = tables["smoke"]
    assert (row.figure.text, row.figure.why) == ("not measured", "too few gaps")


def test_every_measured_metric_has_a_place_beside_the_verdict_table(endurance) -> None:
    """In any page, a figure that was measured can be found outside the list of verdicts."""
    figures = tuple(measured(endurance, name, 2.0, run_ids=("round-0",)) for name in METRICS)
    section = suites_section(endurance, figures, {}, hover_points=0)
    shown = {row.metric for table in section.tables for row in table.rows}
    assert {"steady_decode_tps", "peak_decode_tps", "tokens_to_throttle"} <= shown
    text = render_html(endurance, judge_journal(endurance, ()), figures)
    tables = text[text.index('<section id="accuracy"') :]
    missing = [
        name
        for name, metric in METRICS.items()
        if name not in shown and str(metric.family) not in ("accuracy", "placement")
        and f'title="{metric.definition[:40]}' not in tables.replace("&#39;", "'")
    ]  # fmt: skip
    assert missing == []


def test_the_page_of_an_unknown_suite_is_whole(endurance) -> None:
    text = render_html(endurance, judge_journal(endurance, ()), derive(endurance))
    section = text[text.index('<section id="suites"') : text.index('<section id="roofline"')]
    assert 'id="rounds-0"' in section
    assert "From run to run: not measured" not in section


def test_steps_that_were_held_back_are_no_speed(endurance, journals) -> None:
    run = endurance.runs[0]
    paced = tuple(dataclasses.replace(g, pace_ns=1) for g in run.log.generations)
    journal = dataclasses.replace(
        endurance, runs=(dataclasses.replace(run, log=dataclasses.replace(run.log, generations=paced)),)
    )
    assert depth_charts(endurance, hover_points=0).charts != ()
    assert depth_charts(journal, hover_points=0).charts == ()


def test_curves_never_pool_two_artifacts(swept_twice) -> None:
    charts = prompt_charts(swept_twice, hover_points=0).charts
    assert len(charts) == 2
    assert [chart.subtitle.rpartition(", ")[2] for chart in charts] == [
        f"artifact {swept_twice.runs[0].artifact_id}",
        f"artifact {'beef' * 4}",
    ]


@pytest.fixture
def swept_twice(journals):
    whole = journals.thorough()
    other = dataclasses.replace(whole.runs[0], run_id="run-other", artifact_id="beef" * 4)
    return dataclasses.replace(whole, runs=(*whole.runs, other))


def test_the_toy_graph_is_no_speed_of_the_model(journals) -> None:
    whole = journals.thorough()
    toy = dataclasses.replace(whole.runs[0], run_id="toy", workload=Suite.TOY, artifact_id="beef" * 4)
    both = dataclasses.replace(whole, runs=(toy, *whole.runs))
    (chart,) = prompt_charts(both, hover_points=0).charts
    assert chart.run_id == "run-t"


def test_the_article_is_set_beside_the_ordinary_runs(journals) -> None:
    """The ladder's runs come first in a session, and load a model of one layer or without verifying it."""
    run = journals.passing().runs[0]
    late = tuple(dataclasses.replace(p, end_ns=p.start_ns + 1) for p in run.log.phases)
    toy = dataclasses.replace(run, run_id="toy", workload=Suite.TOY, log=dataclasses.replace(run.log, phases=late))
    both = dataclasses.replace(journals.passing(), runs=(toy, run))
    shown = [f.run_ids for row in startup_table(both, derive(both)).rows for f in row.figures if f.run_ids]
    assert shown
    assert all("toy" not in ids for ids in shown)


def test_prompts_that_go_on_with_a_cached_text_are_no_prompt_lengths(journals) -> None:
    whole = journals.thorough()
    run = whole.runs[0]
    later = tuple(dataclasses.replace(g, n_cached=100) if g.n_prompt == 16 else g for g in run.log.generations)
    journal = dataclasses.replace(
        whole, runs=(dataclasses.replace(run, log=dataclasses.replace(run.log, generations=later)),)
    )
    lengths = [prompt_charts(j, hover_points=0).charts[0].data["panels"][0]["series"][0]["x"] for j in (whole, journal)]
    assert (16 in lengths[0], 16 in lengths[1]) == (True, False)


def test_the_toy_graph_is_not_what_was_tested(journals) -> None:
    whole = journals.passing()
    toy = dataclasses.replace(whole.runs[0], run_id="toy", workload=Suite.TOY, artifact_id="beef" * 4)
    for runs, artifacts in (((toy, *whole.runs), ["0123456789abcdef"]), ((toy,), ["beef" * 4])):
        journal = dataclasses.replace(whole, runs=runs)
        assert [t.artifact for t in overview(journal, judge_journal(journal, journals.LIMITS)).tested] == artifacts
