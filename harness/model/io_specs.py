"""The inputs and outputs of an ONNX graph as TensorSpecs, with the encodings its own Q and DQ nodes give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import onnx
from onnx import TensorProto, numpy_helper

from harness.errors import ModelError
from harness.record.artifact import TensorSpec
from harness.record.vocabulary import DType

_DTYPES: Final[Mapping[int, DType]] = MappingProxyType(
    {
        TensorProto.INT32: DType.INT32,
        TensorProto.FLOAT16: DType.FLOAT16,
        TensorProto.FLOAT: DType.FLOAT32,
        TensorProto.UINT8: DType.UFIXED8,
        TensorProto.UINT16: DType.UFIXED16,
        TensorProto.INT8: DType.SFIXED8,
        TensorProto.INT16: DType.SFIXED16,
    }
)
_FIXED = (DType.UFIXED8, DType.UFIXED16, DType.SFIXED8, DType.SFIXED16)


def io_specs(model: onnx.ModelProto) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs, in the graph's order. An integer tensor without a Q or DQ at its side is a ModelError."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    encodings: dict[str, tuple[float, int]] = {}
    for node in graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        tensor = node.output[0] if node.op_type == "QuantizeLinear" else node.input[0]
        if constants[node.input[1]].dims:
            continue  # per channel: a weight, whose scales may lie in the data file
        scale, zero_point = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
        encoding = (float(scale), int(zero_point))
        if encodings.setdefault(tensor, encoding) != encoding:
            raise ModelError(
                f"{tensor} is quantised in two ways",
                found=f"{encodings[tensor]} and {encoding}",
                expected="one encoding",
            )

    def specs(values: Iterable[onnx.ValueInfoProto]) -> tuple[TensorSpec, ...]:
        return tuple(_spec(value, encodings) for value in values)

    return specs(graph.input), specs(graph.output)


def _spec(value: onnx.ValueInfoProto, encodings: dict[str, tuple[float, int]]) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = _DTYPES.get(kind.elem_type)
    if dtype is None:
        raise ModelError(
            f"graph tensor {value.name} has an unsupported element type",
            found=TensorProto.DataType.Name(kind.elem_type),
            expected=", ".join(_DTYPES.values()),
        )
    shape = tuple(dimension.dim_value for dimension in kind.shape.dim)
    if dtype not in _FIXED:
        return TensorSpec(name=value.name, dtype=dtype, shape=shape)
    if value.name not in encodings:
        raise ModelError(f"graph tensor {value.name} has no scale", found=f"{dtype} without Q or DQ beside it")
    scale, zero_point = encodings[value.name]
    return TensorSpec(name=value.name, dtype=dtype, shape=shape, scale=scale, zero_point=zero_point)
