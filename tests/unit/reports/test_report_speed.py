"""Speed over prompt length and depth, and the distribution of gaps: medians, intervals, n, why one is missing."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from harness.record.runner import LogitsFile
from harness.record.vocabulary import Source
from reports.speed import depth_charts, distribution_charts, prompt_charts

MS = 1_000_000


@pytest.fixture
def swept(journals):
    """A phone that was given prompts of 16, 64 and 256 tokens five times each: n/2 + 10 + r ms to the first token, the
    prefill 10 ms less; then 20 gaps of 10 ms, the last ten of 20 ms."""
    made = [
        journals.generation(
            prompt_id=f"p{n}",
            repetition=r,
            n_prompt=n,
            first_ms=n / 2 + 10 + r,
            gaps_ms=(10.0,) * 10 + (20.0,) * 10,
            start_ns=(5_000 + 1_000 * (5 * i + r)) * MS,
        )
        for i, n in enumerate((16, 64, 256))
        for r in range(5)
    ]
    warm = dataclasses.replace(made[0], warmup=True, prompt_id="warm", n_prompt=999)
    run = journals.run("run-s", journals.GEN3, source=Source.PHONE, serial="P1", generations=(warm, *made))
    return dataclasses.replace(journals.passing(), runs=(run,))


def test_time_to_first_token_over_prompt_length_is_the_median_with_its_interval_and_n(swept):
    drawn = prompt_charts(swept, hover_points=60)
    (chart,) = drawn.charts
    assert drawn.missing == ()
    ttft, prefill = (panel["series"][0] for panel in chart.data["panels"])
    assert ttft["x"] == [16, 64, 256]
    assert ttft["y"] == [20, 44, 140]
    assert ttft["n_each"] == [5, 5, 5]
    assert (ttft["low"][0], ttft["high"][0]) == (18, 22)
    assert prefill["y"][0] == pytest.approx(16 / 0.010, rel=1e-4)
    hover = chart.panels[0].series[0].points[0].hover
    assert hover == "time to first token: 20.0 ms at 16 tokens, 95 % 18.0 … 22.0, n = 5"
    assert "n = 15 repetitions of 3 prompt lengths" in chart.summary
    assert "BCa bootstrap" in chart.summary
    assert chart.panels[0].series[0].bars.count("M") == 6  # a bar is two strokes


def test_decode_over_depth_takes_one_speed_per_repetition_and_step(journals):
    """Depth 65 to 84 in steps of 2: 100 tokens/s in the first ten gaps, 50 in the last ten."""
    made = tuple(
        journals.generation(repetition=r, gaps_ms=(10.0,) * 10 + (20.0,) * 10, start_ns=(5_000 + 1_000 * r) * MS)
        for r in range(3)
    )
    journal = dataclasses.replace(journals.passing(), runs=(journals.run("run-d", generations=made),))
    (chart,) = depth_charts(journal, hover_points=60).charts
    (series,) = chart.data["panels"][0]["series"]
    assert series["x"] == [65.5, 67.5, 69.5, 71.5, 73.5, 75.5, 77.5, 79.5, 81.5, 83.5]
    assert series["y"] == pytest.approx([100] * 5 + [50] * 5)
    assert set(series["n_each"]) == {3}
    assert chart.emulated


def test_the_distribution_reaches_its_quantiles_and_names_no_interval(swept):
    """15 repetitions of ten gaps of 10 and ten of 20 ms: half of them are no longer than 10 ms."""
    (chart,) = distribution_charts(swept, hover_points=60).charts
    (series,) = chart.data["panels"][0]["series"]
    share = dict(zip(series["x"], series["y"], strict=True))
    assert share[10] == pytest.approx(50, abs=1)
    assert series["y"][-1] == 100
    assert "n = 300 gaps of 15 repetitions; p50 15.0, p90 20.0, p99 20.0, largest 20.0 ms" in chart.summary
    assert "No interval: gaps of one repetition are not independent." in chart.summary


def test_what_cannot_be_drawn_is_said_from_the_journal(journals):
    (why,) = prompt_charts(journals.passing(), hover_points=0).missing
    assert why.endswith("on vphone-1: all 3 repetitions have one prompt length, 64 tokens, and two are needed")
    empty = dataclasses.replace(journals.passing(), runs=())
    assert prompt_charts(empty, hover_points=0).missing == ("nothing ran: no prompt was timed",)
    lost = dataclasses.replace(journals.two_cells(), runs=journals.two_cells().runs[2:])
    assert depth_charts(lost, hover_points=0).missing == ("no run without an error (1 failed run)",)


def test_repetitions_that_wrote_logits_or_failed_are_no_speed(journals):
    journal = journals.passing()
    run = journal.runs[0]
    logits = LogitsFile(
        file="logits.bin", offset_bytes=0, n_rows=1, n_columns=1, dtype="float32", scale=None, zero_point=None,
        first_position=0,
    )  # fmt: skip
    log = dataclasses.replace(
        run.log, generations=tuple(dataclasses.replace(g, logits=logits) for g in run.log.generations)
    )
    journal = dataclasses.replace(journal, runs=(dataclasses.replace(run, log=log),))
    (why,) = prompt_charts(journal, hover_points=0).missing
    assert why.endswith("all are warm-ups, wrote logits, were paced or made no token")
    assert distribution_charts(journal, hover_points=0).charts == ()


def test_the_median_of_the_page_is_that_of_the_samples(swept):
    (chart,) = prompt_charts(swept, hover_points=60).charts
    samples = [(g.token_ns[0] - g.start_ns) / MS for g in swept.runs[0].log.generations if g.n_prompt == 64]
    assert chart.data["panels"][0]["series"][0]["y"][1] == statistics.median(samples)
