from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.model.checkpoint import Checkpoint
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.graph import build_graph
from harness.model.storage import save_models


def feed_of_zeros(graph: CpuGraph) -> dict[str, np.ndarray]:
    return {t.name: np.zeros(t.shape, np.int32 if t.name == "input_ids" else np.float32) for t in graph.spec.inputs}


def test_two_graphs_share_one_data_file_that_holds_each_weight_once(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    models = {f"ar{n}.onnx": build_graph(tiny_llama, n_tokens=n, context_length=32) for n in (8, 1)}
    save_models(tmp_path, models, "weights.data")
    size = (tmp_path / "weights.data").stat().st_size
    n_weights = 1_771_200 + 1024 * 192  # the head is written apart from the table it is tied to, transposed
    assert 4 * 1_771_200 < size < 4 * n_weights * 1.02
    assert max(path.stat().st_size for path in tmp_path.glob("*.onnx")) < 100_000


def test_a_stored_graph_computes_what_it_computed_in_memory(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    model = build_graph(tiny_llama, n_tokens=1, context_length=8)
    in_memory = CpuGraph(model.SerializeToString())
    save_models(tmp_path, {"ar1.onnx": model}, "weights.data")
    stored = CpuGraph(tmp_path / "ar1.onnx")
    feed = feed_of_zeros(in_memory)
    assert np.array_equal(stored.run(feed)["logits"], in_memory.run(feed)["logits"])
