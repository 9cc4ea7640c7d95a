"""Records against the job: what cannot be true is named, what a model may get wrong is not looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.record.artifact import Artifact
from harness.record.job import Logits, Prompt
from harness.record.runner import EMPTY_LOG, Clock, End, Generation, LogitsFile, RunnerLog, Start
from harness.run.plausible import contradictions
from harness.run.workload import Workload

PROMPT = Prompt(
    prompt_id="p", mode="generate", tokens=(1, 2, 3), n_gen=2, ignore_eos=True, logits=Logits.ALL, repetitions=2
)
WORKLOAD = Workload(name="w", prompts=(PROMPT,))
LOGITS = LogitsFile(
    file="logits.bin", offset_bytes=0, n_rows=4, n_columns=1024, dtype="ufixed16", scale=1.0, zero_point=0,
    first_position=0,
)  # fmt: skip
FIRST = Generation(
    prompt_id="p", mode="generate", repetition=0, warmup=False, step_with="chunk", n_prompt=3, n_cached=0, start_ns=10,
    end_ns=20, prefill=(), relayout_ns=0, token_ns=(12, 14), token_ids=(3, 4), argmax_ids=(3, 4), stop="length", nll=(),
    logits=LOGITS, heap_allocations=0,
)  # fmt: skip
SECOND = replace(FIRST, repetition=1, logits=replace(LOGITS, offset_bytes=8192))
START = Start(
    schema="snapgate.runner/1", run_id="r", nonce="n", runner_version="1", abi="x", compiler="c", build_type="Release",
    pid=2, clock=Clock(monotonic_ns=5, boottime_ns=5, realtime_ns=5),
)  # fmt: skip
END = End(exit_code=0, n_records=3, clock=Clock(monotonic_ns=25, boottime_ns=25, realtime_ns=25))
PULLED = {"logits.bin": 16384}


def found(artifact: Artifact, *generations: Generation, pulled: dict[str, int] | None = None) -> list[str]:
    log = replace(EMPTY_LOG, start=START, end=END, generations=generations)
    return list(contradictions(log, workload=WORKLOAD, manifest=artifact.manifest, pulled=pulled or PULLED))


def test_records_that_answer_the_job_contradict_nothing(artifact: Artifact) -> None:
    assert found(artifact, FIRST, SECOND) == []


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"prompt_id": "q"}, "a generation of prompt 'q', which was not asked for"),
        ({"repetition": 1}, "missing, or there twice"),
        ({"warmup": True}, "missing, or there twice"),
        ({"mode": "score"}, "score by chunk was not asked for"),
        ({"n_prompt": 4}, "4 prompt tokens, 3 were given"),
        ({"token_ids": (3, 1024)}, "token id 1024, there are 0 to 1023"),
        ({"argmax_ids": (-1, 4)}, "token id -1"),
        ({"token_ids": (1, 2, 3)}, "3 tokens generated, 2 were asked for"),
        ({"token_ids": (1,)}, "only 1 of 2 tokens generated, without an end token"),
        ({"nll": (-0.5,)}, "a negative log likelihood below 0"),
        ({"start_ns": 4}, "stamp 4 ns lies outside the run, 5 to 25 ns"),
        ({"end_ns": 26}, "stamp 26 ns lies outside the run"),
        ({"token_ns": (12, -3)}, "stamp -3 ns"),
        ({"logits": None}, "no logits, they were asked for"),
        ({"logits": replace(LOGITS, n_rows=3)}, "3 x 1024 logits, 4 x 1024 were computed"),
        ({"logits": replace(LOGITS, n_columns=512)}, "4 x 512 logits"),
        ({"logits": replace(LOGITS, dtype="float64")}, "the unknown type 'float64'"),
        ({"logits": replace(LOGITS, offset_bytes=-1)}, "does not hold its logits"),
        ({"logits": replace(LOGITS, offset_bytes=8193)}, "has 16384 bytes and does not hold its logits"),
    ],
)
def test_what_cannot_be_true_is_named(artifact: Artifact, change: dict[str, Any], cause: str) -> None:
    wrong = found(artifact, replace(FIRST, **change), SECOND)
    assert any(cause in text for text in wrong), wrong


def test_forced_tokens_are_those_that_were_forced(artifact: Artifact) -> None:
    forced = Workload(name="w", prompts=(replace(PROMPT, forced=(3, 4)),))
    log = replace(EMPTY_LOG, start=START, end=END, generations=(FIRST, replace(SECOND, token_ids=(3, 5))))
    assert list(contradictions(log, workload=forced, manifest=artifact.manifest, pulled=PULLED)) == [
        "p repetition 1: the tokens are not those that were forced"
    ]


def test_without_a_start_record_nothing_says_whose_records_they_are(artifact: Artifact) -> None:
    log: RunnerLog = replace(EMPTY_LOG, end=END, generations=(FIRST, SECOND))
    assert list(contradictions(log, workload=WORKLOAD, manifest=artifact.manifest)) == [
        "there is no `start` record, so nothing says whose records they are"
    ]
