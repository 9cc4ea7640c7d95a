"""Whole preparations of checkpoints other than the bundled LLaMA folder, run on the HTP emulator."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.compiler.execute import emulated_decoder
from harness.compiler.prepare import prepare
from harness.model.reference import load_reference
from harness.record.artifact import Artifact
from harness.record.comparison import Leg
from harness.soc import Precision, find_soc

pytestmark = [pytest.mark.lane("qnn"), pytest.mark.slow]

TINY_LLAMA = Path(__file__).parents[3] / "models" / "tiny-llama"
PROMPT = (0, *range(300, 317))


def with_extras(folder: Path, architecture: str) -> Path:
    """The bundled model under another architecture's name, with random values for the tensors which that one adds."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(TINY_LLAMA, folder)
    (folder / "heldout.txt").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    tensors = load_file(folder / "model.safetensors")
    random = np.random.default_rng(0)
    for layer in range(4):
        at = f"model.layers.{layer}.self_attn"
        if architecture == "Qwen2ForCausalLM":
            for name, width, size in (("q", 192, 0.5), ("k", 64, 0.5), ("v", 64, 0.05)):
                tensors[f"{at}.{name}_proj.bias"] = (size * random.standard_normal(width)).astype(np.float16)
        else:
            for name in "qk":
                tensors[f"{at}.{name}_norm.weight"] = (1 + 0.2 * random.standard_normal(32)).astype(np.float16)
    save_file(tensors, folder / "model.safetensors")
    return folder


def snr_db(artifact: Artifact) -> float:
    emulator, exact = emulated_decoder(artifact), load_reference(artifact, Leg.FP32)
    found, expected = emulator.real(emulator.extend(PROMPT)), exact.real(exact.extend(PROMPT))
    return float(20 * np.log10(np.linalg.norm(expected) / np.linalg.norm(found - expected)))


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(("precision", "least_db"), [(Precision.W8A16, 25.0), (Precision.FP16, 40.0)])
def test_what_qwen_adds_runs_on_the_htp(
    tmp_path: Path, architecture: str, precision: Precision, least_db: float
) -> None:
    artifact = prepare(
        with_extras(tmp_path / "model", architecture),
        soc=find_soc("gen3"),
        precision=precision,
        context=64,
        prefill=16,
        out=tmp_path / "out",
    )
    graphs = [graph for context in artifact.manifest.contexts for graph in context.graphs]
    assert [(g.n_tokens, g.epcontext_nodes, g.cpu_nodes) for g in graphs] == [(16, 1, 0), (1, 1, 0)]
    assert snr_db(artifact) > least_db


def test_a_gguf_file_becomes_an_artifact_with_its_own_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs the prepare extra")
    spec = importlib.util.spec_from_file_location("gguf_files", Path(__file__).parents[1] / "model" / "gguf_files.py")
    assert spec is not None
    assert spec.loader is not None
    files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    path = files.write_gguf(TINY_LLAMA, tmp_path / "tiny.gguf")
    artifact = prepare(
        path, soc=find_soc("gen3"), precision=Precision.FP16, context=64, prefill=16, out=tmp_path / "out"
    )
    assert artifact.manifest.model.name == "tiny"
    assert list(artifact.manifest.checkpoint_sha256) == ["tiny.gguf"]
    text = "Let there be light"
    found, expected = (Tokenizer.from_file(str(f / "tokenizer.json")) for f in (artifact.folder, TINY_LLAMA))
    assert found.encode(text).ids == expected.encode(text).ids
    assert snr_db(artifact) > 40.0
