from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.cli.main import main
from harness.compiler.execute import emulated_decoder
from harness.errors import ArtifactError
from harness.model.reference import load_reference
from harness.record.artifact import Artifact, load_artifact
from harness.record.comparison import Leg
from harness.run.workload import Workload, check_workload
from harness.soc import KvPrecision, Precision

Prepare = Callable[..., Artifact]
pytestmark = [pytest.mark.slow, pytest.mark.lane("qnn")]

PROMPT = (0, 298, 387, 390, 14, 324, 298, 387, 390, 14, 324, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
"""21 tokens: a chunk of 16, one of 4, and one more."""


def far(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize(
    ("precision", "form", "limit"),
    [
        (Precision.W4A16_B32, {"attention": "per-head", "linear": "conv"}, 0.15),
        (Precision.W8A16, {"embeddings": "host", "logits": "last", "prefill": (16, 4)}, 0.05),
    ],
    ids=["per-head, conv", "host embeddings, last logits, two prefill sizes"],
)
def test_a_form_compiles_to_one_piece_and_is_on_the_emulator_what_fp32_is(
    prepare_small: Prepare, tmp_path: Path, precision: Precision, form: dict[str, object], limit: float
) -> None:
    artifact = prepare_small(tmp_path, precision=precision, kv=KvPrecision.KV8, **form)
    recipe = artifact.manifest.recipe
    graphs = [graph for context in artifact.manifest.contexts for graph in context.graphs]
    assert all((graph.epcontext_nodes, graph.cpu_nodes) == (1, 0) for graph in graphs)
    fp32, compiled = load_reference(artifact, Leg.FP32), load_reference(artifact, Leg.GRAPH)
    emulated = emulated_decoder(artifact)
    every = fp32.extend(PROMPT)
    expected = [every, every]
    rows = [compiled.real(compiled.extend(PROMPT)), emulated.real(emulated.extend(PROMPT))]
    if recipe.logits == "last":
        expected = [every[15:], every[[15, 19, 20]]]  # the reference has no AR-4
        assert [graph.n_tokens for graph in graphs] == [16, 4, 1]
        assert [graph.inputs[0].name for graph in graphs] == ["input_embeds"] * 3
        assert [graph.outputs[0].shape for graph in graphs] == [(1, 1, 1024)] * 3
        assert artifact.path("embeddings.bin").stat().st_size == 1024 * 192 * 4
        workload = Workload(name="w", prompts=())
        with pytest.raises(
            ArtifactError, match=r"the native runner does not run .*; found: embeddings looked up on the"
        ):
            check_workload(workload, artifact.manifest)
    for found, wanted in zip(rows, expected, strict=True):
        assert found.shape == wanted.shape
        assert far(found, wanted) < limit
    assert load_artifact(artifact.folder).manifest == artifact.manifest
    assert prepare_small(tmp_path, precision=precision, kv=KvPrecision.KV8, **form).manifest == artifact.manifest


def test_two_contexts_become_two_artifacts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "tiny")
    source = Path(__file__).parents[3] / "models" / "tiny-llama"
    shutil.copytree(source, model, ignore=shutil.ignore_patterns("heldout.txt"))
    options = ["--soc", "gen3", "--precision", "fp16", "--prefill", "8", "--out", str(tmp_path)]
    assert main(["prepare", model, *options, "--context", "32,64"]) == 0
    for context in (32, 64):
        artifact = load_artifact(tmp_path / f"cl{context}" / "tiny-fp16-kvfp16-SM8650")
        assert artifact.manifest.recipe.context_length == context
        assert str(artifact.folder) in capsys.readouterr().out or context == 64
    assert main(["prepare", model, *options, "--context", "32,32"]) == 20
