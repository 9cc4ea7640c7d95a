"""A model cut between layers, for HTPs whose address space does not hold it whole; shards run as if they were one.

What passes from shard to shard is the residual stream, under one name: an output of a graph, an input of the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from harness.model.interface import boundary
from harness.record.artifact import GraphSpec, ModelFacts, TensorSpec

if TYPE_CHECKING:
    import onnx

    from harness.model.decoder import GraphRunner

__all__ = ["ShardChain", "as_one", "boundary", "cut_evenly", "layer_bytes", "shard_sizes", "split_graph"]

Array = NDArray[Any]


def layer_bytes(
    facts: ModelFacts, *, context_length: int, bits: int, head_bits: int, kv_bytes: int, copies: int = 1
) -> list[int]:
    """Estimated bytes of weights and KV cache of each layer; the first with the table, the last with the head.

    ``bits``: of a layer's weight, scales included. ``copies``: of every weight in a context. The table has two bytes a
    number in every precision but w8a8's one.
    """
    query, kv = facts.n_heads * facts.head_dim, facts.n_kv_heads * facts.head_dim
    weights = facts.hidden_size * (2 * query + 2 * kv + 3 * facts.intermediate_size)
    cache = 2 * kv * context_length * kv_bytes
    sizes = [copies * (weights * bits // 8) + cache] * facts.n_layers
    sizes[0] += copies * facts.vocab_size * facts.hidden_size * 2
    sizes[-1] += copies * (facts.vocab_size * facts.hidden_size * head_bits // 8)
    return sizes


def cut_evenly(sizes: Sequence[int], n_shards: int) -> tuple[int, ...]:
    """The last layer of every shard but the last: shards of about equal size, none without a layer."""
    total, ends = sum(sizes), list(accumulate(sizes))
    cuts: list[int] = []
    for shard in range(1, n_shards):
        lowest, highest = (cuts[-1] + 1 if cuts else 0), len(sizes) - 1 - (n_shards - shard)
        goal = total * shard / n_shards
        cuts.append(min(range(lowest, highest + 1), key=lambda layer: abs(ends[layer] - goal)))
    return tuple(cuts)


def shard_sizes(sizes: Sequence[int], cuts: Sequence[int]) -> list[int]:
    starts = [0, *(cut + 1 for cut in cuts)]
    ends = [*(cut + 1 for cut in cuts), len(sizes)]
    return [sum(sizes[start:end]) for start, end in zip(starts, ends, strict=True)]


def split_graph(model: onnx.ModelProto, cuts: Sequence[int]) -> list[onnx.ModelProto]:
    """``model`` as graphs that, run in order, compute the same. Weights stay where they are."""
    from onnx import helper

    if not cuts:
        return [model]
    graph = model.graph
    borders = [boundary(layer) for layer in cuts]
    pieces: list[list[onnx.NodeProto]] = [[]]
    for node in graph.node:
        pieces[-1].append(node)
        if len(pieces) <= len(borders) and node.output[0] == borders[len(pieces) - 1]:
            pieces.append([])
    values = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    parts = []
    for index, nodes in enumerate(pieces):
        made = {name for node in nodes for name in node.output}
        read = {name for node in nodes for name in node.input}
        inputs = [value.name for value in graph.input if value.name in read]
        outputs = [value.name for value in graph.output if value.name in made]
        if index > 0:
            inputs.insert(0, borders[index - 1])
        if index < len(borders):
            outputs.insert(0, borders[index])
        inner = [values[name] for name in values if name in made and name not in outputs]
        part = helper.make_graph(
            nodes,
            f"{graph.name}_shard{index + 1}",
            [values[name] for name in inputs],
            [values[name] for name in outputs],
            [tensor for name, tensor in constants.items() if name in read],
            value_info=inner,
        )
        parts.append(
            helper.make_model(
                part,
                opset_imports=model.opset_import,
                ir_version=model.ir_version,
                producer_name=model.producer_name,
            )
        )
    return parts


class ShardChain:
    """Shards as one graph: a runner for ``Decoder``, whatever executes each of them."""

    def __init__(self, runners: Sequence[GraphRunner]) -> None:
        self._runners = runners
        inputs: dict[str, TensorSpec] = {}
        outputs: dict[str, TensorSpec] = {}
        for runner in runners:
            for tensor in runner.spec.inputs:
                if outputs.pop(tensor.name, None) is None:
                    inputs.setdefault(tensor.name, tensor)
            outputs |= {tensor.name: tensor for tensor in runner.spec.outputs}
        specs = [runner.spec for runner in runners]
        self._spec = GraphSpec(
            name="+".join(spec.name for spec in specs),
            n_tokens=specs[0].n_tokens,
            inputs=tuple(inputs.values()),
            outputs=tuple(outputs.values()),
            epcontext_nodes=sum(spec.epcontext_nodes for spec in specs),
            cpu_nodes=sum(spec.cpu_nodes for spec in specs),
        )

    @property
    def spec(self) -> GraphSpec:
        return self._spec

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        values = dict(feed)
        for runner in self._runners:
            values |= runner.run({tensor.name: values[tensor.name] for tensor in runner.spec.inputs})
        return {tensor.name: values[tensor.name] for tensor in self._spec.outputs}


def as_one(runners: Sequence[GraphRunner]) -> GraphRunner:
    return runners[0] if len(runners) == 1 else ShardChain(runners)
