"""Peak, steady and throttled speed as figures of a journal."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest

from harness.journal import Journal
from harness.record.run import SensorSeries
from harness.results.derive import derive
from harness.results.summary import summary

MS = 1_000_000


def run_of(make, run_id, gaps_ms, *, celsius=None):
    """A run with one repetition of the given gaps; ``celsius`` is read once a second from its start on."""
    generation = make.generation(random.Random(1), tokens=[5 + i % 90 for i in range(len(gaps_ms) + 1)])
    at = [generation.token_ns[0]]
    for i, gap in enumerate(gaps_ms):
        at.append(at[-1] + int(gap * MS) + (i * 7919 % 101 - 50) * 2000)
    generation = dataclasses.replace(generation, token_ns=tuple(at), end_ns=at[-1] + MS)
    record = make.run_record(run_id, make.runner_log(run_id, [generation]))
    if celsius is None:
        return dataclasses.replace(record, sensors=())
    stamps = tuple(generation.start_ns + i * 1000 * MS for i in range(len(celsius)))
    sensor = SensorSeries(
        name="t", domain="skin", unit="celsius", state="ok", monotonic_ns=stamps, values=tuple(celsius)
    )
    return dataclasses.replace(record, sensors=(sensor,))


def figures(*runs):
    return {m.metric: m for m in derive(Journal(runs=runs))}


def test_a_throttled_repetition_has_a_peak_and_its_tokens(make):
    found = figures(run_of(make, "r", [20.0] * 500 + [40.0] * 500, celsius=[30.0 + i for i in range(31)]))
    assert found["peak_decode_tps"].value == pytest.approx(50.0, rel=0.01)
    assert found["tokens_to_throttle"].value == pytest.approx(501, abs=5)
    assert found["steady_decode_tps"].value is None
    assert "had not settled" in found["steady_decode_tps"].reason


def test_a_repetition_that_never_throttles_counts_with_all_its_tokens(make):
    hot = run_of(make, "hot", [20.0] * 500 + [40.0] * 500, celsius=[30.0 + i for i in range(31)])
    cool = run_of(make, "cool", [20.0] * 1000, celsius=[30.0] * 21)
    assert sorted(figures(hot, cool)["tokens_to_throttle"].samples) == pytest.approx([501, 1001], abs=5)


def test_without_throttling_there_is_no_figure_and_a_reason(make):
    found = figures(run_of(make, "r", [20.0] * 300))
    assert found["tokens_to_throttle"].value is None
    assert found["tokens_to_throttle"].reason == "no throttling within 301 tokens"
    assert found["steady_decode_tps"].value == pytest.approx(50.0, rel=0.005)


def test_short_generations_have_none_of_the_three(make):
    assert not {"peak_decode_tps", "steady_decode_tps", "tokens_to_throttle"} & set(
        figures(run_of(make, "r", [20.0] * 40))
    )


def test_recompute_shows_the_windows(make):
    run = run_of(make, "r", [40.0] * 200 + [20.0] * 300)
    rows = json.loads(summary(Journal(runs=(run,)), what="conditions", form="json"))["rows"]
    assert [row["condition"] for row in rows] == ["cold", "steady"]
    assert rows[0]["last_token"] == rows[1]["first_token"] == pytest.approx(200, abs=3)
