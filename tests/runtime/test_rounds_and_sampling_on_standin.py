"""Rounds that keep the cache, depth runs, sampling, stop ids, dumped outputs and pacing, on the stand-in library."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import subprocess

import numpy as np
import pytest

from harness.model.encoding import encode
from harness.record.job import Logits, Prompt, RunOptions, Sampling

pytestmark = pytest.mark.lane("build")


def tokens(n, first=3):
    return tuple((7 * i + first) % 32 for i in range(n))


def generate(prompt_id, ids, n_gen, **options):
    options = {"ignore_eos": True, "logits": Logits.ALL, **options}
    return Prompt(prompt_id=prompt_id, mode="generate", tokens=ids, n_gen=n_gen, **options)


def succeeded(outcome):
    assert outcome.returncode == 0, outcome.stderr
    assert "standin violation" not in outcome.stderr
    return outcome


@pytest.mark.parametrize("step_with", ["chunk", "token"])
def test_a_round_goes_on_behind_the_cache_of_the_round_before(standin, step_with):
    first = generate("first", tokens(5), 3)
    second = generate("second", tokens(4, 9), 3, keep_cache=True, step_with=step_with)
    fresh = generate("fresh", tokens(4, 9), 3)
    outcome = succeeded(standin.run(standin.job(first, second, fresh)))
    one, two, three = outcome.log.generations
    # 5 prompt tokens and two of three generated ones are in the cache, the third is carried over.
    assert [(g.n_cached, g.n_carried, g.n_prompt) for g in (one, two, three)] == [(0, 0, 5), (7, 1, 4), (0, 0, 4)]
    dialogue = (*first.tokens, *one.token_ids, *second.tokens, *two.token_ids[:-1])
    np.testing.assert_array_equal(outcome.logits(1), standin.expected_logits(dialogue)[7:])
    assert two.logits.first_position == 7
    np.testing.assert_array_equal(outcome.logits(2), standin.expected_logits((*fresh.tokens, *three.token_ids[:-1])))
    assert two.token_ids != three.token_ids


def test_a_round_that_does_not_fit_behind_the_cache_is_refused_with_the_rounds_before_recorded(quantised):
    rounds = generate("first", tokens(8), 4), generate("second", tokens(5), 1, keep_cache=True)
    outcome = quantised.run(quantised.job(*rounds))  # 11 in the cache, 1 carried, 5 more: 17 of 16
    assert outcome.log.fault.error == "PROMPT_TOO_LONG"
    assert outcome.log.fault.found == "11 tokens in the cache and 6 more"
    assert [g.prompt_id for g in outcome.log.generations] == ["first"]


@pytest.mark.parametrize("n_cached", [1, 6, 13])
def test_a_depth_run_computes_with_the_stated_pattern(standin, n_cached):
    """The stand-in's sum over every visible column, repeated for a cache of the documented pattern."""
    outcome = succeeded(standin.run(standin.job(generate("deep", (5, 6), 1, n_cached=n_cached))))
    generation = outcome.log.generations[0]
    assert (generation.n_cached, generation.n_prompt) == (n_cached, 2)
    spec = next(t for t in standin.graphs[0].inputs if t.name == "past_key_0_in")
    reals = (np.arange(17, dtype=np.float32) - 8) / 8
    raw = encode(reals, spec).astype(np.uint64) if standin.quantised else reals.astype(np.float16).view(np.uint16)
    total = 0
    for p in range(n_cached):
        for head, dim in itertools.product(range(2), range(4)):
            key = int(raw[(7 * p + 3 * head + 5 * dim) % 17])
            value = int(raw[(5 * p + 7 * head + 3 * dim + 1) % 17])
            total += 2 * key * value  # both layers
    inputs = {t.name: t for t in standin.graphs[0].inputs}
    cos = standin._raw(encode(standin.cos[:, 0], inputs["position_ids_cos"]))
    sin = standin._raw(encode(standin.sin[:, 0], inputs["position_ids_sin"]))
    rows = []
    for position, token in enumerate((5, 6), start=n_cached):
        for layer, head, dim in itertools.product(range(2), range(2), range(4)):
            key = (3 * token + 5 * cos[position] + 7 * head + 11 * dim + 13 * layer + 1) % 251
            value = (2 * token + 17 * sin[position] + 19 * head + 23 * dim + 29 * layer + 2) % 241
            total += key * value
        rows.append([((total % 65521 + 1) * (x + 1) * 31) % 31744 for x in range(32)])
    np.testing.assert_array_equal(outcome.logits(0).view(np.uint16), np.array(rows, dtype=np.uint16))
    assert generation.logits.first_position == n_cached


def test_sampling_repeats_with_its_seed_and_feeds_what_it_drew(standin):
    sampling = Sampling(temperature=1.0, top_k=20, top_p=0.95, repetition_penalty=1.1, seed=11)
    prompts = [
        generate("a", tokens(5), 8, sampling=sampling, repetitions=2, warmups=1),
        generate("b", tokens(5), 8, sampling=dataclasses.replace(sampling, seed=12)),
        generate("greedy", tokens(5), 8),
        generate("cold", tokens(5), 8, sampling=Sampling(temperature=0.0)),
    ]
    if not standin.quantised:  # logits of the stand-in up to 30000 in float16: a distribution needs a high temperature
        prompts = [p if p.sampling is None or p.prompt_id == "cold" else
                   dataclasses.replace(p, sampling=dataclasses.replace(p.sampling, temperature=5000.0))
                   for p in prompts]  # fmt: skip
    outcome = succeeded(standin.run(standin.job(*prompts)))
    warm, first, second, other, greedy, cold = outcome.log.generations
    assert warm.token_ids == first.token_ids == second.token_ids
    assert first.token_ids != other.token_ids
    assert cold.token_ids == greedy.token_ids == standin.expected_generation(tokens(5), 8)
    assert first.token_ids != greedy.token_ids
    rows = standin.expected_logits((*tokens(5), *first.token_ids[:-1]))
    np.testing.assert_array_equal(outcome.logits(1), rows)
    assert first.argmax_ids == tuple(int(i) for i in np.argmax(rows[4:], axis=1))
    assert [g.heap_allocations for g in outcome.log.generations] == [0] * 6 or standin.build.preset != "host"


def test_a_stop_id_ends_a_generation_that_ignores_the_models_own(quantised):
    greedy = quantised.expected_generation(tokens(3), 6)
    n = greedy.index(greedy[2]) + 1
    model = dataclasses.replace(quantised.job().model, eos_ids=(greedy[0],))
    outcome = succeeded(quantised.run(quantised.job(generate("s", tokens(3), 6, stop_ids=(greedy[2],)), model=model)))
    assert outcome.log.generations[0].token_ids == greedy[:n]
    assert outcome.log.generations[0].stop == "stop_id"


def test_named_outputs_are_dumped_step_by_step(quantised):
    outputs = ("past_key_1_out", "logits")
    prompts = generate("none", tokens(4), 2), generate("dump", tokens(6), 3, outputs=outputs, repetitions=2)
    outcome = succeeded(quantised.run(quantised.job(*prompts)))
    assert outcome.log.generations[0].outputs == ()
    data = (outcome.folder / "outputs.bin").read_bytes()
    by_graph = {(c.name, c.graph): c for c in outcome.log.generations[2].outputs}
    assert sorted(by_graph) == [
        ("logits", "ar1"),
        ("logits", "ar4"),
        ("past_key_1_out", "ar1"),
        ("past_key_1_out", "ar4"),
    ]
    assert by_graph["logits", "ar4"].positions == (0, 4)
    assert by_graph["logits", "ar1"].positions == (6, 7)
    logits = by_graph["logits", "ar1"]
    assert (logits.dtype, logits.shape, logits.zero_point) == ("ufixed16", (1, 1, 32), 15000)
    rows = np.frombuffer(data, np.uint16, 2 * 32, logits.offset_bytes).reshape(2, 32)
    np.testing.assert_array_equal(rows, outcome.logits(2)[6:])
    keys = by_graph["past_key_1_out", "ar4"]
    assert keys.shape == (2, 1, 4, 4)
    copies = np.frombuffer(data, np.uint8, 2 * 32, keys.offset_bytes).reshape(2, 2, 4, 4)  # step, head, dim, token
    for step, row in ((0, 0), (0, 3), (1, 1)):
        position = keys.positions[step] + row
        cos = 32768 + position * 1024
        for head, dim in itertools.product(range(2), range(4)):
            expected = (3 * tokens(6)[position] + 5 * cos + 7 * head + 11 * dim + 13 + 1) % 251
            assert copies[step, head, dim, row] == expected
    end = max(c.offset_bytes + len(c.positions) * int(np.prod(c.shape)) * (2 if c.name == "logits" else 1)
              for c in outcome.log.generations[2].outputs)  # fmt: skip
    assert len(data) == end


def test_a_name_that_no_graph_has_is_refused_before_the_first_prompt(quantised):
    outcome = quantised.run(quantised.job(generate("p", tokens(4), 2, outputs=("hidden",))))
    assert (outcome.log.fault.error, outcome.log.fault.found) == ("TENSOR_MISMATCH", "hidden")
    assert outcome.log.generations == ()


def test_pacing_holds_decode_steps_back_and_says_for_how_long(quantised):
    paced = RunOptions(pace_tps=20.0)
    outcome = succeeded(quantised.run(quantised.job(generate("p", tokens(4), 6, logits=Logits.NONE), options=paced)))
    generation = outcome.log.generations[0]
    since_first = [moment - generation.token_ns[0] for moment in generation.token_ns]
    # 50 ms apart; a step that begins late, on a busy machine, leaves the next less to wait and no more to make up
    assert all(since >= i * 50_000_000 for i, since in enumerate(since_first))
    assert 0 < generation.pace_ns <= since_first[-1]
    assert generation.token_ids == quantised.expected_generation(tokens(4), 6)
    assert succeeded(quantised.run(quantised.job(generate("p", tokens(4), 6)))).log.generations[0].pace_ns == 0


def test_a_pause_lies_between_generations_and_in_none(quantised):
    prompt = dataclasses.replace(generate("p", tokens(4), 3, logits=Logits.NONE), repetitions=2, pause_s=0.2)
    outcome = succeeded(quantised.run(quantised.job(prompt)))
    first, second = outcome.log.generations
    assert second.start_ns - first.end_ns >= 200_000_000
    assert second.token_ids == first.token_ids == quantised.expected_generation(tokens(4), 3)
    assert second.pace_ns == 0


def test_a_pause_is_no_hang_and_can_be_stopped(quantised):
    prompt = dataclasses.replace(generate("p", tokens(4), 3), pause_s=100.0)
    running = quantised.start(quantised.job(prompt, options=RunOptions(watchdog_s=2.0)))
    running.wait_for("memory")
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(timeout=3.0)
    running.process.send_signal(signal.SIGTERM)
    outcome = running.finish(timeout=20)
    assert outcome.log.fault.error == "TERMINATED"
    assert outcome.log.generations == ()


def test_a_paced_run_can_be_stopped_and_its_pauses_are_no_hang(quantised):
    options = RunOptions(pace_tps=0.01, watchdog_s=2.0)  # 100 s between steps
    running = quantised.start(quantised.job(generate("p", tokens(4), 6), options=options))
    running.wait_for("memory")
    with pytest.raises(subprocess.TimeoutExpired):  # still at it: the pause is not taken for a hang
        running.process.wait(timeout=3.0)
    running.process.send_signal(signal.SIGTERM)
    outcome = running.finish(timeout=20)
    assert outcome.log.fault.error == "TERMINATED"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"keep_cache": True, "repetitions": 2}, "keep_cache"),
        ({"keep_cache": True, "n_cached": 1}, "n_cached"),
        ({"n_cached": 12}, ""),
        ({"sampling": Sampling(), "forced": (1, 2)}, "sampling"),
        ({"sampling": Sampling(top_p=0.0)}, "sampling.top_p"),
        ({"sampling": Sampling(temperature=-1.0)}, "sampling.temperature"),
        ({"stop_ids": (32,)}, "stop_ids[0]"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_by_its_path(quantised, change, where):
    outcome = quantised.run(quantised.job(generate("p", tokens(5), 2, **change)))
    assert outcome.log.fault.error == ("PROMPT_TOO_LONG" if "n_cached" in change and not where else "JOB_INVALID")
    assert outcome.log.fault.where == "job.prompts[0]" + (f".{where}" if where else "")


def test_a_prompt_of_one_chunk_needs_no_relayout(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate("one", tokens(4), 3), generate("two", tokens(5), 3))))
    assert [g.relayout_ns > 0 for g in outcome.log.generations] == [False, True]


def test_every_record_of_these_is_of_the_schema(quantised, record_schema):
    prompts = [
        generate("a", tokens(3), 2, outputs=("logits",), sampling=Sampling(seed=5)),
        generate("b", tokens(3), 2, keep_cache=True),
        generate("c", tokens(3), 2, n_cached=2, stop_ids=(1,)),
    ]
    for line in succeeded(quantised.run(quantised.job(*prompts))).lines:
        record_schema.validate(json.loads(line))
