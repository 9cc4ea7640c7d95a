"""Each self-check: what passes, what trips it, and when it says that it cannot tell."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from harness.measure.selfcheck import (
    logits_not_constant,
    logits_prompt_sensitivity,
    prefill_decode_identity,
    record_checks,
)
from harness.record.runner import EMPTY_LOG, OutputCopies, PrefillChunk, Profile

MS = 1_000_000


@pytest.fixture
def run(make):
    return make.three_runs("s", make.STEADY)[0]


def checks(run):
    return {check.name: check for check in record_checks(run)}


def change(run, index, **changes):
    generations = list(run.log.generations)
    generations[index] = dataclasses.replace(generations[index], **changes)
    return dataclasses.replace(run, log=dataclasses.replace(run.log, generations=tuple(generations)))


def tokens(run, *answers):
    """The run with these token ids for its generations, in order (three of prompt long, then one of short)."""
    for index, ids in enumerate(answers):
        g = run.log.generations[index]
        stamps = tuple(g.token_ns[0] + i * MS for i in range(len(ids)))
        run = change(run, index, token_ids=tuple(ids), argmax_ids=tuple(ids), token_ns=stamps)
    return run


def test_a_good_run_passes_every_check(run):
    assert {name: check.passed for name, check in checks(run).items()} == {
        "non_constant_output": True,
        "token_count": True,
        "clock": True,
        "heap_allocations": True,
        "mode_flip": True,
        "observer_effect": True,
        "prompt_sensitivity": True,
        "determinism": True,
    }


def test_repetitions_that_differ_threefold_are_of_two_modes(run):
    """The long prompt's repetitions take 20 ms a token; one that takes 15 times as long makes no median with it."""
    index = next(i for i, g in enumerate(run.log.generations) if g.prompt_id == "long" and g.repetition == 1)
    first = run.log.generations[index].token_ns[0]
    slow = [first + i * 300 * MS for i in range(len(run.log.generations[index].token_ns))]
    check = checks(change(run, index, token_ns=tuple(slow), end_ns=slow[-1] + MS))["mode_flip"]
    assert check.passed is False
    assert "(15.0 times)" in check.detail
    twice = [first + i * 40 * MS for i in range(len(slow))]
    assert checks(change(run, index, token_ns=tuple(twice), end_ns=twice[-1] + MS))["mode_flip"].passed is True


def test_copied_outputs_are_an_observer_effect(run):
    copy = OutputCopies(
        name="tap", graph="ar1", dtype="float32", shape=(1,), scale=None, zero_point=None, file="outputs.bin",
        offset_bytes=0, positions=(64,),
    )  # fmt: skip
    check = checks(change(run, 1, outputs=(copy,)))["observer_effect"]
    assert check.passed is False
    assert "(tap)" in check.detail


def test_profiling_is_an_observer_effect(run):
    profile = Profile(
        prompt_id="long", repetition=0, warmup=False, graph="ar1", level="detailed", position=64, events=()
    )
    check = checks(dataclasses.replace(run, log=dataclasses.replace(run.log, profiles=(profile,))))["observer_effect"]
    assert check.passed is False
    assert "(detailed)" in check.detail


def test_a_repetition_with_another_answer_is_not_deterministic(run):
    index = next(i for i, g in enumerate(run.log.generations) if g.prompt_id == "long" and g.repetition == 1)
    ids = run.log.generations[index].token_ids
    first = next(g for g in run.log.generations if g.prompt_id == "long")
    same = dataclasses.replace(
        run,
        log=dataclasses.replace(
            run.log,
            generations=tuple(
                dataclasses.replace(g, token_ids=first.token_ids, argmax_ids=first.token_ids)
                if g.prompt_id == "long"
                else g
                for g in run.log.generations
            ),
        ),
    )
    assert checks(same)["determinism"].passed is True
    other = (*first.token_ids[:-1], first.token_ids[-1] + 1)
    assert len(other) == len(ids)
    assert checks(change(same, index, token_ids=other, argmax_ids=other))["determinism"].passed is False


def test_output_behind_a_made_up_cache_is_not_called_constant(run):
    constant = tokens(run, [5] * 8)
    assert checks(constant)["non_constant_output"].passed is False
    depth = dataclasses.replace(
        constant,
        log=dataclasses.replace(
            constant.log, generations=tuple(dataclasses.replace(g, n_cached=128) for g in constant.log.generations)
        ),
    )
    assert checks(depth)["non_constant_output"].passed is True


def test_the_carried_token_of_a_further_turn_is_counted(run):
    g = run.log.generations[0]
    chunk = dataclasses.replace(g.prefill[0], n_tokens=g.n_prompt)
    assert checks(change(run, 0, n_carried=1, n_prompt=g.n_prompt - 1, prefill=(chunk,)))["token_count"].passed is True
    assert checks(change(run, 0, n_carried=1, prefill=(chunk,)))["token_count"].passed is False


def test_a_run_that_generated_nothing_has_no_checks(run):
    assert record_checks(dataclasses.replace(run, log=EMPTY_LOG)) == ()


def test_eight_equal_tokens_are_constant_output_and_seven_are_not(run):
    assert checks(tokens(run, [5] * 8))["non_constant_output"].passed is False
    assert "long repetition 0: all 8 tokens are 5" in checks(tokens(run, [5] * 8))["non_constant_output"].detail
    assert checks(tokens(run, [5] * 7))["non_constant_output"].passed is True
    assert checks(tokens(run, [5] * 7 + [6]))["non_constant_output"].passed is True


def test_forced_tokens_do_not_hide_a_constant_argmax(run):
    g = run.log.generations[1]
    assert checks(change(run, 1, argmax_ids=(0,) * len(g.token_ids)))["non_constant_output"].passed is False


def test_the_same_answer_to_two_prompts_is_not_prompt_sensitive(run):
    same = [3, 4, 5, 6]
    assert checks(tokens(run, same, same, same, same))["prompt_sensitivity"].passed is False
    assert checks(tokens(run, same, same, same, [3, 4, 5, 7]))["prompt_sensitivity"].passed is True


def test_answers_are_compared_over_the_length_that_all_have(run):
    long = [3, 4, 5, 6, 7, 8]
    assert checks(tokens(run, long, long, long, [3, 4, 5, 6]))["prompt_sensitivity"].passed is False


def test_three_equal_tokens_prove_nothing(run):
    assert checks(tokens(run, *[[3, 4, 5]] * 4))["prompt_sensitivity"].passed is None


def test_one_prompt_cannot_be_checked_for_sensitivity(run):
    one = dataclasses.replace(run, log=dataclasses.replace(run.log, generations=run.log.generations[:3]))
    assert checks(one)["prompt_sensitivity"].passed is None


def test_prompt_sensitivity_is_not_asked_of_a_workload_with_equal_prompts(run):
    assert "prompt_sensitivity" not in checks(dataclasses.replace(run, prompt_sensitivity_expected=False))


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"token_ids": (1, 2, 3)}, "33 token_ns, 3 token_ids, 33 argmax_ids"),
        ({"n_prompt": 65}, "64 tokens went through prefill, the prompt has 65"),
        (
            {"prefill": (PrefillChunk(n_tokens=64, n_graph_tokens=32, start_ns=0, end_ns=1),)},
            "more tokens than its graph",
        ),
        ({"mode": "score", "nll": (1.0,) * 62}, "62 NLL values for 64 tokens"),
        ({"token_ids": (), "argmax_ids": (), "token_ns": ()}, "no token was generated"),
    ],
)
def test_counts_that_disagree_are_named(run, changes, detail):
    check = checks(change(run, 1, **changes))["token_count"]
    assert check.passed is False
    assert detail in check.detail


@pytest.mark.parametrize(
    ("edit", "detail"),
    [
        (lambda g: {"start_ns": g.prefill[0].start_ns + 1}, "backwards"),
        (lambda g: {"end_ns": g.token_ns[-1] - 1}, "backwards"),
        (lambda g: {"token_ns": (g.prefill[0].end_ns - 1, *g.token_ns[1:])}, "backwards"),
        (lambda g: {"token_ns": (g.token_ns[0], *g.token_ns[:-1])}, "the same stamp"),
    ],
)
def test_stamps_out_of_order_are_named(run, edit, detail):
    check = checks(change(run, 1, **edit(run.log.generations[1])))["clock"]
    assert check.passed is False
    assert detail in check.detail


def clocks(run, *, boottime_ns=0, wall_s=None):
    end = run.log.end
    clock = dataclasses.replace(end.clock, boottime_ns=end.clock.boottime_ns + boottime_ns)
    log = dataclasses.replace(run.log, end=dataclasses.replace(end, clock=clock))
    return dataclasses.replace(run, log=log, wall_s=run.wall_s if wall_s is None else wall_s)


@pytest.mark.parametrize(("ahead_ms", "passed"), [(49, True), (51, False), (-51, False)])
def test_a_phone_that_slept_is_caught_by_its_two_clocks(run, ahead_ms, passed):
    assert checks(clocks(run, boottime_ns=ahead_ms * MS))["clock"].passed is passed


def test_a_phone_clock_that_runs_ahead_of_the_host_is_caught(run):
    """The run takes about 7 s by the phone; the host must have waited at least as long, within 2 % and a second."""
    seconds = (run.log.end.clock.monotonic_ns - run.log.start.clock.monotonic_ns) / 1e9
    assert checks(clocks(run, wall_s=seconds - 0.5))["clock"].passed is True
    assert checks(clocks(run, wall_s=seconds / 2))["clock"].passed is False


def test_an_allocation_in_a_warm_up_counts_too(run):
    check = checks(change(run, 0, heap_allocations=1))["heap_allocations"]
    assert check.passed is False
    assert check.detail == "long repetition 0: 1 heap allocations while generating"


def rows(*values):
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(
    ("logits", "detail"),
    [
        (rows([0.0, 0.0], [1.0, 2.0]), "1 of 2 rows are all zero"),
        (rows([3.0, 3.0], [1.0, 2.0]), "1 of 2 rows are constant"),
        (rows([np.nan, 0.0], [1.0, 2.0]), "1 of 2 rows hold NaN or Inf"),
        (rows([np.inf, 0.0], [1.0, 2.0]), "1 of 2 rows hold NaN or Inf"),
        (np.tile([1.0, 2.0], (8, 1)), "all 8 rows are the same"),
    ],
)
def test_logits_that_cannot_be_right(make, logits, detail):
    check = logits_not_constant("r", make.CELL, {"good": rows([1.0, 2.0]), "bad": logits})
    assert check.passed is False
    assert check.detail == f"bad: {detail}"


def test_logits_that_may_be_right(make):
    assert logits_not_constant("r", make.CELL, {"p": rows([1.0, 2.0], [2.0, 1.0])}).passed is True
    assert logits_not_constant("r", make.CELL, {"p": np.tile([1.0, 2.0], (7, 1))}).passed is True
    assert logits_not_constant("r", make.CELL, {}).passed is None
    assert logits_not_constant("r", make.CELL, {"p": np.zeros((0, 4))}).passed is None


def test_identical_logits_of_two_prompts_are_caught_among_three(make):
    check = logits_prompt_sensitivity("r", make.CELL, {"a": [1.0, 2.0], "b": [1.0, 2.5], "c": [1.0, 2.0]})
    assert check.passed is False
    assert check.detail == "identical logits for a and c"
    assert logits_prompt_sensitivity("r", make.CELL, {"a": [1.0, 2.0], "b": [1.0, 2.5]}).passed is True
    assert logits_prompt_sensitivity("r", make.CELL, {"a": [np.nan], "b": [np.nan]}).passed is False
    assert logits_prompt_sensitivity("r", make.CELL, {"a": [1.0]}).passed is None


def test_prefill_and_decode_must_agree_to_the_bit(make):
    a = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.uint16)
    b = a.copy()
    assert prefill_decode_identity("r", make.CELL, a, b).passed is True
    b[1, 1] += 1
    check = prefill_decode_identity("r", make.CELL, a, b)
    assert check.passed is False
    assert check.detail == "1 of 3 positions differ, the first is 1"


def test_bit_identity_is_of_bytes_not_of_values(make):
    zero = np.array([[0.0, np.nan]], dtype=np.float32)
    negative = np.array([[-0.0, np.nan]], dtype=np.float32)
    assert prefill_decode_identity("r", make.CELL, zero, zero.copy()).passed is True
    assert prefill_decode_identity("r", make.CELL, zero, negative).passed is False


def test_logits_of_another_shape_or_type_are_not_identical(make):
    a = np.ones((3, 2), dtype=np.uint16)
    assert prefill_decode_identity("r", make.CELL, a, a[:2]).passed is False
    assert prefill_decode_identity("r", make.CELL, a, a.astype(np.uint8)).passed is False
    assert prefill_decode_identity("r", make.CELL, a, a[:0]).passed is None
