"""``--runner-option``: what is read, what is refused, and what becomes of it in the job."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath

import jsonschema
import pytest

import harness.record
from harness.errors import ArtifactError, UserError
from harness.record.artifact import Artifact
from harness.record.codec import to_json
from harness.record.job import Prompt, RunOptions
from harness.run.tuning import PERFORMANCE_MODES, read_tuning
from harness.run.workload import Workload, check_workload, make_job

SCHEMA = json.loads((Path(harness.record.__file__).parent / "schema" / "job.schema.json").read_text())


def job_of(artifact: Artifact, *settings: str) -> dict:
    prompt = Prompt(prompt_id="p", mode="generate", tokens=(1,), n_gen=1)
    workload = Workload(name="w", prompts=(prompt,), stall_s=100, options=RunOptions(pace_tps=2.0))
    tuned = read_tuning(settings).apply(workload)
    job = to_json(make_job(tuned, artifact, run_id="r", nonce="n", run_folder=PurePosixPath("/run")))
    jsonschema.Draft202012Validator(SCHEMA).validate(job)
    return job


def test_every_option_reaches_the_job_and_the_rest_stays_as_the_suite_has_it(artifact: Artifact) -> None:
    job = job_of(
        artifact,
        *("performance_mode=balanced", "memory=heap", "prefetch=off", "graph_priority=high", "stamps=off"),
        *("sleep_latency_us=65535", "rpc_polling_us=0", "cpu_affinity=7,4"),
    )
    assert job["performance_mode"] == "balanced"
    options = job["options"]
    assert (options["memory"], options["prefetch"], options["graph_priority"]) == ("heap", False, "high")
    assert (options["sleep_latency_us"], options["rpc_polling_us"], options["cpu_affinity"]) == (65535, 0, [7, 4])
    assert options["stamps"] is False
    assert (options["pace_tps"], options["watchdog_s"]) == (2.0, 80.0)
    assert options.keys() <= {field.name for field in fields(RunOptions)}


def test_without_options_nothing_changes(artifact: Artifact) -> None:
    job = job_of(artifact)
    assert job["performance_mode"] == "burst"
    assert (job["options"]["memory"], job["options"]["prefetch"]) == ("auto", True)


def test_what_was_set_is_told_in_words_that_set_it_again() -> None:
    typed = ["cpu_affinity=7,4", "performance_mode=low_balanced", "prefetch=on", "sleep_latency_us=8"]
    words = read_tuning(typed, 2.5).words
    assert words == (
        "cpu_affinity=7,4",
        "pace_tps=2.5",
        "performance_mode=low_balanced",
        "prefetch=on",
        "sleep_latency_us=8",
    )
    assert read_tuning([word for word in words if not word.startswith("pace")], 2.5).words == words
    assert read_tuning(reversed(typed), 2.5).words == words
    assert read_tuning([]).words == ()


def test_the_modes_are_those_of_the_job() -> None:
    assert list(PERFORMANCE_MODES) == SCHEMA["$defs"]["Job"]["properties"]["performance_mode"]["enum"]


@pytest.mark.parametrize(
    ("settings", "found", "expected"),
    [
        (["memory"], "'memory'", "NAME=VALUE"),
        (["speed=high"], "'speed=high'", "NAME=VALUE"),
        (["memory=dma"], "'dma'", "auto, heap"),
        (["prefetch=1"], "'1'", "on, off"),
        (["sleep_latency_us=0"], "'0'", "1 to 65535"),
        (["rpc_polling_us=10000"], "'10000'", "0 to 9999"),
        (["cpu_affinity=4,,5"], "'4,,5'", "as in 4,5"),
        (["cpu_affinity=4,4"], "'4,4'", "as in 4,5"),
        (["cpu_affinity=1024"], "'1024'", "0 to 1023"),
        (["memory=heap", "memory=auto"], "'memory=auto'", "each name once"),
        (["performance_mode=default", "rpc_polling_us=0"], "performance_mode=default", "another mode"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_right(settings: list[str], found: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        read_tuning(settings)
    assert caught.value.found == found
    assert expected in str(caught.value.expected)


def test_what_only_other_runtimes_run_is_refused_with_the_option_that_makes_it_run(artifact: Artifact) -> None:
    workload = Workload(name="w", prompts=(Prompt(prompt_id="p", mode="generate", tokens=(1,), n_gen=1),))
    for change, option in ({"logits": "last"}, "--logits all"), ({"embeddings": "host"}, "--embeddings graph"):
        manifest = replace(artifact.manifest, recipe=replace(artifact.manifest.recipe, **change))
        with pytest.raises(ArtifactError, match="does not run") as caught:
            check_workload(workload, manifest)
        assert option in str(caught.value.found)


def test_a_pace_is_that_of_the_paced_suite_alone() -> None:
    prompts = (Prompt(prompt_id="p", mode="generate", tokens=(1,), n_gen=1),)
    tuning = read_tuning([], 3.5)
    paces = {}
    for name in ("paced", "cooldown", "latency"):
        workload = Workload(name=name, prompts=prompts, options=RunOptions(pace_tps=1.0))
        paces[name] = tuning.apply(workload).options.pace_tps
    assert paces == {"paced": 3.5, "cooldown": 1.0, "latency": 1.0}


@pytest.mark.parametrize("pace", [0.0, -1.0, float("inf"), float("nan")])
def test_a_pace_is_more_than_0(pace: float) -> None:
    with pytest.raises(UserError, match="--pace-tps out of range"):
        read_tuning([], pace)
