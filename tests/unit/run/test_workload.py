"""Workloads: what is refused before a push, and the job that they become."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

import pytest

from harness.errors import UserError
from harness.record.artifact import Artifact
from harness.record.job import Prompt
from harness.run.workload import Workload, check_workload, make_job


def prompt(
    prompt_id: str = "p", tokens: tuple[int, ...] = (1, 2), n_gen: int = 4, forced: tuple[int, ...] = ()
) -> Prompt:
    return Prompt(prompt_id=prompt_id, mode="generate", tokens=tokens, n_gen=n_gen, forced=forced)


def check(artifact: Artifact, *prompts: Prompt) -> None:
    check_workload(Workload(name="w", prompts=prompts), artifact.manifest)


def test_a_prompt_may_fill_the_context_to_the_last_place(artifact: Artifact) -> None:
    check(artifact, prompt(tokens=(5,) * 500, n_gen=13))


def test_a_prompt_one_token_too_long_is_refused_with_both_numbers(artifact: Artifact) -> None:
    with pytest.raises(UserError, match="longer than the context") as caught:
        check(artifact, prompt(tokens=(5,) * 500, n_gen=14))
    assert caught.value.found == "500 tokens and 14 to generate"
    assert caught.value.expected == "at most 512 in all"


def test_token_ids_outside_the_vocabulary_are_refused(artifact: Artifact) -> None:
    with pytest.raises(UserError, match="token ids") as caught:
        check(artifact, prompt(tokens=(1023, 1024, -1)))
    assert (caught.value.found, caught.value.expected) == ("1024, -1", "0 to 1023")


def test_forced_ids_are_checked_too(artifact: Artifact) -> None:
    with pytest.raises(UserError, match="token ids"):
        check(artifact, prompt(n_gen=1, forced=(2000,)))


def test_an_empty_prompt_and_an_empty_workload_are_refused(artifact: Artifact) -> None:
    with pytest.raises(UserError, match="is empty"):
        check(artifact, prompt(tokens=()))
    with pytest.raises(UserError, match="has no prompt"):
        check(artifact)


def test_two_prompts_of_one_name_are_refused(artifact: Artifact) -> None:
    with pytest.raises(UserError, match="twice"):
        check(artifact, prompt("a"), prompt("a"))


def test_generations_are_counted_with_warm_ups() -> None:
    several = Prompt(prompt_id="a", mode="generate", tokens=(1,), n_gen=1, warmups=1, repetitions=3)
    assert Workload(name="w", prompts=(several, prompt())).n_generations == 5


def test_outputs_must_differ_only_where_two_free_prompts_differ() -> None:
    assert Workload(name="w", prompts=(prompt("a"), prompt("b", tokens=(7,)))).expects_prompt_sensitivity
    assert not Workload(name="w", prompts=(prompt("a"), prompt("b"))).expects_prompt_sensitivity
    forced = prompt("b", tokens=(7,), n_gen=1, forced=(1,))
    assert not Workload(name="w", prompts=(prompt("a"), forced)).expects_prompt_sensitivity


def test_the_job_names_files_of_the_run_folder_with_the_manifests_hashes(artifact: Artifact) -> None:
    workload = Workload(name="w", prompts=(prompt(),), performance_mode="default")
    job = make_job(workload, artifact, run_id="r1", nonce="n1", run_folder=PurePosixPath("/d/runs/r1"))
    assert (job.schema, job.run_id, job.nonce, job.performance_mode) == ("snapgate.job/1", "r1", "n1", "default")
    assert job.libraries.backend == PurePosixPath("/d/runs/r1/libs/libQnnHtp.so")
    assert job.contexts[0].path == PurePosixPath("/d/runs/r1/ar1.bin")
    assert job.contexts[0].sha256 == hashlib.sha256(b"context binary").hexdigest()
    assert job.model.rope_table == PurePosixPath("/d/runs/r1/rope.bin")
    assert job.model.rope_sha256 == hashlib.sha256(b"rope table").hexdigest()
    assert (job.model.soc_number, job.model.htp_arch, job.model.context_length) == (57, 75, 512)
