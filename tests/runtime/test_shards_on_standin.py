"""Models cut into shards: the stand-in computes each, and what comes out is what the whole model gives."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from harness.record.job import Logits, Prompt, RunOptions

pytestmark = pytest.mark.lane("build")

TOKENS = tuple((7 * i + 3) % 32 for i in range(6))


def prompt(**options):
    settings = {"mode": "generate", "n_gen": 4, "ignore_eos": True, "logits": Logits.ALL} | options
    return Prompt(prompt_id="p", tokens=TOKENS, **settings)


@pytest.mark.parametrize("one_file", [False, True], ids=["a-file-each", "a-file-with-both-sizes"])
def test_shards_generate_what_the_whole_model_generates(standin, record_schema, one_file):
    standin.sharded, standin.one_file = True, one_file
    trace = standin.folder / "trace"
    outcome = standin.run(standin.job(prompt()), environment={"FAKE_QNN_TRACE": str(trace)})
    assert outcome.returncode == 0, outcome.stderr
    assert "standin violation" not in outcome.stderr
    assert len(outcome.log.contexts) == (2 if one_file else 4)
    generation = outcome.log.generations[0]
    assert generation.token_ids == standin.expected_generation(TOKENS, 4)
    expected = standin.expected_logits(TOKENS + generation.token_ids[:3])
    np.testing.assert_array_equal(outcome.logits(0).view(np.uint16), expected.view(np.uint16))
    assert generation.heap_allocations == 0 or standin.build.preset != "host"
    steps = [line.split()[1] for line in trace.read_text().splitlines() if line.startswith("graphExecute")]
    assert steps == ["ar4_shard1", "ar4_shard2"] * 2 + ["ar1_shard1", "ar1_shard2"] * 3
    for line in outcome.lines:
        record_schema.validate(json.loads(line))


def test_what_is_handed_on_lies_in_one_buffer_and_can_be_dumped(quantised):
    whole = quantised.run(quantised.job(prompt())).log.buffers
    quantised.sharded = True
    outcome = quantised.run(quantised.job(prompt(outputs=("hidden",))))
    assert outcome.returncode == 0, outcome.stderr
    buffers = outcome.log.buffers
    assert buffers.kv_pool_bytes == whole.kv_pool_bytes
    assert buffers.io_bytes == whole.io_bytes + 2 * 128  # one padded buffer a size, whether written or read
    assert buffers.n_tensors == whole.n_tensors + 2 * (2 + 3)  # hidden out and in, mask and RoPE once more
    copies = outcome.log.generations[0].outputs
    assert [(c.name, c.graph, c.shape) for c in copies] == [
        ("hidden", "ar4_shard1", (1, 4, 2)), ("hidden", "ar1_shard1", (1, 1, 2)),
    ]  # fmt: skip
    raw = np.fromfile(outcome.folder / "outputs.bin", dtype=np.uint16)[: 4 * 2].reshape(4, 2)
    assert tuple(raw[:, 0]) == TOKENS[:4]


def test_a_failed_shard_is_named(quantised):
    quantised.sharded = True
    outcome = quantised.run(quantised.job(prompt()), environment={"FAKE_QNN_FAIL": "graphExecute:6:6031"})
    assert (outcome.log.fault.error, outcome.log.fault.where) == ("EXECUTE_FAILED", "ar1_shard2 at position 6")


def test_the_watchdog_times_each_shard_and_not_the_whole_step(quantised):
    quantised.sharded = True
    job = quantised.job(prompt(n_gen=1), options=RunOptions(watchdog_s=2.0))
    outcome = quantised.run(job, environment={"FAKE_QNN_DELAY": "graphExecute:1200"})  # 2.4 s a step
    assert outcome.returncode == 0, outcome.stderr
    outcome = quantised.run(job, environment={"FAKE_QNN_HANG": "graphExecute:2"})
    assert (outcome.returncode, outcome.log.fault.where) == (41, "graph execution, step 1")


def change_hidden(document):
    for graph in document["graphs"]:
        for tensor in graph["inputs"]:
            if tensor["name"] == "hidden":
                tensor["scale"] = 0.5


def test_a_shard_that_reads_other_numbers_than_are_handed_on_is_refused(quantised):
    quantised.sharded = True
    fault = quantised.run(quantised.job(prompt(), change=change_hidden)).log.fault
    assert (fault.error, fault.where, fault.found) == (
        "TENSOR_MISMATCH", "ar4_shard2/hidden", "scale 0.5 zero point 0",
    )  # fmt: skip
    job = quantised.job(prompt())
    turned = dataclasses.replace(job, contexts=job.contexts[::-1])
    fault = quantised.run(turned).log.fault
    assert (fault.error, fault.where) == ("TENSOR_MISMATCH", "ar1_shard1/hidden")
