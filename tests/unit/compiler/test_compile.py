from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.compiler import libraries
from harness.compiler.compile import compile_graph
from harness.compiler.libraries import library_folder
from harness.errors import CompileError, HostError
from harness.soc import find_soc

pytest.importorskip("onnx", reason="needs the prepare extra")

import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.model.io_specs import io_specs


def save(path: Path, nodes: list[Any], constants: dict[str, np.ndarray]) -> Path:
    """A graph of float16 (1, 8) from ``x`` to ``y``."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (1, 8))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)
    return path


def compile_small(model: Path, binary: Path, **changes: Any) -> Any:
    inputs, outputs = io_specs(onnx.load(model))
    options = {"soc": find_soc("gen3"), "fp16": True, "n_tokens": 1, "inputs": inputs, "outputs": outputs, **changes}
    return compile_graph(model, binary=binary, **options)


@pytest.mark.lane("qnn")
def test_a_compiled_graph_is_described_by_the_binary_itself(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "x"], ["y"])], {})
    compiled = compile_small(model, tmp_path / "m.bin")
    assert (compiled.facts.soc_number, compiled.facts.htp_arch) == (57, 75)
    assert [tensor.name for tensor in compiled.facts.graphs[0].inputs] == ["x"]
    assert compiled.facts.graphs[0].outputs[0].shape == (1, 8)
    assert compiled.context.graphs[0].name == compiled.facts.graphs[0].name
    assert compiled.context.n_bytes == (tmp_path / "m.bin").stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.bin", "m.onnx"]


@pytest.mark.lane("qnn")
def test_where_the_model_lies_does_not_change_the_bytes(tmp_path: Path) -> None:
    binaries = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        model = save(tmp_path / name / "m.onnx", [helper.make_node("Mul", ["x", "x"], ["y"])], {})
        compile_small(model, tmp_path / name / "m.bin")
        binaries.append((tmp_path / name / "m.bin").read_bytes())
    assert binaries[0] == binaries[1]


@pytest.mark.lane("qnn")
def test_an_operator_that_the_htp_refuses_is_named_with_a_way_out_and_leaves_no_binary(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", [helper.make_node("Trilu", ["x"], ["y"], name="triangle")], {})
    with pytest.raises(CompileError, match=r"the HTP refuses 1 operators of m.onnx") as caught:
        compile_small(model, tmp_path / "m.bin")
    assert str(caught.value.found).startswith("Trilu (triangle): ")
    assert caught.value.next_step == "Trilu: give the mask as a graph input, or as a constant"
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.lane("qnn")
def test_a_tensor_that_comes_out_differently_is_named(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "x"], ["y"])], {})
    _, outputs = io_specs(onnx.load(model))
    with pytest.raises(CompileError, match="output y came out differently"):
        compile_small(model, tmp_path / "m.bin", outputs=(replace(outputs[0], shape=(1, 9)),))
    assert not (tmp_path / "m.bin").exists()


@pytest.mark.lane("qnn")
def test_a_binary_for_another_arch_than_the_catalogue_says_is_refused(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "x"], ["y"])], {})
    with pytest.raises(CompileError, match="found: soc number 57, HTP v75; expected: soc number 57, HTP v79"):
        compile_small(model, tmp_path / "m.bin", soc=replace(find_soc("gen3"), htp_arch=79))


def test_a_host_without_onnxruntime_qnn_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "PACKAGE", "no_package_of_this_name")
    with pytest.raises(HostError, match=r"pip install 'snapgate\[prepare\]'"):
        library_folder()
