"""The tidy tables that reports are made of."""

from __future__ import annotations

import math

import pytest

from harness.journal import Journal
from harness.results import frames
from harness.results.derive import derive
from harness.results.gate import judge_journal


@pytest.fixture
def journal(make):
    return Journal(runs=tuple(make.three_runs("s", make.STEADY)))


def test_an_empty_journal_gives_empty_tables_with_all_columns():
    for name in ("runs", "generations", "tokens", "sensors", "phases", "positions", "windows"):
        frame = getattr(frames, f"{name}_frame")(Journal())
        assert len(frame) == 0
        assert "run_id" in frame.columns
    assert "value" in frames.measurements_frame([]).columns
    assert "status" in frames.verdicts_frame([]).columns


def test_one_row_per_run_generation_and_token(journal):
    assert list(frames.runs_frame(journal)["run_id"]) == ["s-0", "s-1", "s-2"]
    assert len(frames.generations_frame(journal)) == 3 * 4
    assert len(frames.tokens_frame(journal)) == 3 * 4 * 33


def test_the_gaps_of_the_token_table_add_up_to_the_generation(journal):
    tokens = frames.tokens_frame(journal)
    first = tokens[(tokens.run_id == "s-0") & (tokens.prompt_id == "long") & ~tokens.warmup & (tokens.repetition == 0)]
    assert first["elapsed_ms"].iloc[0] == pytest.approx(130.0)
    assert math.isnan(first["itl_ms"].iloc[0])
    assert first["itl_ms"].sum() == pytest.approx(32 * 20.0)
    assert list(first["position"])[:2] == [64, 65]


def test_sensor_rows_count_seconds_from_the_runner_start(journal):
    table = frames.sensors_frame(journal)
    npu = table[(table.run_id == "s-0") & (table.domain == "npu")]
    assert list(npu["elapsed_s"])[:3] == [0.0, 1.0, 2.0]
    assert list(npu["value"])[:3] == [40.0, 40.5, 41.0]


def test_phases_start_at_zero_and_follow_each_other(journal):
    table = frames.phases_frame(journal)
    one = table[table.run_id == "s-0"]
    assert one["start_ms"].iloc[0] == 0.0
    assert one["duration_ms"].sum() == pytest.approx(2400.0)


def test_measurements_and_verdicts_carry_unit_interval_and_runs(journal):
    table = frames.measurements_frame(derive(journal)).set_index("metric")
    assert table.loc["decode_tps", "unit"] == "tokens/s"
    assert table.loc["decode_tps", "ci_low"] <= 50.0 <= table.loc["decode_tps", "ci_high"]
    assert table.loc["decode_tps", "run_ids"] == ("s-0", "s-1", "s-2")
    assert table.loc["decode_tps", "soc"] == "Snapdragon 8 Gen 3"
    verdicts = frames.verdicts_frame(judge_journal(journal, []).verdicts).set_index("metric")
    assert verdicts.loc["decode_tps", "status"] == "NOT_COVERED"
    assert verdicts.loc["decode_tps", "limit_minimum"] is None
