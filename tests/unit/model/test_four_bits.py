from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.errors import ModelError

pytest.importorskip("onnx", reason="needs the prepare extra")

import onnx
import onnxruntime
from onnx import TensorProto, helper

from harness.model.gptq import gptq_round
from harness.model.storage import TensorStore
from harness.model.weights import (
    FixedWeight,
    by_rows,
    choose_scales,
    per_channel,
    round_to_nearest,
    weight_initializers,
)


def a_weight(n_inputs: int = 64, n_outputs: int = 5) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((n_inputs, n_outputs)).astype(np.float32)


def product(weight: FixedWeight, x: np.ndarray) -> np.ndarray:
    """What onnxruntime computes from x and a weight carried as integers."""
    tensors, dequantize = weight_initializers(TensorStore(), "w", lambda: weight)
    graph = helper.make_graph(
        [dequantize, helper.make_node("MatMul", ["x", "w"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (len(x), weight.steps.shape[1]))],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_a_weight_on_the_grid_is_kept_exactly() -> None:
    weight = np.array([[7.0], [-3.0], [1.0], [0.0]], dtype=np.float32) * 0.5
    rounded = round_to_nearest(weight, None)
    assert rounded.steps.ravel().tolist() == [7, -3, 1, 0]
    assert rounded.scales.tolist() == [[0.5]]


def test_eight_bits_put_the_largest_of_each_channel_at_127() -> None:
    weight = np.array([[12.7, -0.254], [-6.35, 0.002]], dtype=np.float32)
    rounded = per_channel(weight)
    assert rounded.bits == 8
    assert rounded.steps.tolist() == [[127, -127], [-64, 1]]  # -63.5 goes to the even one
    assert rounded.scales.tolist() == [pytest.approx([0.1, 0.002])]
    x = np.array([[1.0, 1.0]], dtype=np.float32)
    assert product(rounded, x)[0].tolist() == pytest.approx([12.7 - 6.4, -0.252])


def test_blocks_have_scales_of_their_own() -> None:
    weight = np.concatenate([np.full((2, 1), 7.0), np.full((2, 1), 0.07)]).astype(np.float32)
    rounded = round_to_nearest(weight, 2)
    assert rounded.steps.ravel().tolist() == [7, 7, 7, 7]
    assert rounded.scales.ravel().tolist() == pytest.approx([1.0, 0.01])


def test_an_outlier_is_clipped_where_that_costs_less_than_a_coarse_grid() -> None:
    weight = np.full((64, 1), 0.8, dtype=np.float32)
    weight[0] = 7.7
    assert float(choose_scales(weight, None)[0, 0]) < 1.1
    assert np.square(round_to_nearest(weight, None).real() - weight).sum() < 63 * (1.1 - 0.8) ** 2


def test_a_block_that_does_not_fit_is_refused_with_a_way_out() -> None:
    with pytest.raises(ModelError, match="found: 48 inputs; expected: a multiple of 32; next step: choose w4a16"):
        choose_scales(a_weight(48), 32)


@pytest.mark.parametrize("block", [None, 32])
def test_the_graph_holds_the_rounded_weight(block: int | None) -> None:
    weight, x = round_to_nearest(a_weight(), block), np.eye(64, dtype=np.float32)
    assert product(weight, x) == pytest.approx(weight.real(), abs=1e-6)


@pytest.mark.parametrize("block", [None, 32])
def test_gptq_changes_the_product_with_the_calibration_inputs_less_than_rounding(block: int | None) -> None:
    random = np.random.default_rng(9)
    weight = a_weight(160 if block is None else 64, 12)
    mixing = random.standard_normal((len(weight), len(weight)))
    x = random.standard_normal((400, len(weight))) @ mixing
    moment = x.T @ x

    def error(rounded: FixedWeight) -> float:
        return float(np.linalg.norm(x @ (rounded.real() - weight)))

    nearest, gptq = round_to_nearest(weight, block), gptq_round(weight, moment, block)
    assert error(gptq) < 0.8 * error(nearest)
    assert np.array_equal(gptq.scales, nearest.scales)
    assert gptq.steps.min() >= -8
    assert gptq.steps.max() <= 7


def test_with_independent_inputs_gptq_is_rounding_to_nearest() -> None:
    weight = a_weight()
    assert np.array_equal(gptq_round(weight, np.eye(64), None).steps, round_to_nearest(weight, None).steps)


@pytest.mark.parametrize(
    "rounding", [lambda w: round_to_nearest(w, 32), lambda w: round_to_nearest(w, None), per_channel]
)
def test_what_is_rounded_does_not_depend_on_how_much_is_looked_at_at_a_time(
    rounding: Callable[[np.ndarray], FixedWeight], monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = a_weight(192, 200)
    lying = by_rows(np.asfortranarray(weight))
    assert lying.flags.c_contiguous
    assert np.array_equal(lying, weight)
    at_once = rounding(weight)
    monkeypatch.setattr("harness.model.weights._TILE_ELEMENTS", 64 * 32)
    for same in (weight, np.asfortranarray(weight)):
        in_tiles = rounding(same)
        assert np.array_equal(in_tiles.steps, at_once.steps)
        assert np.array_equal(in_tiles.scales, at_once.scales)
