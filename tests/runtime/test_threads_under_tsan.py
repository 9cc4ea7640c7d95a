"""Whole jobs under the thread sanitizer: the thread that works, the one that watches, and those that read files."""

from __future__ import annotations

import pytest

from harness.record.job import Logits, Prompt, RunOptions

pytestmark = [pytest.mark.lane("build"), pytest.mark.slow]

ENVIRONMENT = {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66"}


@pytest.fixture(scope="module")
def tsan_build(preset_build):
    return preset_build("host-tsan", "snapgate-runner", "snapgate-async-load", "FakeQnnHtp", "FakeQnnSystem")


def prompt():
    return Prompt(
        prompt_id="p", mode="generate", tokens=tuple(range(9)), n_gen=6, ignore_eos=True, logits=Logits.ALL,
        warmups=1, repetitions=2,
    )  # fmt: skip


def test_heartbeat_and_watchdog_race_with_nothing(stand_in_class, tsan_build, tmp_path):
    standin = stand_in_class(tsan_build, tmp_path)
    job = standin.job(prompt(), performance_mode="burst", options=RunOptions(watchdog_s=10.0))
    outcome = standin.run(job, environment={**ENVIRONMENT, "FAKE_QNN_DELAY": "graphExecute:80"})
    assert outcome.returncode == 0, outcome.stderr
    assert "ThreadSanitizer" not in outcome.stderr
    assert '"type": "heartbeat"' in outcome.stdout


def test_the_end_of_a_hung_process_races_with_nothing(stand_in_class, tsan_build, tmp_path):
    standin = stand_in_class(tsan_build, tmp_path)
    job = standin.job(prompt(), performance_mode="burst", options=RunOptions(watchdog_s=3.0))
    outcome = standin.run(job, environment={**ENVIRONMENT, "FAKE_QNN_HANG": "graphExecute:3"})
    assert outcome.returncode == 41, outcome.stderr
    assert "ThreadSanitizer" not in outcome.stderr
