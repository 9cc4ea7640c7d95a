from __future__ import annotations

import numpy as np
import pytest

from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.reference import CpuGraph
from harness.model.shards import cut_evenly, layer_bytes, shard_sizes, split_graph
from harness.record.artifact import GraphSpec

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.graph import build_graph
from harness.model.io_specs import io_specs
from harness.model.shards import ShardChain

PROMPT = (0, *range(300, 309))


def runner(model: object, n_tokens: int) -> CpuGraph:
    inputs, outputs = io_specs(model)
    spec = GraphSpec(name="", n_tokens=n_tokens, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)
    return CpuGraph(model.SerializeToString(), spec)  # type: ignore[attr-defined]


@pytest.mark.parametrize("cuts", [(0,), (1,), (0, 1, 2)])
def test_shards_compute_what_the_whole_model_computes(tiny_llama: Checkpoint, cuts: tuple[int, ...]) -> None:
    graphs = {n: build_graph(tiny_llama, n_tokens=n, context_length=32) for n in (8, 1)}
    chains = [ShardChain([runner(part, n) for part in split_graph(graph, cuts)]) for n, graph in graphs.items()]
    whole = [runner(graph, n) for n, graph in graphs.items()]
    rows = [
        Decoder(runners, tiny_llama.facts, context_length=32, mask_value=-100.0).extend(PROMPT)
        for runners in (chains, whole)
    ]
    assert np.array_equal(*rows)


def test_each_shard_has_the_cache_of_its_own_layers_and_hands_the_residual_on(tiny_llama: Checkpoint) -> None:
    first, second = split_graph(build_graph(tiny_llama, n_tokens=8, context_length=32), (1,))
    reads, puts = ({value.name for value in side} for side in (second.graph.input, first.graph.output))
    assert reads & puts == {"layer1_after_feed_forward"}
    assert {f"past_key_{layer}_in" for layer in (2, 3)} <= reads
    assert {f"past_key_{layer}_out" for layer in (0, 1)} <= puts
    assert not reads & {"input_ids", "past_key_0_in", "past_key_1_in"}
    assert "logits" in {value.name for value in second.graph.output}
    n_weights = [sum(len(tensor.raw_data) for tensor in part.graph.initializer) for part in (first, second)]
    assert n_weights[0] == pytest.approx(n_weights[1], rel=0.001)  # two layers and a table; two layers and a head


def test_cuts_make_shards_of_about_equal_size() -> None:
    assert cut_evenly([1] * 8, 1) == ()
    assert cut_evenly([1] * 8, 2) == (3,)
    assert cut_evenly([1] * 8, 4) == (1, 3, 5)
    assert cut_evenly([10, 1, 1, 1, 1, 6], 2) == (0,)
    assert cut_evenly([1, 1, 100], 3) == (0, 1)
    assert shard_sizes([10, 1, 1, 1, 1, 6], (0,)) == [10, 10]


def test_the_size_of_a_layer_is_counted_by_hand(tiny_llama: Checkpoint) -> None:
    sizes = layer_bytes(tiny_llama.facts, context_length=512, bits=8, head_bits=8, kv_bytes=1)
    weights = 192 * 192 * 2 + 192 * 64 * 2 + 3 * 192 * 512
    cache = 2 * 512 * 64
    assert sizes == [weights + cache + 1024 * 192 * 2, weights + cache, weights + cache, weights + cache + 1024 * 192]
