"""The runner on a binary that holds prefill and decode, as phones get it: on the real libraries, in the emulator."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from harness.compiler.execute import emulated_decoder
from harness.compiler.libraries import library_folder
from harness.compiler.prepare import prepare
from harness.record.artifact import Artifact
from harness.record.job import JobLibraries, Logits, Prompt
from harness.run.workload import Workload, make_job
from harness.soc import Precision, find_soc

pytestmark = [pytest.mark.slow, pytest.mark.lane("qnn"), pytest.mark.lane("runner"), pytest.mark.lane("build")]

CHECKPOINT = Path(__file__).resolve().parents[2] / "models" / "tiny-llama"
N_GEN = 3
TOKENS = tuple((37 * i + 11) % 1000 + 20 for i in range(12))  # a whole chunk of 8, one half full


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """By ``--contexts``."""
    folder = tmp_path_factory.mktemp("one-context")
    # Without its held-out text, so that preparing measures no perplexity.
    shutil.copytree(CHECKPOINT, folder / "tiny-llama", ignore=shutil.ignore_patterns("heldout.txt"))
    settings = {"soc": find_soc("gen3"), "precision": Precision.FP16, "context": 32, "prefill": 8}
    return {
        contexts: prepare(folder / "tiny-llama", out=folder / contexts, contexts=contexts, **settings)
        for contexts in ("one", "shared")
    }


def run(artifact: Artifact, build, start_runner, folder: Path):
    prompt = Prompt(prompt_id="p", mode="generate", tokens=TOKENS, n_gen=N_GEN, ignore_eos=True, logits=Logits.ALL)
    workload = Workload(name="w", prompts=(prompt,))
    files = PurePosixPath(artifact.folder)
    job = make_job(workload, artifact, run_id="one-context", nonce="1", run_folder=files)
    qnn = PurePosixPath(library_folder())
    libraries = JobLibraries(backend=qnn / "libQnnHtp.so", system=qnn / "libQnnSystem.so")
    return start_runner(build, dataclasses.replace(job, libraries=libraries), folder).finish()


def test_the_runner_generates_from_both_graphs_of_one_context(made, host_build, start_runner, tmp_path):
    outcome = run(made["one"], host_build, start_runner, tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert [len(context.graphs) for context in made["one"].manifest.contexts] == [2]
    assert len(outcome.log.contexts) == 1
    chosen, rows = emulated_decoder(made["one"]).generate(TOKENS, N_GEN, ignore_eos=True)
    assert outcome.log.generations[0].token_ids == chosen
    assert np.array_equal(outcome.logits(0).view(np.uint16), rows.view(np.uint16))
    assert len(set(map(bytes, rows))) == len(TOKENS) + N_GEN - 1


def test_shared_weights_end_in_the_library_here_which_is_why_virtual_phones_refuse_them(
    made, host_build, start_runner, tmp_path
):
    """The x86 library says 1000, and then crashes."""
    outcome = run(made["shared"], host_build, start_runner, tmp_path)
    assert outcome.returncode != 0
    assert outcome.log.generations == ()
    assert "Fail to create context from binary with err 1000" in outcome.stderr
