from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.compiler import probe
from harness.compiler.compile import compile_graph
from harness.compiler.execute import run_context
from harness.compiler.probe import MIN_CORRELATION, correlation, defects_to_look_for, seen_defects
from harness.model.io_specs import io_specs
from harness.model.reference import CpuGraph
from harness.record.artifact import GraphSpec
from harness.soc import ONE_ROW_ATTENTION, find_soc

HEADS, WIDTH, CONTEXT, HIDDEN = 4, 32, 128, 128
N_STEPS = 2**16 - 1


def attention_scores(*, heads_first: bool) -> onnx.ModelProto:
    """Q.K^T of one new token with its own key behind a cache of 127, all in 16 bits."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, values: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def scale(name: str, largest: float) -> list[str]:
        step = np.float32(2 * largest / N_STEPS)
        return [constant(f"{name}_s", step), constant(f"{name}_z", np.array(2**15, np.uint16))]

    def quantised(name: str, largest: float) -> str:
        pair = scale(name, largest)
        nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *pair], [f"{name}_d"]))
        return f"{name}_d"

    nodes.append(helper.make_node("DequantizeLinear", ["x", *scale("x", 3.0)], ["x_d"]))
    nodes.append(helper.make_node("DequantizeLinear", ["past", *scale("past", 4.0)], ["past_d"]))
    outer = (HEADS, 1) if heads_first else (1, HEADS)
    for name, columns_last in (("q", True), ("k", False)):
        weight = random.standard_normal((HIDDEN, HEADS * WIDTH)) / np.sqrt(HIDDEN)
        scales = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
        steps = constant(f"{name}_w", np.rint(weight / scales).astype(np.int8))
        zeros = constant(f"{name}_wz", np.zeros(HEADS * WIDTH, np.int8))
        inputs = [steps, constant(f"{name}_ws", scales), zeros]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_wd"], axis=1))
        nodes.append(helper.make_node("MatMul", ["x_d", f"{name}_wd"], [f"{name}0"]))
        shape = constant(f"{name}_shape", [1, HEADS, 1, WIDTH] if heads_first else [1, 1, HEADS, WIDTH])
        nodes.append(helper.make_node("Reshape", [quantised(f"{name}0", 4.0), shape], [f"{name}1"]))
        at = [1, 2, 0, 3] if heads_first else [0, 2, 1, 3]
        order = at if columns_last else [*at[:2], at[3], at[2]]
        nodes.append(helper.make_node("Transpose", [quantised(f"{name}1", 4.0)], [f"{name}2"], perm=order))
        quantised(f"{name}2", 4.0)
    nodes.append(helper.make_node("Concat", ["past_d", "k2_d"], ["keys"], axis=3))
    nodes.append(helper.make_node("MatMul", ["q2_d", quantised("keys", 4.0)], ["scores"]))
    nodes.append(helper.make_node("QuantizeLinear", ["scores", *scale("scores", 40.0)], ["y"]))
    graph = helper.make_graph(
        nodes,
        "scores",
        [
            helper.make_tensor_value_info("x", TensorProto.UINT16, (1, 1, HIDDEN)),
            helper.make_tensor_value_info("past", TensorProto.UINT16, (*outer, WIDTH, CONTEXT - 1)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.UINT16, (*outer, 1, CONTEXT))],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@pytest.mark.lane("qnn")
@pytest.mark.parametrize(("heads_first", "right"), [(False, 1), (True, 4)])
def test_v69_is_wrong_in_all_heads_but_the_first_where_heads_stand_beside_the_rows(
    tmp_path: Path, heads_first: bool, right: int
) -> None:
    """If this fails with a newer library, the defect is gone: take it out of the table."""
    model = attention_scores(heads_first=heads_first)
    onnx.save(model, tmp_path / "m.onnx")
    inputs, outputs = io_specs(model)
    compiled = compile_graph(
        tmp_path / "m.onnx",
        soc=find_soc("gen1"),
        fp16=False,
        n_tokens=1,
        inputs=inputs,
        outputs=outputs,
        binary=tmp_path / "m.bin",
    )
    random = np.random.default_rng(1)
    feed = {t.name: random.integers(0, N_STEPS, t.shape).astype(np.uint16) for t in inputs}
    (found,) = run_context(tmp_path / "m.bin", compiled.context.graphs[0], [feed])
    spec = GraphSpec(name="", n_tokens=1, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)
    expected = CpuGraph(model.SerializeToString(), spec).run(feed)["y"]
    by_head = [
        correlation(a, b, outputs[0])
        for a, b in zip(expected.reshape(HEADS, -1), found["y"].reshape(HEADS, -1), strict=True)
    ]
    assert [value > 0.99 for value in by_head] == [True] * right + [False] * (HEADS - right)
    assert (correlation(expected, found["y"], outputs[0]) < MIN_CORRELATION) == (not heads_first)


def test_only_v69_is_probed() -> None:
    assert defects_to_look_for(find_soc("gen1")) == ("one-row-u16-attention",)
    assert defects_to_look_for(find_soc("gen3")) == ()
    assert ONE_ROW_ATTENTION.htp_archs == (69,)


@pytest.mark.lane("qnn")
def test_the_probe_passes_the_bundled_model_on_v69_and_reports_outputs_that_are_others(
    prepare_small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = prepare_small(tmp_path, soc=find_soc("gen1"))
    assert artifact.manifest.defects == ()
    context, spec = artifact.manifest.graph(1)
    steps = [(artifact.path("reference/graph_ar1.onnx"), spec, artifact.path(context.file))]
    settings: dict[str, Any] = {"context_length": 64, "mask_value": -100.0}
    facts, soc = artifact.manifest.model, find_soc("gen1")
    assert seen_defects(steps, facts, soc, **settings) == ()

    def with_wrong_logits(binary: Path, graph: GraphSpec, feeds: Any) -> Any:
        outputs = run_context(binary, graph, feeds)
        outputs[0]["logits"] = outputs[0]["logits"][..., ::-1]
        return outputs

    monkeypatch.setattr(probe, "run_context", with_wrong_logits)
    assert seen_defects(steps, facts, soc, **settings) == ("one-row-u16-attention",)
