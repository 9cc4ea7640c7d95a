"""A hung library, a killed process, and the second thread that watches: what is left of each, and what it costs."""

from __future__ import annotations

import itertools
import json
import signal
import time

import pytest

from harness.record.job import Prompt, RunOptions
from harness.record.runner import heartbeat_step
from harness.record.stamps import read_unfinished

pytestmark = pytest.mark.lane("build")

TOKENS = (3, 10, 17, 24, 31)


def prompt(n_gen=4, **options):
    return Prompt(prompt_id="p", mode="generate", tokens=TOKENS, n_gen=n_gen, ignore_eos=True, **options)


def stamped(outcome, job):
    data = (outcome.folder / "stamps.bin").read_bytes()
    return read_unfinished(data, job.prompts, outcome.log.generations)


@pytest.mark.parametrize(
    ("hang", "where"),
    [("graphExecute:4", "graph execution, step 4"), ("contextCreateFromBinary:2", "context_create, step 0")],
)
def test_a_hung_call_ends_the_run_with_its_phase_and_step(quantised, record_schema, hang, where):
    job = quantised.job(prompt(), performance_mode="burst", options=RunOptions(watchdog_s=2.0))
    began = time.monotonic()
    outcome = quantised.run(job, environment={"FAKE_QNN_HANG": hang})
    assert time.monotonic() - began < 60
    assert outcome.returncode == 41
    assert (outcome.log.fault.error, outcome.log.fault.exit_code, outcome.log.fault.where) == ("HUNG", 41, where)
    assert outcome.log.fault.found == "no return after 2000 ms"
    assert (outcome.log.end.exit_code, outcome.log.end.n_records) == (41, len(outcome.lines) - 1)
    assert outcome.log.end.clock.monotonic_ns > outcome.log.start.clock.monotonic_ns
    assert f"HUNG: no return after 2000 ms during {where}" in outcome.stderr
    for line in outcome.lines:
        record_schema.validate(json.loads(line))


def test_slow_calls_within_the_deadline_are_left_alone(quantised):
    job = quantised.job(prompt(), options=RunOptions(watchdog_s=2.0))
    outcome = quantised.run(job, environment={"FAKE_QNN_DELAY": "graphExecute:500"})  # 5 calls: 2.5 s in all
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.log.generations[0].token_ids == quantised.expected_generation(TOKENS, 4)


@pytest.mark.parametrize("n_tokens", [0, 3])
def test_a_killed_process_loses_no_stamp(quantised, n_tokens):
    """Killed in a call that never returns, so all that came before it is known: chunks of 4 and 1 tokens, the second of
    which gives the first token, then a token a call."""
    trace = quantised.folder / "trace"
    job = quantised.job(prompt(n_gen=10, warmups=1))
    last = (2 + 9) + 2 + n_tokens  # behind the warm-up's calls; this one's own: two chunks give the first token
    environment = {"FAKE_QNN_TRACE": str(trace), "FAKE_QNN_HANG": f"graphExecute:{last}"}
    running = quantised.start(job, environment=environment)
    running.wait_for("generation")  # the warm-up
    deadline = time.monotonic() + 120
    while trace.read_text().count("graphExecute") < last:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.process.kill()
    outcome = running.finish()
    assert outcome.returncode == -signal.SIGKILL
    assert outcome.log.end is None
    assert trace.read_text().count("graphExecute") == last
    unfinished = stamped(outcome, job)
    assert (unfinished.prompt_id, unfinished.warmup, unfinished.repetition) == ("p", False, 0)
    chunks = [(chunk.n_tokens, chunk.n_graph_tokens) for chunk in unfinished.prefill]
    assert chunks == ([(4, 4), (1, 4)] if n_tokens else [(4, 4)])
    assert len(unfinished.token_ids) == n_tokens
    assert unfinished.token_ids == unfinished.argmax_ids == outcome.log.generations[0].token_ids[:n_tokens]
    moments = [unfinished.start_ns, *(chunk.end_ns for chunk in unfinished.prefill), *unfinished.token_ns]
    assert moments == sorted(moments)
    assert moments[0] > outcome.log.generations[0].end_ns


def test_a_run_that_ends_well_leaves_nothing_unfinished(quantised):
    job = quantised.job(prompt())
    outcome = quantised.run(job)
    assert stamped(outcome, job) is None
    assert (outcome.folder / "stamps.bin").stat().st_size > 64


def test_without_stamps_there_is_no_file(quantised):
    outcome = quantised.run(quantised.job(prompt(), options=RunOptions(stamps=False)))
    assert outcome.returncode == 0
    assert not (outcome.folder / "stamps.bin").exists()


def test_a_folder_without_space_for_the_stamps_is_an_error_before_the_first_prompt(quantised):
    (quantised.folder / "out").mkdir(parents=True)
    (quantised.folder / "out" / "stamps.bin").mkdir()
    outcome = quantised.run(quantised.job(prompt()))
    assert outcome.log.fault.error == "IO_FAILED"
    assert outcome.log.fault.where.endswith("/stamps.bin")
    assert outcome.log.generations == ()


def test_at_most_one_heartbeat_a_second_and_only_after_progress(quantised, record_schema):
    job = quantised.job(prompt(n_gen=10), options=RunOptions(heartbeat=True))
    outcome = quantised.run(job, environment={"FAKE_QNN_DELAY": "graphExecute:400"})  # 11 calls: 4.4 s
    beats = [json.loads(line) for line in outcome.stdout.splitlines() if heartbeat_step(line) is not None]
    assert 2 <= len(beats) <= 5
    moments = [beat["monotonic_ns"] for beat in beats]
    assert all(b - a >= 1_000_000_000 for a, b in itertools.pairwise(moments))
    steps = [beat["step"] for beat in beats]
    assert steps == sorted(set(steps))
    assert {beat["phase"] for beat in beats} == {"graph execution"}
    for beat in beats:
        record_schema.validate(beat)
    others = [line for line in outcome.stdout.splitlines() if heartbeat_step(line) is None]
    assert others == list(outcome.lines)

    outcome = quantised.run(
        quantised.job(prompt(n_gen=2), options=RunOptions(heartbeat=True)),
        environment={"FAKE_QNN_DELAY": "graphExecute:1600"},
    )
    steps = [step for line in outcome.stdout.splitlines() if (step := heartbeat_step(line)) is not None]
    assert [step for step in steps if step] == [1, 2, 3]  # none twice, however long a step takes; 0: a slow start


def test_clocks_are_read_at_start_and_end(quantised):
    log = quantised.run(quantised.job(prompt())).log
    for clock in (log.start.clock, log.end.clock):
        assert clock.boottime_ns >= clock.monotonic_ns > 0  # boot time also counts sleep
    assert log.end.clock.monotonic_ns > log.start.clock.monotonic_ns
    drift = (log.end.clock.boottime_ns - log.start.clock.boottime_ns) - (
        log.end.clock.monotonic_ns - log.start.clock.monotonic_ns
    )
    assert abs(drift) < 1_000_000


@pytest.mark.slow
def test_stamps_heartbeat_and_watchdog_have_no_effect_on_the_steps(stand_in_class, host_build, tmp_path):
    """Interleaved on and off, minima over many short runs: what differs is below the noise of one token."""
    standin = stand_in_class(host_build, tmp_path)
    best = {True: float("inf"), False: float("inf")}
    for _ in range(12):
        for on in (True, False):
            options = RunOptions(watchdog_s=10.0 if on else None, heartbeat=on, stamps=on)
            outcome = standin.run(standin.job(prompt(n_gen=11, repetitions=200), options=options))
            assert outcome.returncode == 0
            gaps = [b - a for generation in outcome.log.generations for a, b in itertools.pairwise(generation.token_ns)]
            gaps.sort()
            best[on] = min(best[on], gaps[len(gaps) // 4])
    assert best[True] < best[False] * 1.05 + 500, best  # ns
