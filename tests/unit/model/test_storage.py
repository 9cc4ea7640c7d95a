from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.model.checkpoint import Checkpoint
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.graph import build_graph
from harness.model.storage import TensorStore, array_of, load_graph, save_graph


def feed_of_zeros(graph: CpuGraph) -> dict[str, np.ndarray]:
    return {t.name: np.zeros(t.shape, np.int32 if t.name == "input_ids" else np.float32) for t in graph.spec.inputs}


def test_two_graphs_share_one_data_file_that_holds_each_weight_once(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    with TensorStore(tmp_path / "weights.data") as store:
        for n in (8, 1):
            save_graph(tmp_path / f"ar{n}.onnx", build_graph(tiny_llama, n_tokens=n, context_length=32, store=store))
    size = (tmp_path / "weights.data").stat().st_size
    n_weights = 1_771_200 + 1024 * 192  # the head is written apart from the table it is tied to, transposed
    assert 4 * 1_771_200 < size < 4 * n_weights * 1.02
    assert max(path.stat().st_size for path in tmp_path.glob("*.onnx")) < 100_000


def test_the_second_graph_reads_no_weight_again(
    tiny_llama: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = type(tiny_llama.weights).read

    def counted(self: object, name: str) -> np.ndarray:
        read.append(name)
        return whole(self, name)  # type: ignore[arg-type]

    monkeypatch.setattr(type(tiny_llama.weights), "read", counted)
    with TensorStore(tmp_path / "weights.data") as store:
        build_graph(tiny_llama, n_tokens=8, context_length=32, store=store)
        n_first = len(read)
        build_graph(tiny_llama, n_tokens=1, context_length=32, store=store)
    assert n_first == 4 * 9 + 3  # nine tensors a layer; the table twice, for the tied head; the last norm
    assert len(read) == n_first


def test_a_stored_graph_computes_what_it_computes_in_memory(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    in_memory = CpuGraph(build_graph(tiny_llama, n_tokens=1, context_length=8).SerializeToString())
    with TensorStore(tmp_path / "weights.data") as store:
        save_graph(tmp_path / "ar1.onnx", build_graph(tiny_llama, n_tokens=1, context_length=8, store=store))
    feed = feed_of_zeros(in_memory)
    wanted = in_memory.run(feed)["logits"]
    assert np.array_equal(CpuGraph(tmp_path / "ar1.onnx").run(feed)["logits"], wanted)
    bare = load_graph(tmp_path / "ar1.onnx").SerializeToString()
    assert len(bare) < 100_000
    assert np.array_equal(CpuGraph(bare, folder=tmp_path).run(feed)["logits"], wanted)


@pytest.mark.parametrize("n_values", [3, 4001])
def test_values_come_back_from_the_model_or_its_data_file(tmp_path: Path, n_values: int) -> None:
    floats = np.linspace(-1, 1, n_values, dtype=np.float32).reshape(1, -1)
    nibbles = (np.arange(n_values) % 16 - 8).astype(np.int8)
    with TensorStore(tmp_path / "weights.data") as store:
        made = (store.initializer("floats", lambda: floats), store.initializer("nibbles", lambda: nibbles, 4))
    assert np.array_equal(array_of(made[0], tmp_path), floats)
    assert np.array_equal(array_of(made[1], tmp_path).astype(np.int8), nibbles)
