"""Times and rates from raw stamps."""

from __future__ import annotations

import dataclasses
import random

import pytest

from harness.measure.timing import comparable_repetitions, load_phase_ms, load_total_ms, timing_of
from harness.record.runner import LogitsFile, Phase, PrefillChunk

MS = 1_000_000


@pytest.fixture
def generation(make):
    """Starts at 1000 ms; two chunks of 64 and 36 real tokens until 1050 ms; tokens at 1060, 1080, 1090, 1120 ms."""
    base = make.generation(random.Random(0), start_ns=1000 * MS)
    return dataclasses.replace(
        base,
        n_prompt=100,
        prefill=(
            PrefillChunk(n_tokens=64, n_graph_tokens=64, start_ns=1000 * MS, end_ns=1020 * MS),
            PrefillChunk(n_tokens=36, n_graph_tokens=64, start_ns=1025 * MS, end_ns=1050 * MS),
        ),
        token_ns=(1060 * MS, 1080 * MS, 1090 * MS, 1120 * MS),
        token_ids=(1, 2, 3, 4),
        argmax_ids=(1, 2, 3, 4),
        end_ns=1121 * MS,
    )


def test_each_figure_by_hand(generation):
    t = timing_of(generation)
    assert t.ttft_ms == 60.0
    assert t.prefill_ms == 50.0
    assert t.prefill_tps == pytest.approx(2000.0)  # 100 real tokens in 50 ms; the padding of the last chunk is no work
    assert t.itl_ms == (20.0, 10.0, 30.0)
    assert t.tpot_ms == pytest.approx(20.0)
    assert t.decode_tps == pytest.approx(50.0)  # 3 tokens in 60 ms: the first token belongs to prefill
    assert t.itl_quantile_ms(0.5) == 20.0
    assert t.itl_quantile_ms(0.9) == pytest.approx(28.0)
    assert t.itl_quantile_ms(1.0) == 30.0


def test_what_cannot_be_computed_is_none_and_not_zero(generation):
    nothing = timing_of(dataclasses.replace(generation, token_ns=(), prefill=()))
    assert (nothing.ttft_ms, nothing.prefill_tps, nothing.decode_tps, nothing.tpot_ms) == (None, None, None, None)
    assert nothing.itl_quantile_ms(0.5) is None
    single = timing_of(dataclasses.replace(generation, token_ns=(1060 * MS,)))
    assert (single.ttft_ms, single.decode_tps, single.itl_ms) == (60.0, None, ())


def test_a_clock_that_stands_still_gives_no_speed(generation):
    stopped = timing_of(dataclasses.replace(generation, token_ns=(1060 * MS,) * 4))
    assert stopped.decode_tps is None


@pytest.mark.parametrize(
    "changes",
    [
        {"warmup": True},
        {"mode": "score"},
        {"step_with": "token"},
        {"logits": LogitsFile(file="l", offset_bytes=0, n_rows=1, n_columns=1, dtype="float32", scale=None,
                              zero_point=None, first_position=0)},
        {"n_prompt": 99},
    ],
)  # fmt: skip
def test_speed_is_taken_from_counted_repetitions_of_the_longest_prompt_only(generation, changes):
    other = dataclasses.replace(generation, **changes)
    assert comparable_repetitions([other, generation, other]) == (generation,)


def test_load_time_holds_the_gaps_and_phases_are_summed_over_their_details():
    phases = (
        Phase(name="backend", detail="", start_ns=0, end_ns=10 * MS),
        Phase(name="context_create", detail="a", start_ns=15 * MS, end_ns=25 * MS),
        Phase(name="context_create", detail="b", start_ns=25 * MS, end_ns=45 * MS),
        Phase(name="first_execute", detail="ar64", start_ns=50 * MS, end_ns=57 * MS),
    )
    assert load_total_ms(phases) == 45.0
    assert load_phase_ms(phases) == {"backend": 10.0, "context_create": 30.0, "first_execute": 7.0}
    assert load_total_ms(()) is None
