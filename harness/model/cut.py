"""A graph cut around operators that one of two processors refuses: pieces that, run in order, compute the same.

Each piece runs on one of the two. Quantised values pass as they are: the Q goes with the operator before it and the DQ
with the one behind it, a DQ that several pieces need is in each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

import onnx
from onnx import helper

from harness.errors import ModelError

_DQ = "DequantizeLinear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    model: onnx.ModelProto
    refused: tuple[str, ...]
    """Names of its nodes that the HTP refuses; with one, the piece runs on the CPU."""


def cut_graph(model: onnx.ModelProto, refused: Set[str]) -> list[Piece]:
    """``refused``: names of nodes, DQ nodes do not count. Weights stay where they are. ModelError: a value's type or
    shape is not known where the graph would be cut.
    """
    graph = model.graph
    stages = _stages(graph, refused)
    if not stages.refused:
        return [Piece(model=model, refused=())]
    known = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    values = {value.name: value for value in (*graph.input, *known.values(), *graph.value_info, *graph.output)}
    constants = {tensor.name for tensor in graph.initializer}
    nodes = _by_stage(graph, stages)
    made = {stage: {name for node in nodes[stage] for name in node.output} for stage in nodes}
    read = {stage: {name for node in nodes[stage] for name in node.input if name} for stage in nodes}
    results = {value.name for value in graph.output}
    pieces: list[Piece] = []
    for stage in sorted(nodes):
        later = {name for other in nodes if other > stage for name in read[other] - made[other]}
        inputs = [name for name in values if name in read[stage] - made[stage] and name not in constants]
        absent = sorted((read[stage] - made[stage]) - constants - set(values))
        if absent:
            raise ModelError(
                f"{graph.name} cannot be cut at {absent[0]}",
                found="no type or shape of this value",
                expected="a value whose type and shape follow from the graph",
                next_step="prepare it without cuts",
            )
        outputs = [name for name in values if name in made[stage] & (later | results)]
        part = helper.make_graph(
            nodes[stage],
            f"{graph.name}_piece{len(pieces) + 1}",
            [values[name] for name in inputs],
            [values[name] for name in outputs],
            [tensor for tensor in graph.initializer if tensor.name in read[stage]],
            value_info=[values[name] for name in values if name in made[stage] and name not in outputs],
        )
        cut = helper.make_model(
            part, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name=model.producer_name
        )
        here = tuple(node.name for node in nodes[stage] if node.name in stages.refused)
        pieces.append(Piece(model=cut, refused=here))
    return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    of_node: dict[int, int]
    """Index of each node but the DQs to its stage: even ones run on the HTP, odd ones on the CPU."""
    refused: frozenset[str]


def _stages(graph: onnx.GraphProto, refused: Set[str]) -> _Stages:
    made_by = {name: index for index, node in enumerate(graph.node) for name in node.output}
    of_node: dict[int, int] = {}
    seen: set[str] = set()

    def behind(name: str) -> int:
        """The stage that makes a value, looking through DQs; 0 for what the graph is given."""
        index = made_by.get(name)
        if index is None:
            return 0
        node = graph.node[index]
        return behind(node.input[0]) if node.op_type == _DQ else of_node[index]

    for index, node in enumerate(graph.node):  # in an order in which each follows what it reads
        if node.op_type == _DQ:
            continue
        stage = max((behind(name) for name in node.input if name), default=0)
        if node.op_type == "QuantizeLinear" and node.input[0] in made_by:
            of_node[index] = behind(node.input[0])
            continue
        on_cpu = node.name in refused
        if on_cpu:
            seen.add(node.name)
        of_node[index] = stage + (stage % 2 != on_cpu)
    return _Stages(of_node=of_node, refused=frozenset(seen))


def _by_stage(graph: onnx.GraphProto, stages: _Stages) -> Mapping[int, list[onnx.NodeProto]]:
    """Nodes of each stage in the graph's order; of a DQ, one for each stage that reads it."""
    results = {value.name for value in graph.output}
    readers: dict[str, set[int]] = defaultdict(set)
    for index, stage in stages.of_node.items():
        for name in graph.node[index].input:
            readers[name].add(stage)
    nodes: dict[int, list[onnx.NodeProto]] = defaultdict(list)
    last = max(stages.of_node.values())
    for index, node in enumerate(graph.node):
        if node.op_type != _DQ:
            nodes[stages.of_node[index]].append(node)
            continue
        wanted = readers[node.output[0]] | ({last} if node.output[0] in results else set())
        for stage in sorted(wanted):
            nodes[stage].append(node)
    return nodes
