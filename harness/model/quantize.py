"""w8a16: one table of activation encodings for every AR-N graph, then onnxruntime's QNN quantisation tools.

The tools' own ranges are never used: every activation gets its scale and zero point from the table, so prefill and
decode agree, and a key or value keeps one encoding from the step that makes it to the step that reads it.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

from harness.errors import ModelError
from harness.model.calibrate import Range
from harness.model.interface import (
    COS,
    MASK,
    SIN,
    past_key_in,
    past_key_out,
    past_value_in,
    past_value_out,
)
from harness.model.quantized_io import make_io_quantized

LEVELS: Final = 65535
"""Steps of an uint16 activation."""
SCORE_HEADROOM: Final = 40.0
"""A masked score this far below the smallest real score is as good as minus infinity (e^-40 = 4e-18)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """real = scale * (q - zero_point)"""

    scale: float
    zero_point: int

    @classmethod
    def of_range(cls, covered: Range) -> Encoding:
        """uint16, asymmetric; zero is exactly representable."""
        low, high = min(covered.low, 0.0), max(covered.high, 0.0)
        scale = max(float(np.float32((high - low) / LEVELS)), 1e-9)
        return cls(scale=scale, zero_point=int(np.clip(np.rint(-low / scale), 0, LEVELS)))


def encoding_table(ranges: Mapping[str, Range], n_layers: int, mask_value: float) -> dict[str, Encoding]:
    """The encoding of every activation. ``ranges`` as calibrated on one graph; the table serves all."""
    table = dict(ranges)
    table[MASK] = Range(low=mask_value, high=0.0)
    table[COS] = table[SIN] = Range(low=-1.0, high=1.0)
    for layer in range(n_layers):
        at = f"layer{layer}"
        # The tools give the output of Reshape, Transpose and Slice the encoding of their input, whatever the
        # overrides say: a tie must begin where the numbers are made.
        tied = (
            (past_key_in(layer), f"{at}_key_rotated", past_key_out(layer), f"{at}_all_keys"),
            (past_value_in(layer), f"{at}_value_flat", past_value_out(layer), f"{at}_all_values"),
        )
        for names in tied:
            union = table[names[0]]
            for name in names[1:]:
                union = union.union(table[name])
            table.update(dict.fromkeys(names, union))
        scores = table[f"{at}_scores"]
        table[f"{at}_masked_scores"] = Range(low=scores.low - SCORE_HEADROOM, high=scores.high)
        table[f"{at}_attention"] = Range(low=0.0, high=1.0)
    return {name: Encoding.of_range(covered) for name, covered in table.items()}


class _OneZeroFeed(CalibrationDataReader):  # type: ignore[misc]
    """The tools insist on one calibration run; every range of it is overridden."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds = iter([{value.name: _zeros(value) for value in model.graph.input}])

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._feeds, None)


def _zeros(value: onnx.ValueInfoProto) -> NDArray[Any]:
    kind = value.type.tensor_type
    return np.zeros(
        [dimension.dim_value for dimension in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type)
    )


def quantize_graph(model: onnx.ModelProto, table: Mapping[str, Encoding]) -> onnx.ModelProto:
    """The w8a16 QDQ graph of a float32 graph: int8 weights per output channel, uint16 activations and graph I/O."""
    weights = {
        node.input[1]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in {tensor.name for tensor in model.graph.initializer}
    }
    sigmoids = {node.output[0] for node in model.graph.node if node.op_type == "Sigmoid"}
    overrides: dict[str, list[dict[str, Any]]] = {
        name: [{"quant_type": QuantType.QInt8, "axis": 1, "symmetric": True}] for name in sorted(weights)
    }
    for name in _activations(model):
        if name not in table:
            raise ModelError(f"activation {name} was not calibrated", expected="every activation in the table")
        if name in sigmoids:
            continue  # the tools give Sigmoid the one encoding that QNN takes
        encoding = table[name]
        overrides[name] = [
            {
                "quant_type": QuantType.QUInt16,
                "scale": np.array(encoding.scale, dtype=np.float32),
                "zero_point": np.array(encoding.zero_point, dtype=np.uint16),
            }
        ]
    with tempfile.TemporaryDirectory(prefix="snapgate-quantize-") as scratch, _quiet_root_logger():
        path = Path(scratch) / "quantized.onnx"
        config = get_qnn_qdq_config(
            model,
            _OneZeroFeed(model),
            activation_type=QuantType.QUInt16,
            weight_type=QuantType.QInt8,
            init_overrides=overrides,
        )
        config.extra_options["ForceQuantizeNoInputCheck"] = True
        copy = onnx.ModelProto()  # the tools move the weights out of the model they are given
        copy.CopyFrom(model)
        quantize(copy, path, config)
        quantized = onnx.load(path)
    make_io_quantized(quantized)
    return quantized


def _activations(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    names = [value.name for value in graph.input] + [name for node in graph.node for name in node.output]
    return [name for name in names if kinds[name] == TensorProto.FLOAT]


@contextlib.contextmanager
def _quiet_root_logger() -> Iterator[None]:
    """The tools write advice to the root logger that the overrides have already taken."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
