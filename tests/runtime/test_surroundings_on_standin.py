"""The runner with closed streams, a stalled reader, a pipe for a file, and a stop at any time."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from pathlib import Path

import pytest

import harness.record
from harness.record.job import Logits, Prompt

pytestmark = pytest.mark.lane("build")

CODES = json.loads((Path(harness.record.__file__).parent / "schema" / "exit_codes.json").read_text())["runner"]


def prompt(**options):
    return Prompt(prompt_id="p", mode="generate", tokens=(3, 10, 17), n_gen=4, ignore_eos=True, **options)


def close_streams(*descriptors):
    def close():
        for descriptor in descriptors:
            os.close(descriptor)

    return close


@pytest.mark.parametrize("closed", [(1, 2), (0, 1, 2)])
def test_without_open_streams_nothing_but_records_and_logits_reaches_the_files(quantised, closed):
    job = quantised.job(prompt(logits=Logits.ALL))
    outcome = quantised.run(job, preexec_fn=close_streams(*closed))
    assert outcome.returncode == 0
    assert outcome.log.unknown_lines == ()
    assert outcome.log.end.exit_code == 0
    assert (outcome.folder / "logits.bin").stat().st_size == 6 * 32 * 2  # 6 rows of 32 two-byte logits


def test_without_an_open_stderr_stdout_carries_records_only(quantised):
    outcome = quantised.run(quantised.job(prompt()), preexec_fn=close_streams(2))
    assert outcome.returncode == 0
    assert outcome.stdout.splitlines() == list(outcome.lines)


def test_a_stop_while_loading_ends_the_run_before_the_next_phase(quantised):
    trace = quantised.folder / "trace"
    environment = {"FAKE_QNN_DELAY": "contextCreateFromBinary:500", "FAKE_QNN_TRACE": str(trace)}
    running = quantised.start(quantised.job(prompt(), performance_mode="burst"), environment=environment)
    running.wait_for("platform")
    running.process.send_signal(signal.SIGTERM)
    outcome = running.finish()
    assert outcome.returncode == CODES["TERMINATED"]
    assert outcome.log.fault.error == "TERMINATED"
    assert outcome.log.generations == ()
    calls = trace.read_text().splitlines()
    assert not any(call.startswith("graph") for call in calls)
    assert calls[-4:] == ["destroyPowerConfigId", "deviceFree", "backendFree", "logFree"]


def test_a_reader_that_stalls_does_not_hold_up_a_stop(quantised):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # one page: Linux calls it full once it holds a record
    running = quantised.start(quantised.job(prompt(repetitions=1000)), environment={}, stdout=writer)
    deadline = time.monotonic() + 60
    while select.select([], [writer], [], 0)[1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(writer)
    time.sleep(0.3)  # by now it waits for room for the next record
    held = len((running.out / "records.jsonl").read_text().splitlines())
    running.process.send_signal(signal.SIGTERM)
    try:
        outcome = running.finish(timeout=10)
    finally:
        running.process.kill()
        os.close(reader)
    assert held == 1
    assert outcome.returncode == CODES["TERMINATED"]
    assert outcome.log.unknown_lines == ()
    assert outcome.log.end.exit_code == CODES["TERMINATED"]
    assert outcome.stderr.count("stdout is stalled") == 1


def test_a_pipe_where_a_file_belongs_is_refused_and_not_waited_for(quantised):
    job = quantised.job(prompt())
    rope = Path(job.model.rope_table)
    rope.unlink()
    os.mkfifo(rope)
    running = quantised.start(job)
    try:
        outcome = running.finish(timeout=60)
    finally:
        running.process.kill()
    assert outcome.log.fault.error == "FILE_MISSING"
    assert outcome.log.fault.found == "not a regular file"
