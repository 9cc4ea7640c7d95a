from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the prepare extra")

from onnx import TensorProto, helper, numpy_helper

from harness.errors import ModelError
from harness.model.cut import Piece, cut_graph
from harness.model.reference import CpuGraph


def graph(nodes: list[Any], constants: dict[str, np.ndarray] | None = None, kind: int = TensorProto.FLOAT) -> Any:
    """From ``x`` to ``y``, both (4, 4)."""
    made = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", kind, (4, 4))],
        [helper.make_tensor_value_info("y", kind, (4, 4))],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def node(op: str, inputs: str, output: str) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=output)


def run(pieces: list[Piece], x: np.ndarray) -> np.ndarray:
    values: dict[str, Any] = {"x": x}
    for piece in pieces:
        given = {each.name: values[each.name] for each in piece.model.graph.input}
        values |= CpuGraph(piece.model.SerializeToString(), _any_spec(piece.model)).run(given)
    result: np.ndarray = values["y"]
    return result


def _any_spec(model: Any) -> Any:
    from harness.model.io_specs import io_specs
    from harness.record.artifact import GraphSpec

    inputs, outputs = io_specs(model)
    return GraphSpec(name="", n_tokens=1, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)


def places(pieces: list[Piece]) -> str:
    return " | ".join("CPU" if piece.refused else "HTP" for piece in pieces)


X = np.arange(16, dtype=np.float32).reshape(4, 4)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (set(), "HTP"),
        ({"b"}, "HTP | CPU | HTP"),
        ({"a"}, "CPU | HTP"),
        ({"y"}, "HTP | CPU"),
        ({"a", "b"}, "CPU | HTP"),
        ({"a", "y"}, "CPU | HTP | CPU"),
        ({"a", "b", "y"}, "CPU"),
    ],
)
def test_a_chain_is_cut_around_what_is_refused(refused: set[str], expected: str) -> None:
    whole = graph([node("Mul", "x x", "a"), node("Trilu", "a", "b"), node("Add", "b x", "y")])
    pieces = cut_graph(whole, refused)
    assert places(pieces) == expected
    assert {name for piece in pieces for name in piece.refused} == refused
    np.testing.assert_array_equal(run(pieces, X), np.triu(X * X) + X)


def test_a_branch_beside_the_refused_operator_stays_in_one_piece() -> None:
    """x -> a -> b(refused) -> y and x -> c -> d -> y: c and d run before b, in the first piece."""
    whole = graph(
        [
            node("Mul", "x x", "a"),
            node("Trilu", "a", "b"),
            node("Neg", "x", "c"),
            node("Abs", "c", "d"),
            node("Add", "b d", "y"),
        ]
    )
    pieces = cut_graph(whole, {"b"})
    assert [[each.op_type for each in piece.model.graph.node] for piece in pieces] == [
        ["Mul", "Neg", "Abs"],
        ["Trilu"],
        ["Add"],
    ]
    assert [value.name for value in pieces[2].model.graph.input] == ["b", "d"] or [
        value.name for value in pieces[2].model.graph.input
    ] == ["d", "b"]
    np.testing.assert_array_equal(run(pieces, X), np.triu(X * X) + np.abs(X))


def test_quantised_values_pass_from_piece_to_piece_as_integers() -> None:
    """x u16 -> DQ -> Mul -> Q -> DQ -> Trilu (refused) -> Q -> DQ -> Mul with the first DQ's value -> Q -> y."""
    scale = {"s": np.float32(0.01), "z": np.uint16(0)}
    whole = graph(
        [
            node("DequantizeLinear", "x s z", "xf"),
            node("Mul", "xf xf", "af"),
            node("QuantizeLinear", "af s z", "aq"),
            node("DequantizeLinear", "aq s z", "ad"),
            node("Trilu", "ad", "bf"),
            node("QuantizeLinear", "bf s z", "bq"),
            node("DequantizeLinear", "bq s z", "bd"),
            node("Mul", "bd xf", "yf"),
            node("QuantizeLinear", "yf s z", "y"),
        ],
        {name: np.asarray(value) for name, value in scale.items()},
        TensorProto.UINT16,
    )
    pieces = cut_graph(whole, {"bf"})
    assert places(pieces) == "HTP | CPU | HTP"
    edges = [value for piece in pieces for value in (*piece.model.graph.input, *piece.model.graph.output)]
    assert {value.type.tensor_type.elem_type for value in edges} == {TensorProto.UINT16}
    assert [[value.name for value in piece.model.graph.input] for piece in pieces] == [["x"], ["aq"], ["x", "bq"]]
    x = (np.arange(16, dtype=np.uint16) * 10).reshape(4, 4)
    np.testing.assert_array_equal(run(pieces, x), run([Piece(model=whole, refused=())], x))


def test_a_value_without_a_shape_cannot_be_cut_at() -> None:
    whole = graph([helper.make_node("Odd", ["x"], ["a"], name="a", domain="own"), node("Trilu", "a", "y")])
    whole.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match="cannot be cut at a"):
        cut_graph(whole, {"y"})
