"""On the real libraries: a model in two shards against onnxruntime-qnn's own chain, and what the platform answers to
votes, priority and profiles."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from harness.compiler.execute import emulated_decoder
from harness.compiler.libraries import library_folder
from harness.compiler.prepare import prepare
from harness.record.artifact import Artifact
from harness.record.job import JOB_SCHEMA, Job, JobContext, JobLibraries, JobModel, Logits, Prompt, RunOptions
from harness.soc import KvPrecision, Precision, find_soc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lane("qnn"),
    pytest.mark.lane("build"),
    pytest.mark.xdist_group("emulator-shards"),
]

CHECKPOINT = Path(__file__).resolve().parents[2] / "models" / "tiny-llama"
N_GEN = 2
TOKENS = tuple((37 * i + 11) % 1000 + 20 for i in range(5))  # a part of a chunk of 8, then one token
"""Each step is a process for each shard; that a second chunk follows well is shown by test_emulator_identity.py."""


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("shards")
    # Without its held-out text, so that preparing measures no perplexity.
    shutil.copytree(CHECKPOINT, folder / "tiny-llama", ignore=shutil.ignore_patterns("heldout.txt"))
    return prepare(
        folder / "tiny-llama",
        soc=find_soc("gen3"),
        precision=Precision.W8A16,
        kv=KvPrecision.KV8,
        context=32,
        prefill=8,
        calibration=CHECKPOINT / "heldout.txt",
        shards=2,
        out=folder / "out",
    )


def run(artifact: Artifact, options: RunOptions, build, start_runner, folder: Path):
    manifest, model, libraries = artifact.manifest, artifact.manifest.model, library_folder()
    prompt = Prompt(prompt_id="p", mode="generate", tokens=TOKENS, n_gen=N_GEN, ignore_eos=True, logits=Logits.ALL)
    job = Job(
        schema=JOB_SCHEMA,
        run_id="emulator",
        nonce="1",
        libraries=JobLibraries(
            backend=PurePosixPath(libraries / "libQnnHtp.so"), system=PurePosixPath(libraries / "libQnnSystem.so")
        ),
        performance_mode="burst",
        model=JobModel(
            n_layers=model.n_layers,
            n_kv_heads=model.n_kv_heads,
            head_dim=model.head_dim,
            vocab_size=model.vocab_size,
            context_length=manifest.recipe.context_length,
            mask_value=manifest.recipe.mask_value,
            eos_ids=model.eos_ids,
            soc_number=manifest.target.soc_number,
            htp_arch=manifest.target.htp_arch,
            rope_table=PurePosixPath(artifact.path("rope.bin")),
            rope_sha256=manifest.files_sha256["rope.bin"],
        ),
        contexts=tuple(
            JobContext(
                path=PurePosixPath(artifact.path(context.file)),
                sha256=context.sha256,
                n_bytes=context.n_bytes,
                graphs=context.graphs,
            )
            for context in manifest.contexts
        ),
        prompts=(prompt,),
        options=options,
    )
    outcome = start_runner(build, job, folder).finish()
    assert outcome.returncode == 0, outcome.stderr
    return outcome


def test_two_shards_are_bit_identical_with_the_chain_of_onnxruntime_qnn(sharded, host_build, start_runner, tmp_path):
    outcome = run(sharded, RunOptions(graph_priority="high"), host_build, start_runner, tmp_path)
    assert [context.graphs for context in outcome.log.contexts] == [
        (graph.name,) for context in sharded.manifest.contexts for graph in context.graphs
    ]
    assert len(outcome.log.contexts) == 4
    chosen, rows = emulated_decoder(sharded).generate(TOKENS, N_GEN, ignore_eos=True)
    np.testing.assert_array_equal(outcome.logits(0), rows)
    assert outcome.log.generations[0].token_ids == chosen
    assert len(set(map(bytes, rows))) == len(rows)
    settings = outcome.log.control.settings
    assert [s.name for s in settings[:3]] == ["clocks", "rpc_latency", "rpc_polling"]
    assert [s.name.split()[0] for s in settings[3:]] == ["graph_priority"] * 4
    assert all(setting.accepted for setting in settings)


def test_a_detailed_profile_names_the_operators_with_their_cycles(sharded, host_build, start_runner, tmp_path):
    outcome = run(sharded, RunOptions(profiling="detailed"), host_build, start_runner, tmp_path)
    assert {profile.graph for profile in outcome.log.profiles} == {
        graph.name for context in sharded.manifest.contexts for graph in context.graphs
    }
    for profile in outcome.log.profiles:
        operators = [event for event in profile.events if event.depth > 0 and event.unit == "cycles"]
        assert len(operators) > 10
        assert any(event.value > 0 for event in operators)
