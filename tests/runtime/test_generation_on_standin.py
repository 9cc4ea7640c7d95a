"""Whole runs of the native runner on a stand-in QNN library whose logits depend on every input the runner prepares."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from harness.record.job import Logits, Prompt

pytestmark = pytest.mark.lane("build")

N, CONTEXT = 4, 16


def tokens(n):
    return tuple((7 * i + 3) % 32 for i in range(n))


def generate(n_prompt, n_gen, **options):
    options = {"ignore_eos": True, "logits": Logits.ALL, **options}
    return Prompt(prompt_id=f"p{n_prompt}", mode="generate", tokens=tokens(n_prompt), n_gen=n_gen, **options)


def succeeded(outcome):
    assert outcome.returncode == 0, outcome.stderr
    assert "standin violation" not in outcome.stderr
    assert outcome.log.fault is None
    assert outcome.log.end.exit_code == 0
    return outcome


LENGTHS = [1, N - 1, N, N + 1, 2 * N + 1, CONTEXT - N, CONTEXT - N + 1, CONTEXT - 1, CONTEXT]


@pytest.mark.parametrize("step_with", ["chunk", "token"])
def test_logits_and_tokens_are_right_for_every_prompt_length(standin, step_with):
    prompts = [generate(n, min(5, CONTEXT - n + 1), step_with=step_with) for n in LENGTHS]
    outcome = succeeded(standin.run(standin.job(*prompts)))
    assert [g.n_prompt for g in outcome.log.generations] == LENGTHS
    for index, (prompt, generation) in enumerate(zip(prompts, outcome.log.generations, strict=True)):
        expected_ids = standin.expected_generation(prompt.tokens, prompt.n_gen)
        assert generation.token_ids == expected_ids
        assert generation.argmax_ids == expected_ids
        assert generation.stop == "length"
        rows = standin.expected_logits(prompt.tokens + expected_ids[:-1])
        np.testing.assert_array_equal(outcome.logits(index), rows)
        assert generation.logits.first_position == 0


def test_chunks_are_padded_and_the_end_of_the_context_goes_token_by_token(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate(6, 1), generate(15, 1))))
    short, long = outcome.log.generations
    assert [(c.n_tokens, c.n_graph_tokens) for c in short.prefill] == [(4, 4), (2, 4)]
    assert [(c.n_tokens, c.n_graph_tokens) for c in long.prefill] == [(4, 4), (4, 4), (4, 4), (3, 4)]
    quantised.graphs = (quantised._graph(5), quantised._graph(1))  # 16 is no multiple of 5: the last token is alone
    outcome = succeeded(quantised.run(quantised.job(generate(16, 1))))
    chunks = outcome.log.generations[0].prefill
    assert [(c.n_tokens, c.n_graph_tokens) for c in chunks] == [(5, 5), (5, 5), (5, 5), (1, 1)]
    np.testing.assert_array_equal(outcome.logits(0), quantised.expected_logits(tokens(16)))


def test_scores_are_the_negative_log_likelihoods_of_the_next_token(standin):
    prompt = Prompt(prompt_id="s", mode="score", tokens=tokens(14), n_gen=0, logits=Logits.ALL)
    outcome = succeeded(standin.run(standin.job(prompt)))
    generation = outcome.log.generations[0]
    raw = standin.expected_logits(prompt.tokens)
    np.testing.assert_array_equal(outcome.logits(0), raw)
    scale, zero = (float(np.float32(0.001)), 15000) if standin.quantised else (1.0, 0)
    logits = scale * (raw.astype(np.float64) - zero)
    log_sum = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)) + logits.max(axis=1)
    expected = [log_sum[i] - logits[i, prompt.tokens[i + 1]] for i in range(13)]
    np.testing.assert_allclose(generation.nll, expected, rtol=1e-12)
    assert generation.stop == "scored"
    assert generation.token_ids == ()


def test_forced_ids_are_fed_instead_of_the_greedy_ones(quantised):
    forced = (5, 6, 7, 8)
    outcome = succeeded(quantised.run(quantised.job(generate(3, 4, forced=forced, ignore_eos=False))))
    generation = outcome.log.generations[0]
    rows = quantised.expected_logits(tokens(3) + forced[:-1])
    np.testing.assert_array_equal(outcome.logits(0), rows)
    assert generation.token_ids == forced
    assert generation.argmax_ids == tuple(int(i) for i in np.argmax(rows[2:], axis=1))


def test_generation_stops_at_a_stop_id_and_keeps_it_unless_told_to_go_on(quantised):
    greedy = quantised.expected_generation(tokens(3), 6)
    first = greedy.index(greedy[2])
    model = dataclasses.replace(quantised.job().model, eos_ids=(greedy[2],))
    prompts = generate(3, 6, ignore_eos=False), generate(3, 6)
    outcome = succeeded(quantised.run(quantised.job(*prompts, model=model)))
    stopped, ignored = outcome.log.generations
    assert stopped.token_ids == greedy[: first + 1]
    assert stopped.stop == "eos"
    assert stopped.logits.n_rows == 3 + first
    assert ignored.token_ids == greedy
    assert ignored.stop == "length"


def test_a_forced_stop_id_does_not_stop(quantised):
    model = dataclasses.replace(quantised.job().model, eos_ids=(6,))
    job = quantised.job(generate(3, 3, forced=(5, 6, 7), ignore_eos=False), model=model)
    generation = succeeded(quantised.run(job)).log.generations[0]
    assert generation.token_ids == (5, 6, 7)
    assert generation.stop == "length"


def test_generation_stops_when_the_context_is_full(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate(14, 9))))
    generation = outcome.log.generations[0]
    assert generation.stop == "context"
    assert generation.token_ids == quantised.expected_generation(tokens(14), 3)  # fed at 14 and 15, the third is not
    assert generation.logits.n_rows == 16


def test_repetitions_are_independent_of_what_ran_before(standin):
    prompts = generate(9, 4, repetitions=2), generate(13, 2), generate(9, 4, warmups=1)
    outcome = succeeded(standin.run(standin.job(*prompts)))
    generations = outcome.log.generations
    assert [(g.n_prompt, g.warmup, g.repetition) for g in generations] == [
        (9, False, 0), (9, False, 1), (13, False, 0), (9, True, 0), (9, False, 0),
    ]  # fmt: skip
    for index in (1, 3, 4):
        np.testing.assert_array_equal(outcome.logits(index), outcome.logits(0))
    offsets = [g.logits.offset_bytes for g in generations]
    assert offsets == [0, 768, 1536, 2432, 3200]  # rows of 32 two-byte logits: 12 rows each, 14 for the third


def test_one_context_may_hold_both_graphs(quantised):
    quantised.one_file = True
    outcome = succeeded(quantised.run(quantised.job(generate(9, 4))))
    assert outcome.log.contexts[0].graphs == ("ar4", "ar1")
    np.testing.assert_array_equal(
        outcome.logits(0), quantised.expected_logits(tokens(9) + outcome.log.generations[0].token_ids[:-1])
    )


def test_an_artifact_without_a_prefill_graph_runs_token_by_token(quantised):
    quantised.graphs = (quantised._graph(1),)
    outcome = succeeded(quantised.run(quantised.job(generate(5, 2))))
    np.testing.assert_array_equal(
        outcome.logits(0), quantised.expected_logits(tokens(5) + outcome.log.generations[0].token_ids[:-1])
    )
    assert outcome.log.generations[0].relayout_ns == 0


def test_stamps_are_in_order_and_the_relayout_counts_into_the_first_token(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate(9, 4))))
    generation = outcome.log.generations[0]
    moments = [generation.start_ns]
    for chunk in generation.prefill:
        moments += [chunk.start_ns, chunk.end_ns]
    moments += [*generation.token_ns, generation.end_ns]
    assert moments == sorted(moments)
    assert len(generation.token_ns) == 4
    assert generation.relayout_ns > 0
    assert generation.token_ns[0] - generation.prefill[-1].end_ns >= generation.relayout_ns


@pytest.mark.parametrize("precision", ["w8a16", "fp16"])
def test_nothing_is_allocated_between_the_first_chunk_and_the_last_token(
    stand_in_class, host_build, tmp_path, precision
):
    # Not on the sanitized build: there the C++ library is shared, and the stand-in's allocations count as the runner's.
    standin = stand_in_class(host_build, tmp_path, precision)
    prompts = (
        generate(15, 2),
        generate(5, 8, forced=(1,) * 8, warmups=1, repetitions=2),
        generate(5, 8, step_with="token", logits=Logits.NONE),
        Prompt(prompt_id="s", mode="score", tokens=tokens(16), n_gen=0, logits=Logits.ALL),
    )
    outcome = succeeded(standin.run(standin.job(*prompts)))
    assert [g.heap_allocations for g in outcome.log.generations] == [0] * 6


def test_every_record_is_of_the_schema_and_stdout_repeats_the_file(standin, record_schema):
    outcome = succeeded(standin.run(standin.job(generate(9, 4), generate(2, 1, logits=Logits.NONE))))
    for line in outcome.lines:
        record_schema.validate(json.loads(line))
    assert outcome.log.unknown_lines == ()
    assert outcome.stdout.splitlines() == list(outcome.lines)
    assert "stand-in chatter on stdout" in outcome.stderr
    assert outcome.log.end.n_records == len(outcome.lines) - 1
    assert [json.loads(line)["type"] for line in outcome.lines] == [
        "start", "phase", "phase", "phase", "phase", "platform",
        "phase", "phase", "context", "phase", "phase", "context", "phase", "phase",
        "phase", "phase", "phase", "phase", "phase", "buffers", "memory", "control",
        "phase", "generation", "generation", "memory", "end",
    ]  # fmt: skip


def test_the_load_is_described(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate(2, 1))))
    log = outcome.log
    assert (log.start.run_id, log.start.nonce) == ("run-1", "nonce-1")
    assert log.platform.provider == "STANDIN_HTP"
    assert (log.platform.core_api, log.platform.backend_api, log.platform.system_api) == ("2.40.0", "5.51.0", "1.15.0")
    assert log.platform.build_id == "standin-1"
    assert [(c.dsp_arch, c.soc_number, c.blob_version, c.build_id) for c in log.contexts] == [
        (75, 57, "9.8.7", "standin-compiler-1")
    ] * 2
    assert [p.name for p in log.phases] == [
        "open_libraries", "backend", "device", "verify", "read", "verify", "read", "verify", "read", "verify",
        "context_create", "context_create", "graph_retrieve", "graph_retrieve", "buffers", "first_execute",
    ]  # fmt: skip
    first = log.generations[0].prefill[0]
    assert (log.phases[-1].detail, log.phases[-1].start_ns, log.phases[-1].end_ns) == (
        "ar4", first.start_ns, first.end_ns,
    )  # fmt: skip
    # 2 layers, keys and values: 2 heads x 4 x 15 columns of one byte, each padded to 128
    assert log.buffers.kv_pool_bytes == 2 * 2 * 128
    # 2 layers x 2 heads: 4 keys and 4 values of one byte; 4 stores of a key and one of the values
    assert log.buffers.kv_token_bytes == 2 * 2 * 8
    assert log.buffers.kv_token_stores == 2 * 2 * 5
    assert log.buffers.alignment_bytes == 128
    assert log.buffers.n_tensors == 2 * 13
    assert log.buffers.registered is False
    assert [m.at for m in log.memory] == ["after_load", "end"]
    assert log.memory[1].vm_hwm_bytes >= log.memory[0].vm_rss_bytes > 0


def test_without_logits_no_logits_file_is_written(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate(2, 2, logits=Logits.NONE))))
    assert outcome.log.generations[0].logits is None
    assert not (outcome.folder / "logits.bin").exists()


def traced(standin, job, **environment):
    trace = standin.folder / "trace"
    outcome = standin.run(job, environment={"FAKE_QNN_TRACE": str(trace), **environment})
    return outcome, trace.read_text().splitlines()


def test_objects_are_freed_in_the_reverse_order_of_their_making(quantised):
    outcome, calls = traced(quantised, quantised.job(generate(2, 1), performance_mode="burst"))
    succeeded(outcome)
    assert calls[-6:] == ["contextFree", "contextFree", "destroyPowerConfigId", "deviceFree", "backendFree", "logFree"]


def test_burst_votes_for_the_highest_clocks_and_default_does_not_vote(quantised):
    outcome, calls = traced(quantised, quantised.job(generate(2, 1), performance_mode="burst"))
    assert [call for call in calls if call.startswith("setPowerConfig")] == [
        "setPowerConfig option 1 dcvs 0 latency 40 bus 160 core 160",
        "setPowerConfig option 2 us 40",
        "setPowerConfig option 3 us 9999",
    ]
    assert (outcome.log.platform.performance_mode, outcome.log.platform.performance_accepted) == ("burst", True)
    (quantised.folder / "trace").unlink()
    outcome, calls = traced(quantised, quantised.job(generate(2, 1)))
    assert not any("Power" in call for call in calls)
    assert (outcome.log.platform.performance_mode, outcome.log.platform.performance_accepted) == ("default", True)


@pytest.mark.parametrize(
    "refused", ["setPowerConfig:3:13002", "createPowerConfigId:1:13006", "deviceGetInfrastructure:1:1000"]
)
def test_a_refused_vote_is_recorded_and_the_run_goes_on(quantised, refused):
    job = quantised.job(generate(2, 1), performance_mode="burst")
    outcome = succeeded(quantised.run(job, environment={"FAKE_QNN_FAIL": refused}))
    assert outcome.log.platform.performance_accepted is False
    assert "warning" in outcome.stderr


def test_a_partial_chunk_is_filled_up_with_id_0(quantised):
    prompts = generate(4, 1), generate(6, 2)
    outcome, calls = traced(quantised, quantised.job(*prompts))
    greedy = outcome.log.generations[1].token_ids[0]
    assert [call for call in calls if call.startswith("graphExecute")] == [
        "graphExecute ar4 3 10 17 24",
        "graphExecute ar4 3 10 17 24",
        "graphExecute ar4 31 6 0 0",
        f"graphExecute ar1 {greedy}",
    ]


def test_the_soc_number_is_given_in_both_known_layouts(quantised):
    outcome, calls = traced(quantised, quantised.job(generate(2, 1)))
    assert "deviceCreate soc 57 57" in calls
    assert outcome.log.platform.device_config == "soc 57"


def test_the_cache_can_be_dumped_after_the_last_prompt(quantised):
    outcome = succeeded(quantised.run(quantised.job(generate(3, 2)), "--dump-cache"))
    cache = np.fromfile(outcome.folder / "kv_cache.bin", dtype=np.uint8).reshape(2, 2, 2 * 4 * 15)
    keys = cache[1, 0].reshape(2, 4, 15)  # layer 1: head, dim, column
    values = cache[1, 1].reshape(2, 15, 4)
    fed = (*tokens(3), outcome.log.generations[0].token_ids[0])
    for position, token in enumerate(fed):
        cos, sin = 32768 + position * 1024, 32768 - position * 512
        for head in range(2):
            for dim in range(4):
                assert keys[head, dim, position] == (3 * token + 5 * cos + 7 * head + 11 * dim + 13 + 1) % 251
                assert values[head, position, dim] == (2 * token + 17 * sin + 19 * head + 23 * dim + 29 + 2) % 241
    assert set(keys[:, :, 4:].ravel()) == {128}
    assert set(values[:, 4:].ravel()) == {128}


@pytest.mark.parametrize(
    ("n_prompt", "chunks"),
    [
        (1, [(1, 4)]),
        (4, [(4, 4)]),
        (6, [(6, 8)]),
        (11, [(8, 8), (3, 4)]),
        (16, [(8, 8), (8, 8)]),
    ],
)
def test_of_several_prefill_graphs_the_narrowest_that_takes_the_rest_runs(
    stand_in_class, build, tmp_path, n_prompt, chunks
):
    standin = stand_in_class(build, tmp_path, sizes=(8, 4, 1))
    tokens = tuple((7 * i + 3) % 32 for i in range(n_prompt))
    prompt = Prompt(prompt_id="p", mode="generate", tokens=tokens, n_gen=2, ignore_eos=True, logits=Logits.ALL)
    outcome = succeeded(standin.run(standin.job(prompt)))
    generation = outcome.log.generations[0]
    assert [(c.n_tokens, c.n_graph_tokens) for c in generation.prefill] == chunks
    assert generation.token_ids == standin.expected_generation(tokens, len(generation.token_ids))
    np.testing.assert_array_equal(
        outcome.logits(0), standin.expected_logits(tokens + generation.token_ids[:-1])[: len(outcome.logits(0))]
    )


def test_near_the_end_of_the_context_narrower_graphs_take_over(stand_in_class, build, tmp_path):
    standin = stand_in_class(build, tmp_path, sizes=(8, 4, 1))
    first, second = tuple(range(9)), tuple(range(20, 25))
    rounds = (
        Prompt(prompt_id="a", mode="generate", tokens=first, n_gen=1, ignore_eos=True),
        Prompt(prompt_id="b", mode="generate", tokens=second, n_gen=1, ignore_eos=True, keep_cache=True),
    )
    outcome = succeeded(standin.run(standin.job(*rounds)))
    one, two = outcome.log.generations
    assert [(c.n_tokens, c.n_graph_tokens) for c in one.prefill] == [(8, 8), (1, 4)]
    # 6 tokens from position 9: AR-8 would end at 17 of 16, AR-4 fits once, and from 13 on only AR-1 does.
    assert [(c.n_tokens, c.n_graph_tokens) for c in two.prefill] == [(4, 4), (1, 1), (1, 1)]
    assert two.token_ids == standin.expected_generation(first + one.token_ids + second, 1)
