from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli.main import main
from harness.errors import UserError
from harness.soc import find_soc

pytest.importorskip("onnx", reason="needs the prepare extra")

import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.compiler.operators import inspect_operators, read_verdicts

SHAPE = (8, 8)


def save(path: Path, nodes: list[Any], shape: tuple[Any, ...] = SHAPE, domains: tuple[str, ...] = ("",)) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ones(SHAPE, np.float32), "w")],
    )
    imports = [helper.make_opsetid(domain, 23 if domain == "" else 1) for domain in domains]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=11), path)
    return path


@pytest.fixture
def with_trilu(tmp_path: Path) -> Path:
    return save(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
            helper.make_node("Trilu", ["a"], ["b"]),
            helper.make_node("Mul", ["b", "w"], ["c"], name="product"),
            helper.make_node("Relu", ["c"], ["y"], name="last"),
        ],
    )


@pytest.mark.lane("qnn")
def test_every_node_is_placed_and_a_refused_one_has_reason_and_way_out(with_trilu: Path) -> None:
    report = inspect_operators(with_trilu, find_soc("gen3"))
    assert report.counts == {"MatMul": 1, "Mul": 1, "Relu": 1, "Trilu": 1}
    assert [(node.name, node.taken) for node in report.nodes] == [
        ("product", True),
        ("Trilu_1", False),
        ("Mul_2", True),
        ("last", True),
    ]
    (refused,) = report.refused
    assert refused.reason is not None
    assert "Operators of type `Trilu` are not supported" in refused.reason
    assert refused.way_out == "give the mask as a graph input, or as a constant"


@pytest.mark.lane("qnn")
def test_a_model_that_is_taken_whole_has_nothing_refused(tmp_path: Path) -> None:
    report = inspect_operators(save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])]), find_soc("gen3"))
    assert report.refused == ()
    assert report.failure is None


@pytest.mark.lane("qnn")
def test_a_dynamic_dimension_is_the_reason_given(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"], name="r")], shape=("batch", 8))
    (node,) = inspect_operators(model, find_soc("gen3")).nodes
    assert not node.taken
    assert node.way_out == "make every dimension fixed before compiling"


@pytest.mark.lane("qnn")
def test_weights_in_a_file_beside_the_model_are_found(tmp_path: Path) -> None:
    path = save(tmp_path / "plain.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])])
    onnx.save(
        onnx.load(path), tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    assert inspect_operators(tmp_path / "m.onnx", find_soc("gen3")).refused == ()


@pytest.mark.lane("qnn")
def test_the_command_prints_the_table_and_its_exit_code_says_that_something_is_refused(
    with_trilu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operators", str(with_trilu), "--soc", "gen3", "--io"]) == 22
    printed = capsys.readouterr().out
    assert "SM8650 (HTP v75) takes 3 of 4 nodes" in printed
    assert "not taken: Trilu Trilu_1" in printed
    assert "  in  w: float 8x8 constant" in printed


@pytest.mark.lane("qnn")
def test_json_holds_everything(with_trilu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators", str(with_trilu), "--soc", "gen3", "--json"]) == 22
    data = json.loads(capsys.readouterr().out)
    assert [node["taken"] for node in data["nodes"]] == [True, False, True, True]
    assert data["nodes"][0]["inputs"][1] == {"name": "w", "dtype": "float", "shape": [8, 8], "constant": True}


def test_operators_in_bodies_are_counted(tmp_path: Path) -> None:
    from harness.compiler.operators import _count

    body = helper.make_graph([helper.make_node("Relu", ["a"], ["b"])], "body", [], [])
    node = helper.make_node("If", ["c"], ["d"], then_branch=body, else_branch=body)
    custom = helper.make_node("Thing", ["d"], ["e"], domain="com.example")
    assert _count(helper.make_graph([node, custom], "g", [], [])) == {"Relu": 2, "If": 1, "com.example.Thing": 1}


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    with pytest.raises(UserError, match=r"m.onnx is not an ONNX model"):
        inspect_operators(tmp_path / "m.onnx", find_soc("gen3"))


def test_the_reason_of_a_group_is_that_of_each_of_its_nodes() -> None:
    log = (
        "x LogNodeSupport] Validation FAILED for 2 nodes in OrtNodeUnit (MatMul) :\n"
        "\tOperator type: DequantizeLinear Node name: dq Node index: 3\n"
        "\tOperator type: MatMul Node name: mm 1 Node index: 4\n"
        "\tREASON : no such thing\n"
        "x LogNodeSupport] Validation PASSED for 1 nodes in OrtNodeUnit (Add) :\n"
        "\tOperator type: Add Node name: add Node index: 5\n"
    )
    assert read_verdicts(log) == {"dq": "no such thing", "mm 1": "no such thing", "add": None}
