"""Each rule on a graph that trips it and on one that does not."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
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

from harness.lint.findings import Finding
from harness.lint.numbers import softmax_effect
from harness.lint.run import lint

FLOAT, HALF, U16, U8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT16, TensorProto.UINT8


class Graph:
    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "m.onnx"
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def int4(self, name: str, values: Sequence[int], shape: tuple[int, ...]) -> str:
        self.constants.append(helper.make_tensor(name, TensorProto.INT4, shape, values))
        return name

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def dequantize(self, name: str, scale: float, zero: int, dtype: Any = np.uint16) -> str:
        parts = [self.constant(f"{name}_s", scale), self.constant(f"{name}_z", zero, dtype)]
        return self.node("DequantizeLinear", [name, *parts], f"{name}_real")

    def quantize(self, name: str, scale: float, zero: int, dtype: Any = np.uint16, to: str | None = None) -> str:
        parts = [self.constant(f"{name}_qs", scale), self.constant(f"{name}_qz", zero, dtype)]
        return self.node("QuantizeLinear", [name, *parts], to or f"{name}_q")

    def input(self, name: str, kind: int, *shape: Any) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, *shape: Any) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def found(self, soc: str = "gen3") -> list[Finding]:
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=11), self.path)
        return list(lint(self.path, find_soc(soc)))

    def rules(self, soc: str = "gen3") -> dict[str, str]:
        return {finding.rule: str(finding.severity) for finding in self.found(soc)}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(tmp_path)


def quantised_softmax(
    graph: Graph, scale: float, *, bits: Any = np.uint16, out: float = 1 / 65535, width: int = 4
) -> Graph:
    kind = U16 if bits is np.uint16 else U8
    graph.input("scores", kind, 1, width)
    real = graph.dequantize("scores", scale, 100, bits)
    graph.quantize(graph.node("Softmax", [real], "weights"), out, 0, bits, to="y")
    graph.output("y", kind, 1, width)
    return graph


@pytest.mark.parametrize(
    ("scale", "wanted"), [(0.01, {}), (0.4, {"mask-scale": "warning"}), (5e33, {"mask-scale": "error"})]
)
def test_a_scale_that_swallows_the_scores_is_graded(graph: Graph, scale: float, wanted: dict[str, str]) -> None:
    assert quantised_softmax(graph, scale).rules() == wanted


def float_mask(graph: Graph, mask: Any) -> Graph:
    graph.input("scores", FLOAT, 2, 3)
    graph.node("Add", ["scores", graph.constant("mask", mask)], "masked")
    graph.node("Softmax", ["masked"], "y")
    graph.output("y", FLOAT, 2, 3)
    return graph


@pytest.mark.parametrize(("value", "wanted"), [(-100.0, {}), (-1e9, {"mask-scale": "warning"})])
def test_a_float_mask_that_quantisation_would_choke_on(graph: Graph, value: float, wanted: dict[str, str]) -> None:
    assert float_mask(graph, [[0, value, value], [0, 0, value]]).rules() == wanted


def test_a_row_that_sees_nothing_is_named(graph: Graph) -> None:
    (finding,) = float_mask(graph, [[0, 0, 0], [-50, -50, -50]]).found()
    assert (finding.rule, finding.tensors) == ("masked-rows", ("mask",))
    assert "1 of 2 rows hide every position, the first is row 1" in finding.found


def test_the_error_of_a_mask_is_told_for_each_width(graph: Graph) -> None:
    (finding,) = float_mask(graph, [[0, -1e6, -1e6], [0, 0, -1e6]]).found()
    assert finding.effect.endswith("a factor of 1 + 2.06e+03 at 16 bits and 1 + 1.01e+304 at 8 bits")
    # 1e4 over 65535 steps: half a step is 0.0763, and e^0.0763 = 1.0793; over 255 steps it is 19.6, and e^19.6 = 3.28e8
    assert softmax_effect(1e4).endswith("a factor of 1 + 0.0793 at 16 bits and 1 + 3.28e+08 at 8 bits")


def chosen_mask(graph: Graph, shown: list[list[int]], value: float) -> Graph:
    """As torch exports it: constants are nodes, and the mask chooses between a score and a constant."""
    for name, values in (("shown", np.array(shown, np.bool_)), ("low", np.float32(value))):
        graph.node("Constant", [], name, value=numpy_helper.from_array(np.asarray(values), f"{name}_value"))
    graph.node("Where", ["shown", graph.input("scores", FLOAT, 2, 3), "low"], "masked")
    graph.node("Softmax", ["masked"], "y")
    graph.output("y", FLOAT, 2, 3)
    return graph


@pytest.mark.parametrize(
    ("shown", "value", "wanted"),
    [
        ([[1, 0, 0], [1, 1, 0]], -50.0, {}),
        ([[1, 0, 0], [0, 0, 0]], -50.0, {"masked-rows": "error"}),
        ([[1, 0, 0], [1, 1, 0]], -3.4e38, {"mask-scale": "warning"}),
    ],
)
def test_a_mask_that_is_chosen_is_seen_like_one_that_is_added(
    graph: Graph, shown: list[list[int]], value: float, wanted: dict[str, str]
) -> None:
    assert chosen_mask(graph, shown, value).rules() == wanted


@pytest.mark.parametrize(("scale", "wanted"), [(0.00024, {}), (0.00025, {"fp16-range": "error"})])
def test_a_squared_norm_of_a_known_range_is_summed(graph: Graph, scale: float, wanted: dict[str, str]) -> None:
    """1024 values of up to 32768 steps: 7.86 squared 1024 times is 63,300; 8.19 squared 1024 times is 68,700."""
    real = graph.dequantize(graph.input("x", U16, 1, 1024), scale, 32768)
    norm = graph.node("ReduceL2", [real, graph.constant("axes", [1], np.int64)], "norm")
    graph.quantize(graph.node("Reciprocal", [norm], "inverse"), 1.0, 0, to="y")
    graph.output("y", U16, 1, 1)
    assert graph.rules() == wanted


def test_a_square_in_fp16_is_told_apart_from_one_in_fp32(graph: Graph, tmp_path: Path) -> None:
    graph.node("Mul", [graph.input("x", HALF, 4), "x"], "y")
    graph.output("y", HALF, 4)
    assert graph.rules() == {"fp16-range": "warning"}
    other = Graph(tmp_path)
    other.node("Mul", [other.input("x", FLOAT, 4), "x"], "y")
    other.output("y", FLOAT, 4)
    assert other.rules() == {}


@pytest.mark.parametrize(("scale", "wanted"), [(0.007, {}), (0.01, {"fp16-range": "error"})])
def test_a_float_square_of_a_known_range_is_computed(graph: Graph, scale: float, wanted: dict[str, str]) -> None:
    """u16 around 32768: 0.007 reaches 229 (52,600 squared), 0.01 reaches 328 (107,000 squared)."""
    real = graph.dequantize(graph.input("x", U16, 4), scale, 32768)
    graph.node("Pow", [real, graph.constant("two", 2.0)], "square")
    graph.quantize(graph.node("Sqrt", ["square"], "root"), 1.0, 0, to="y")
    graph.output("y", U16, 4)
    assert graph.rules() == wanted


def test_an_infinite_constant_is_an_error(graph: Graph) -> None:
    graph.node("Add", [graph.input("x", HALF, 2), graph.constant("c", [np.inf, 0], np.float16)], "y")
    graph.output("y", HALF, 2)
    assert graph.rules() == {"fp16-range": "error"}


@pytest.mark.parametrize(("zeros", "wanted"), [([0, 0], {}), ([0, 3], {"int4-zero-point": "error"})])
def test_a_four_bit_zero_point_that_the_htp_ignores(graph: Graph, zeros: list[int], wanted: dict[str, str]) -> None:
    graph.int4("w", [1, 2, 3, 4], (2, 2))
    parts = ["w", graph.constant("s", [0.5, 0.25]), graph.int4("z", zeros, (2,))]
    graph.node("MatMul", [graph.input("x", FLOAT, 1, 2), graph.node("DequantizeLinear", parts, "real", axis=1)], "y")
    graph.output("y", FLOAT, 1, 2)
    found = graph.found()
    assert {finding.rule: str(finding.severity) for finding in found} == wanted
    if found:
        assert "1 of 2 zero points are not 0, up to 3" in found[0].found
        assert "off by up to 0.75" in found[0].effect


@pytest.mark.parametrize(("bias", "wanted"), [(1.0, {}), (300.0, {"bias-overflow": "error"})])
def test_a_bias_beyond_int32_at_its_scale_product(graph: Graph, bias: float, wanted: dict[str, str]) -> None:
    """Scales 1e-4 and 1e-3: a step is 1e-7, so 2^31 steps are 214.7."""
    x = graph.dequantize(graph.input("x", U16, 1, 2), 1e-4, 0)
    graph.constant("w", [[1, 2], [3, 4]], np.uint8)
    weight = graph.dequantize("w", 1e-3, 0, np.uint8)
    graph.quantize(graph.node("Gemm", [x, weight, graph.constant("b", [bias, 0])], "sum"), 1.0, 0, to="y")
    graph.output("y", U16, 1, 2)
    assert graph.rules() == wanted


@pytest.mark.parametrize(
    ("out", "width", "wanted"),
    [(1 / 255, 500, {}), (1 / 255, 600, {"softmax-range": "warning"}), (0.5 / 255, 4, {"softmax-range": "warning"})],
)
def test_a_softmax_that_rounds_the_full_context_to_zero_or_is_clipped(
    graph: Graph, out: float, width: int, wanted: dict[str, str]
) -> None:
    assert quantised_softmax(graph, 0.01, bits=np.uint8, out=out, width=width).rules() == wanted


def test_a_cache_left_in_float_is_an_error_and_another_float_edge_a_warning(graph: Graph) -> None:
    graph.quantize(graph.input("past_key_0_in", FLOAT, 2), 1.0, 0)
    graph.dequantize("past_key_0_in_q", 1.0, 0)
    graph.node("Add", ["past_key_0_in_q_real", graph.input("x", FLOAT, 2)], "sum")
    graph.quantize("sum", 1.0, 0, to="y")
    graph.output("y", U16, 2)
    found = {finding.tensors[0]: (finding.rule, str(finding.severity)) for finding in graph.found()}
    assert found == {"past_key_0_in": ("float-io", "error"), "x": ("float-io", "warning")}


def test_open_dimensions_and_unused_inputs_are_named(graph: Graph) -> None:
    graph.node("Relu", [graph.input("x", FLOAT, "batch", 2)], "y")
    graph.input("nobody", FLOAT, 2)
    graph.output("y", FLOAT, "batch", 2)
    found = [(finding.rule, finding.tensors) for finding in graph.found()]
    assert sorted(found) == [("dynamic-shape", ("x",)), ("dynamic-shape", ("y",)), ("unused-input", ("nobody",))]


def test_an_output_that_nothing_computes_is_named(graph: Graph) -> None:
    graph.node("Relu", [graph.input("x", FLOAT, 2)], "y")
    graph.node("Identity", ["x"], "same")
    graph.constant("fixed", [1, 2])
    for name in ("y", "same", "fixed"):
        graph.output(name, FLOAT, 2)
    found = {finding.tensors[0]: (finding.rule, finding.found) for finding in graph.found()}
    assert found == {
        "same": ("unused-output", "an input, x, put out by 0 operators"),
        "fixed": ("unused-output", "a constant, fixed, put out by 0 operators"),
    }


def with_weights_outside(graph: Graph, n_elements: int = 1 << 20) -> Path:
    """A half-precision Add whose weights lie in a file of 2 MiB beside the model. The file is returned."""
    graph.node("Add", [graph.input("x", HALF, n_elements), graph.constant("w", np.ones(n_elements), np.float16)], "y")
    graph.output("y", HALF, n_elements)
    assert graph.rules() == {}
    model = onnx.load(graph.path)
    onnx.save(model, graph.path, save_as_external_data=True, location="m.data", size_threshold=0)
    return graph.path.with_name("m.data")


def test_weights_outside_the_model_are_looked_at_where_they_lie(graph: Graph) -> None:
    data = with_weights_outside(graph)
    assert lint(graph.path, find_soc("gen3")) == ()
    values = np.ones(1 << 20, np.float16)
    values[-1] = np.inf
    data.write_bytes(values.tobytes())
    assert [finding.rule for finding in lint(graph.path, find_soc("gen3"))] == ["fp16-range"]


def test_large_weights_are_not_loaded(graph: Graph) -> None:
    """64 MiB on disk, looked at in pieces of 8: Python and NumPy never hold more than two of them."""
    with_weights_outside(graph, 32 << 20)
    tracemalloc.start()
    try:
        assert lint(graph.path, find_soc("gen3")) == ()
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_a_missing_or_short_data_file_is_a_finding_and_no_failure(graph: Graph) -> None:
    data = with_weights_outside(graph)
    data.write_bytes(bytes(100))
    (short,) = lint(graph.path, find_soc("gen3"))
    data.unlink()
    (missing,) = lint(graph.path, find_soc("gen3"))
    assert (short.rule, missing.rule) == ("missing-weights", "missing-weights")
    assert (short.tensors, missing.tensors) == (("w",), ("w",))
    assert short.found == "m.data has 100 bytes, the tensor ends at 2097152"
    assert missing.found == "no file m.data"


def test_a_data_file_outside_the_models_folder_is_not_opened(graph: Graph) -> None:
    with_weights_outside(graph)
    model = onnx.load(graph.path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../m.data"
    graph.path.write_bytes(model.SerializeToString())
    (finding,) = lint(graph.path, find_soc("gen3"))
    assert finding.found == "../m.data lies outside the model's folder"


@pytest.mark.parametrize(("soc", "wanted"), [("gen2", {}), ("gen1", {"arch-floor": "error"})])
def test_a_signed_sixteen_bit_second_operand_below_v73(graph: Graph, soc: str, wanted: dict[str, str]) -> None:
    left = graph.dequantize(graph.input("q", U16, 2, 8), 0.01, 0)
    right = graph.dequantize(graph.input("k", TensorProto.INT16, 8, 16), 0.01, 0, np.int16)
    graph.quantize(graph.node("MatMul", [left, right], "scores"), 0.1, 0, to="y")
    graph.output("y", U16, 2, 16)
    assert graph.rules(soc) == wanted


def context(graph: Graph, name: str, source: str, target: str) -> None:
    graph.nodes.append(
        helper.make_node(
            "EPContext", [source], [target], name=name, domain="com.microsoft",
            embed_mode=0, main_context=1, ep_cache_context=f"{name}.bin",
        )
    )  # fmt: skip


def test_a_context_without_its_binary_and_a_graph_in_pieces(graph: Graph, tmp_path: Path) -> None:
    context(graph, "one", graph.input("x", FLOAT, 2), "y")
    graph.output("y", FLOAT, 2)
    assert graph.rules() == {"no-context": "error"}
    (tmp_path / "one.bin").write_bytes(b"binary")
    assert graph.rules() == {}
    (tmp_path / "two.bin").write_bytes(b"binary")
    context(graph, "two", "y", "z")
    graph.output("z", FLOAT, 2)
    (finding,) = graph.found()
    assert (finding.rule, finding.found) == ("split-graph", "2 EPContext nodes and 0 others")


@pytest.mark.parametrize(("soc", "wanted"), [("gen2", {}), ("gen1", {"arch-floor": "error"})])
def test_float_operators_below_v73(graph: Graph, soc: str, wanted: dict[str, str]) -> None:
    graph.node("Relu", [graph.input("x", FLOAT, 2)], "y")
    graph.output("y", FLOAT, 2)
    assert graph.rules(soc) == wanted


@pytest.mark.parametrize(("soc", "wanted"), [("gen1", set()), ("sd888", {"arch-floor"})])
def test_weights_in_blocks_below_v69(graph: Graph, soc: str, wanted: set[str]) -> None:
    graph.int4("w", [1] * 64, (32, 2))
    parts = ["w", graph.constant("s", [[0.5, 0.25]]), graph.int4("z", [0, 0], (1, 2))]
    weight = graph.node("DequantizeLinear", parts, "real", axis=0, block_size=32)
    x = graph.dequantize(graph.input("x", U16, 1, 32), 0.01, 0)
    graph.quantize(graph.node("MatMul", [x, weight], "sum"), 0.1, 0, to="y")
    graph.output("y", U16, 1, 2)
    assert set(graph.rules(soc)) == wanted


@pytest.mark.parametrize(
    ("soc", "rows", "heads", "hit"),
    [("gen1", 1, 4, True), ("gen1p", 1, 2, True), ("gen1", 2, 4, False), ("gen1", 1, 1, False), ("gen3", 1, 4, False)],
)
def test_one_row_of_sixteen_bits_a_head_on_v69(graph: Graph, soc: str, rows: int, heads: int, hit: bool) -> None:
    query = graph.dequantize(graph.input("q", U16, heads, rows, 8), 0.01, 0)
    keys = graph.dequantize(graph.input("k", U16, heads, 8, 16), 0.01, 0)
    graph.quantize(graph.node("MatMul", [query, keys], "scores"), 0.1, 0, to="y")
    graph.output("y", U16, heads, rows, 16)
    assert graph.rules(soc) == ({"one-row-u16-attention": "error"} if hit else {})


def test_heads_as_the_first_axis_escape_the_defect_of_v69(graph: Graph) -> None:
    query = graph.dequantize(graph.input("q", U16, 4, 1, 1, 8), 0.01, 0)
    keys = graph.dequantize(graph.input("k", U16, 4, 1, 8, 16), 0.01, 0)
    graph.quantize(graph.node("MatMul", [query, keys], "scores"), 0.1, 0, to="y")
    graph.output("y", U16, 4, 1, 1, 16)
    assert graph.rules("gen1") == {}


def test_three_queries_that_share_a_key_escape_the_defect_of_v69(graph: Graph) -> None:
    query = graph.dequantize(graph.input("q", U16, 2, 3, 1, 8), 0.01, 0)
    keys = graph.dequantize(graph.input("k", U16, 2, 1, 8, 16), 0.01, 0)
    graph.quantize(graph.node("MatMul", [query, keys], "scores"), 0.1, 0, to="y")
    graph.output("y", U16, 2, 3, 1, 16)
    assert graph.rules("gen1") == {}


def test_the_exit_code_is_1_on_errors_only(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    quantised_softmax(graph, 0.4).rules()
    assert main(["lint", str(graph.path), "--soc", "gen3"]) == 0
    assert "0 errors, 1 warnings" in capsys.readouterr().out
    assert main(["lint", str(graph.path), "--soc", "gen3", "--json"]) == 0
    assert [entry["rule"] for entry in json.loads(capsys.readouterr().out)] == ["mask-scale"]


def test_errors_come_first_and_set_the_exit_code(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    quantised_softmax(graph, 5.0)
    graph.input("nobody", U16, 2)
    assert [str(finding.severity) for finding in graph.found()] == ["error", "warning"]
    assert main(["lint", str(graph.path), "--soc", "gen3"]) == 1
    assert "error: mask-scale: m.onnx: scores_real" in capsys.readouterr().out


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no")
    with pytest.raises(UserError, match=r"m.onnx is not an ONNX model"):
        lint(tmp_path / "m.onnx", find_soc("gen3"))
