"""Loading on a thread of its own (device_runtime/src/session_loader.h), by a small embedding program."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from harness.record.codec import to_json
from harness.record.job import Prompt
from harness.record.runner import parse_runner_lines

pytestmark = pytest.mark.lane("build")

BUILDS = ["host", pytest.param("host-tsan", marks=pytest.mark.slow)]
LOAD_MS = 400
SLOW = {"FAKE_QNN_DELAY": f"contextCreateFromBinary:{LOAD_MS // 2}"}  # two of them


@pytest.fixture(scope="module", params=BUILDS)
def threads_build(request, preset_build):
    return preset_build(request.param, "snapgate-async-load", "FakeQnnHtp", "FakeQnnSystem")


@pytest.fixture
def load(threads_build, stand_in_class, tmp_path):
    standin = stand_in_class(threads_build, tmp_path)
    path = tmp_path / "job.json"
    prompt = Prompt(prompt_id="p", mode="generate", tokens=(1,), n_gen=1)
    path.write_text(json.dumps(to_json(standin.job(prompt, performance_mode="burst"))))

    def run(*arguments, **environment):
        done = subprocess.run(
            [threads_build.folder / "snapgate-async-load", path, *arguments],
            capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1 exitcode=66", **environment},
        )  # fmt: skip
        assert "ThreadSanitizer" not in done.stderr
        assert "standin violation" not in done.stderr  # what was made is freed, in order, on every path
        return done

    return run


def test_the_caller_goes_on_while_the_model_loads(load):
    done = load(**SLOW)
    assert done.returncode == 0, done.stderr
    said = done.stderr.split("loaded 2 steps, waited ")[1]
    assert int(said.split()[0]) >= 5  # of 10 ms each, or longer where the machine is busy
    phases = parse_runner_lines(done.stdout.splitlines()).phases
    assert [phase.name for phase in phases][-1] == "buffers"


def test_a_cancelled_load_ends_after_the_phase_under_way(load):
    done = load("50", **SLOW)
    assert done.returncode == 40
    assert "fault TERMINATED where context_create: the load was cancelled" in done.stderr
    names = [phase.name for phase in parse_runner_lines(done.stdout.splitlines()).phases]
    assert names.count("context_create") == 1


def test_a_fault_of_the_load_is_what_the_caller_gets(load):
    done = load(FAKE_QNN_FAIL="deviceCreate:1:14001")
    assert done.returncode == 23
    assert "fault DEVICE_FAILED where device: deviceCreate failed" in done.stderr


def test_a_loader_that_is_dropped_waits_for_its_thread_and_frees_all(load):
    began = time.monotonic()
    done = load("drop", **SLOW)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 100
    names = [phase.name for phase in parse_runner_lines(done.stdout.splitlines()).phases]
    assert "buffers" not in names
