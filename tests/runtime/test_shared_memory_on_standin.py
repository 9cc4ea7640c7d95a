"""Tensors in memory shared with the DSP: a stand-in for libcdsprpc.so lends it, and the stand-in for QNN finds it by
descriptor and offset, at addresses of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.record.job import Logits, Prompt, RunOptions

pytestmark = pytest.mark.lane("build")

TOKENS = tuple((7 * i + 3) % 32 for i in range(6))
PROMPT = Prompt(prompt_id="p", mode="generate", tokens=TOKENS, n_gen=4, ignore_eos=True, logits=Logits.ALL)


def run(standin, variant="whole", *options, job=None, **environment):
    """The outcome, and every call of both libraries in order."""
    trace = standin.folder / "trace"
    trace.unlink(missing_ok=True)
    environment |= {"LD_LIBRARY_PATH": str(standin.build.folder / "rpc" / variant), "FAKE_QNN_TRACE": str(trace)}
    outcome = standin.run(job or standin.job(PROMPT), *options, environment=environment)
    assert "standin violation" not in outcome.stderr
    return outcome, trace.read_text().splitlines()


def names(calls):
    return [call.split()[0] for call in calls]


def check_output(standin, outcome):
    assert outcome.returncode == 0, outcome.stderr
    generation = outcome.log.generations[0]
    assert generation.token_ids == standin.expected_generation(TOKENS, 4)
    expected = standin.expected_logits(TOKENS + generation.token_ids[:3])
    np.testing.assert_array_equal(outcome.logits(0).view(np.uint16), expected.view(np.uint16))


def check_all_is_given_back(calls):
    """Handles before their memory and contexts."""
    done = names(calls)
    assert done.count("memRegister") == done.count("memDeRegister")
    freed = [i for i, name in enumerate(done) if name == "rpcmem_free"]
    assert len(freed) == done.count("rpcmem_alloc2") + done.count("rpcmem_alloc")
    if "memDeRegister" in done:
        assert done[::-1].index("memDeRegister") > len(done) - 1 - freed[-3]  # the last handle before the last blocks
        assert freed[-1] < done.index("contextFree")


def test_every_tensor_is_registered_and_found_by_descriptor(standin, record_schema):
    outcome, calls = run(standin)
    check_output(standin, outcome)
    buffers = outcome.log.buffers
    # Two graphs in two contexts: 4 inputs and 2 layers of keys and values in, logits and as many keys and values out.
    assert (buffers.memory, buffers.registered, buffers.fallback) == ("rpcmem", True, None)
    assert (buffers.n_tensors, buffers.n_registered) == (26, 26)
    assert outcome.log.platform.memory == "rpcmem"
    blocks = [int(call.split()[1]) for call in calls if call.startswith("rpcmem_alloc2")]
    assert blocks[0] == buffers.kv_pool_bytes  # one block for the pool, one for each graph
    assert sum(blocks[1:]) == buffers.io_bytes
    assert len(blocks) == 3
    check_all_is_given_back(calls)
    assert outcome.log.generations[0].heap_allocations == 0 or standin.build.preset != "host"
    for line in outcome.lines:
        record_schema.validate(json.loads(line))


def test_plain_memory_computes_the_same_and_is_taken_when_asked_for(quantised):
    job = quantised.job(PROMPT, options=RunOptions(memory="heap"))
    outcome, calls = run(quantised, job=job)
    check_output(quantised, outcome)
    buffers = outcome.log.buffers
    assert (buffers.memory, buffers.registered, buffers.n_registered, buffers.fallback) == ("heap", False, 0, None)
    assert not any(name.startswith(("rpcmem", "mem")) for name in names(calls))


def test_shards_register_what_they_share_in_the_context_of_each(quantised):
    quantised.sharded = quantised.one_file = True
    outcome, calls = run(quantised)
    check_output(quantised, outcome)
    buffers = outcome.log.buffers
    assert buffers.memory == "rpcmem"
    assert buffers.n_registered == buffers.n_tensors  # mask, cos, sin and what is handed on: in both contexts
    check_all_is_given_back(calls)


def test_an_older_library_without_alloc2_and_one_with_nothing_else_both_serve(quantised):
    for variant, call in ("no_alloc2", "rpcmem_alloc"), ("only_alloc2", "rpcmem_alloc2"):
        outcome, calls = run(quantised, variant)
        check_output(quantised, outcome)
        assert outcome.log.buffers.memory == "rpcmem"
        assert [name for name in names(calls) if name.startswith("rpcmem_alloc")] == [call] * 3
        check_all_is_given_back(calls)


FALLBACKS = {
    "no-library": ("none", {}, "libcdsprpc.so: the library cannot be loaded: "),
    "no-symbol": ("no_to_fd", {}, "libcdsprpc.so: not FastRPC's library: no symbol rpcmem_to_fd"),
    "no-slot": (
        "whole",
        {"FAKE_QNN_NULL": "memRegister"},
        "ar1/input_ids: the library registers no memory: no memRegister",
    ),
    "pool-refused": (
        "whole",
        {"FAKE_QNN_FAIL": "rpcmem_alloc2:1:1"},
        "KV pool: shared memory cannot be allocated: 512 bytes refused by rpcmem_alloc2",
    ),
    "io-refused": (
        "whole",
        {"FAKE_QNN_FAIL": "rpcmem_alloc2:3:1"},
        "tensors of ar4: shared memory cannot be allocated: ",
    ),
    "no-descriptor": (
        "whole",
        {"FAKE_QNN_FAIL": "rpcmem_to_fd:2:1"},
        "tensors of ar1: shared memory cannot be named to the DSP: rpcmem_to_fd gives -1",
    ),
    "first-registration": (
        "whole",
        {"FAKE_QNN_FAIL": "memRegister:1:1000"},
        "ar1/input_ids: memRegister failed: QNN error 1000 ",
    ),
    "part-way": (
        "whole",
        {"FAKE_QNN_FAIL": "memRegister:20:8003"},
        "ar4/past_key_1_in: memRegister failed: QNN error 8003 MEM_MAPPING",
    ),
}


@pytest.mark.parametrize("what", FALLBACKS)
def test_what_fails_is_rolled_back_and_plain_memory_serves_with_the_reason(quantised, record_schema, what):
    variant, environment, reason = FALLBACKS[what]
    outcome, calls = run(quantised, variant, **environment)
    check_output(quantised, outcome)
    buffers = outcome.log.buffers
    assert (buffers.memory, buffers.registered, buffers.n_registered) == ("heap", False, 0)
    assert buffers.fallback.startswith(reason)
    done = names(calls)
    failed = 1 if "memRegister" in environment.get("FAKE_QNN_FAIL", "") else 0
    assert done.count("memDeRegister") == done.count("memRegister") - failed
    refused = 1 if "rpcmem_alloc2" in environment.get("FAKE_QNN_FAIL", "") else 0
    assert done.count("rpcmem_free") == done.count("rpcmem_alloc2") - refused
    if "rpcmem_free" in done:  # before the first token, and not at the end
        assert done.index("graphExecute") > len(done) - 1 - done[::-1].index("rpcmem_free")
    for line in outcome.lines:
        record_schema.validate(json.loads(line))


def test_what_is_not_about_memory_stays_a_fault(quantised):
    outcome, calls = run(quantised, FAKE_QNN_FAIL="graphExecute:2:6031")
    assert (outcome.log.fault.error, outcome.log.buffers.memory) == ("EXECUTE_FAILED", "rpcmem")
    check_all_is_given_back(calls)


@pytest.mark.slow
@pytest.mark.lane("arm64")
def test_a_tagged_address_is_freed_as_it_came(stand_in_class, build_of, tmp_path):
    """x86-64 has no tagged addresses: rpc_memory_test.cpp passes one through there."""
    standin = stand_in_class(build_of("linux-arm64"), tmp_path)
    plain, _ = run(standin, "whole", "--dump-cache")
    pool = (plain.folder / "kv_cache.bin").read_bytes()
    outcome, calls = run(standin, "whole", "--dump-cache", FAKE_RPC_TAG="180")
    check_output(standin, outcome)
    assert outcome.log.buffers.memory == "rpcmem"
    assert (outcome.folder / "kv_cache.bin").read_bytes() == pool
    check_all_is_given_back(calls)
