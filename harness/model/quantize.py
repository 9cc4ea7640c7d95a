"""Float graph to QDQ graph: one table of activation encodings for every AR-N graph, then onnxruntime's QNN tools.

The tools' own ranges are never used: every activation gets its scale and zero point from the table, so prefill and
decode agree, and a key or value keeps one encoding from the step that makes it to the step that reads it. Four-bit
weights are put into the graph before the tools see it, and the tools leave them as they are.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

from harness.errors import ModelError
from harness.model.calibrate import Range
from harness.model.interface import (
    COS,
    LOGITS,
    MASK,
    SIN,
    past_key_in,
    past_key_out,
    past_value_in,
    past_value_out,
)
from harness.model.quantized_io import dequantize_input, make_io_quantized, release
from harness.model.recipes import Scheme
from harness.model.weights import FixedWeight, insert_weight, round_to_nearest

_ACTIVATIONS: Final = {8: (QuantType.QUInt8, np.uint8), 16: (QuantType.QUInt16, np.uint16)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """real = scale * (q - zero_point)"""

    scale: float
    zero_point: int
    bits: int = 16

    @classmethod
    def of_range(cls, covered: Range, bits: int = 16) -> Encoding:
        """Unsigned, asymmetric; zero is exactly representable."""
        low, high = min(covered.low, 0.0), max(covered.high, 0.0)
        levels = 2**bits - 1
        scale = max(float(np.float32((high - low) / levels)), 1e-9)
        return cls(scale=scale, zero_point=int(np.clip(np.rint(-low / scale), 0, levels)), bits=bits)

    @classmethod
    def symmetric(cls, covered: Range, bits: int) -> Encoding:
        """Unsigned around the middle: 128 stands for zero in 8 bits."""
        middle = 2 ** (bits - 1)
        scale = max(float(np.float32(max(-covered.low, covered.high) / (middle - 1))), 1e-9)
        return cls(scale=scale, zero_point=middle, bits=bits)


def encoding_table(ranges: Mapping[str, Range], n_layers: int, scheme: Scheme) -> dict[str, Encoding]:
    """The encoding of every activation. ``ranges`` as calibrated on one graph; the table serves all.

    Keys and values of 8-bit activations are symmetric from the start; those of 16 bits get so in ``to_kv8``.
    """
    bits = scheme.activation_bits
    table = {name: seen.widened(scheme.range_headroom) for name, seen in ranges.items()}
    symmetric: set[str] = set()
    table[MASK] = Range(low=scheme.mask_value, high=0.0)
    table[COS] = table[SIN] = Range(low=-1.0, high=1.0)
    for names in tied_names(n_layers):
        union = table[names[0]]
        for name in names[1:]:
            union = union.union(table[name])
        table.update(dict.fromkeys(names, union))
        if bits == 8:
            symmetric.update(names)
    for layer in range(n_layers):
        at = f"layer{layer}"
        scores = table[f"{at}_scores"]
        table[f"{at}_masked_scores"] = Range(low=scores.low - scheme.score_headroom, high=scores.high)
        table[f"{at}_attention"] = Range(low=0.0, high=1.0)
    return {
        name: Encoding.symmetric(covered, bits) if name in symmetric else Encoding.of_range(covered, bits)
        for name, covered in table.items()
    }


def tied_names(n_layers: int) -> list[tuple[str, ...]]:
    """Tensors that must have one encoding: a key or value from where it is made to where it is read back.

    The tools give the output of Reshape, Transpose and Slice the encoding of their input, whatever the overrides say:
    a tie must begin where the numbers are made.
    """
    return [
        names
        for layer in range(n_layers)
        for names in (
            (past_key_in(layer), f"layer{layer}_key_rotated", past_key_out(layer), f"layer{layer}_all_keys"),
            (past_value_in(layer), f"layer{layer}_value_flat", past_value_out(layer), f"layer{layer}_all_values"),
        )
    ]


def four_bit_weights(model: onnx.ModelProto, scheme: Scheme) -> dict[str, FixedWeight]:
    """Every weight that ``scheme`` wants in four bits, rounded to nearest. Empty where it wants none."""
    if scheme.weight_bits != 4:
        return {}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    return {
        name: round_to_nearest(numpy_helper.to_array(constants[name]).astype(np.float32), scheme.block)
        for name in four_bit_names(model)
    }


def four_bit_names(model: onnx.ModelProto) -> list[str]:
    """The weight of every MatMul, in the graph's order, but the output head's: it keeps eight bits."""
    return [weight for weight, node in _weights(model).items() if node.output[0] != LOGITS]


def weight_names(model: onnx.ModelProto) -> list[str]:
    """Every weight of a MatMul, in the graph's order."""
    return list(_weights(model))


def _weights(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """Initialisers that are the right operand of a MatMul, and the MatMul."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {node.input[1]: node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in constants}


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


def quantize_graph(
    model: onnx.ModelProto,
    table: Mapping[str, Encoding],
    scheme: Scheme,
    weights: Mapping[str, FixedWeight] = MappingProxyType({}),
    floats: Collection[str] = (),
) -> onnx.ModelProto:
    """The QDQ graph of a float32 graph: integer activations and graph I/O.

    Weights named in ``weights`` are taken from there, all others become int8, symmetric, per output channel.
    Activations named in ``floats`` are not quantised.
    """
    copy = onnx.ModelProto()  # the tools move the weights out of the model they are given
    copy.CopyFrom(model)
    for name, weight in weights.items():
        insert_weight(copy, name, weight)
    overrides: dict[str, list[dict[str, Any]]] = {
        name: [{"quant_type": QuantType.QInt8, "axis": 1, "symmetric": True}] for name in sorted(_weights(copy))
    }
    overrides |= _activation_overrides(model, table, scheme)
    with tempfile.TemporaryDirectory(prefix="snapgate-quantize-") as scratch, _quiet_root_logger():
        path = Path(scratch) / "quantized.onnx"
        config = get_qnn_qdq_config(
            copy,
            _OneZeroFeed(model),
            activation_type=_ACTIVATIONS[scheme.activation_bits][0],
            weight_type=QuantType.QInt8,
            init_overrides=overrides,
        )
        config.extra_options["ForceQuantizeNoInputCheck"] = True
        if scheme.float_attention:
            config.nodes_to_exclude = [*(config.nodes_to_exclude or []), *attention_nodes(model)]
        quantize(copy, path, config)
        quantized = onnx.load(path)
    release(quantized, floats)
    if scheme.float_attention:
        dequantize_input(quantized, MASK, table[MASK].scale, table[MASK].zero_point)
    make_io_quantized(quantized)
    return quantized


def attention_nodes(model: onnx.ModelProto) -> list[str]:
    """Query times keys, mask, softmax, softmax times values, of every layer.

    They are left out together: one float node between quantised neighbours is quantised by them all the same.
    """
    ends = ("_scores", "_masked_scores", "_attention", "_mixed")
    return [node.name for node in model.graph.node if node.output[0].endswith(ends)]


def _activation_overrides(
    model: onnx.ModelProto, table: Mapping[str, Encoding], scheme: Scheme
) -> dict[str, list[dict[str, Any]]]:
    quant_type, element = _ACTIVATIONS[scheme.activation_bits]
    sigmoids = {node.output[0] for node in model.graph.node if node.op_type == "Sigmoid"}
    overrides: dict[str, list[dict[str, Any]]] = {}
    for name in _activations(model):
        if name not in table:
            raise ModelError(f"activation {name} was not calibrated", expected="every activation in the table")
        if name in sigmoids:
            continue  # the tools give Sigmoid the one encoding that QNN takes
        encoding = table[name]
        overrides[name] = [
            {
                "quant_type": quant_type,
                "scale": np.array(encoding.scale, dtype=np.float32),
                "zero_point": np.array(encoding.zero_point, dtype=element),
            }
        ]
    return overrides


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
