from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.compiler.prepare import prepare
from harness.model.architecture import Role
from harness.model.checkpoint import load_checkpoint
from harness.soc import Precision, find_soc

TINY_LLAMA = Path(__file__).parents[3] / "models" / "tiny-llama"
NAME = "model.layers.1.mlp.up_proj"


def words(numbers: np.ndarray) -> np.ndarray:
    """(rows, 8 n) numbers of four bits to (rows, n) int32, the first lowest."""
    parts = numbers.reshape(len(numbers), -1, 8).astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))
    return np.bitwise_or.reduce(parts, axis=2).astype(np.uint32).view(np.int32)


@pytest.fixture
def gptq_checkpoint(tmp_path: Path) -> Path:
    """The bundled model with one matrix, 512 outputs and 192 inputs, in symmetric groups of 64."""
    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(TINY_LLAMA, tmp_path / "model"))
    (folder / "heldout.txt").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    matrix = tensors.pop(f"{NAME}.weight").astype(np.float32).reshape(512, 3, 64)
    scales = (np.abs(matrix).max(axis=2) / 6.5).astype(np.float16)  # no scale that rounding anew would find
    steps = np.clip(np.rint(matrix / scales[..., None].astype(np.float32)) + 8, 0, 15).astype(np.uint8)
    tensors[f"{NAME}.qweight"] = np.ascontiguousarray(words(steps.reshape(512, 192)).T)
    tensors[f"{NAME}.qzeros"] = words(np.full((3, 512), 7))
    tensors[f"{NAME}.scales"] = np.ascontiguousarray(scales.T)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.slow
@pytest.mark.lane("qnn")
def test_integers_of_the_checkpoint_reach_the_compiled_graph_as_they_are(gptq_checkpoint: Path, tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    said: list[str] = []
    artifact = prepare(
        gptq_checkpoint,
        soc=find_soc("gen3"),
        precision=Precision.W4A16_B32,
        context=64,
        prefill=16,
        out=tmp_path / "out",
        progress=said.append,
    )
    tensor = load_checkpoint(gptq_checkpoint).quantized(Role.UP, 1)
    assert tensor is not None
    model = onnx.load(artifact.path("reference/graph_ar1.onnx"))
    constants: dict[str, Any] = {item.name: item for item in model.graph.initializer}
    steps = numpy_helper.to_array(constants["layer1_up_weight_quantized"]).astype(np.int8)
    scales = numpy_helper.to_array(constants["layer1_up_weight_scale"])
    assert np.array_equal(steps, tensor.values.T.astype(np.int8) - 8)
    assert np.array_equal(scales, np.repeat(tensor.scales.T, 2, axis=0))
    assert "1 of 28 four-bit weights keep the checkpoint's own integers" in said
    assert artifact.manifest.notes == ("1 of 1 four-bit weights lie on a grid that blocks of 32 hold",)
