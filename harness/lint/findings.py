"""What a rule finds, and the view of a graph that rules look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.external_data_helper import ExternalDataInfo

from harness.model.storage import array_of

PIECE: Final = 1 << 22
"""Elements that are looked at at a time in a large constant."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    rule: str
    severity: Severity
    graph: str
    tensors: tuple[str, ...]
    found: str
    expected: str
    effect: str
    """In numbers."""
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """real = scale * (q - zero_point), per tensor."""

    scale: float
    zero_point: int
    bits: int
    unsigned: bool

    @property
    def low(self) -> float:
        return self.scale * (self._least - self.zero_point)

    @property
    def high(self) -> float:
        return self.scale * (self._least + (1 << self.bits) - 1 - self.zero_point)

    @property
    def _least(self) -> int:
        return 0 if self.unsigned else -(1 << (self.bits - 1))


_BITS: Final[dict[int, int]] = {
    TensorProto.UINT4: 4,
    TensorProto.INT4: 4,
    TensorProto.UINT8: 8,
    TensorProto.INT8: 8,
    TensorProto.UINT16: 16,
    TensorProto.INT16: 16,
    TensorProto.INT32: 32,
}
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class View:
    """A graph with its wiring: who makes and who reads each tensor, and what it is quantised to.

    ``folder``: where the data files of the model lie. They are mapped, never loaded: only what a rule asks for is read.
    """

    def __init__(self, name: str, model: onnx.ModelProto, folder: Path | None = None) -> None:
        self.name = name
        self.folder = folder
        self.model = model
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        for node in self.graph.node:
            value = attribute(node, "value") if node.op_type == "Constant" else None
            if isinstance(value, TensorProto):
                self.constants[node.output[0]] = value
        self.maker = {output: node for node in self.graph.node for output in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for tensor in node.input:
                self.readers.setdefault(tensor, []).append(node)
        try:
            inferred = onnx.shape_inference.infer_shapes(model).graph
        except onnx.shape_inference.InferenceError:
            inferred = self.graph
        self.types = {v.name: v.type.tensor_type for v in (*inferred.value_info, *inferred.input, *inferred.output)}
        self.is_quantised = any(node.op_type == "QuantizeLinear" for node in self.graph.node)

    def nodes(self, *ops: str) -> list[onnx.NodeProto]:
        return [node for node in self.graph.node if node.op_type in ops]

    def values(self, name: str) -> NDArray[np.float64] | None:
        """A constant's numbers, through a DequantizeLinear if need be; None: not a constant, or its data is missing."""
        if name in self.constants:
            return None if self.missing(name) is not None else self._numbers(name)
        node = self.maker.get(name)
        if node is None or node.op_type != "DequantizeLinear" or any(i not in self.constants for i in node.input):
            return None
        if any(self.missing(i) is not None for i in node.input):
            return None
        scale = self._numbers(node.input[1])
        zero = self._numbers(node.input[2]) if len(node.input) > 2 else np.zeros(())
        if scale.size > 1:
            return None
        return (self._numbers(node.input[0]) - zero) * scale

    def encoding(self, node: onnx.NodeProto) -> Encoding | None:
        """What a QuantizeLinear or DequantizeLinear with one scale does."""
        if len(node.input) < 3 or any(name not in self.constants for name in node.input[1:3]):
            return None
        scale, zero = self.constants[node.input[1]], self.constants[node.input[2]]
        if any(self.missing(name) is not None for name in node.input[1:3]):
            return None
        if scale.dims and list(scale.dims) != [1]:
            return None
        return Encoding(
            scale=float(self._numbers(node.input[1]).reshape(-1)[0]),
            zero_point=int(self._numbers(node.input[2]).reshape(-1)[0]),
            bits=_BITS.get(zero.data_type, 8),
            unsigned=zero.data_type in (TensorProto.UINT4, TensorProto.UINT8, TensorProto.UINT16),
        )

    def reads(self, name: str) -> Encoding | None:
        """The encoding of a node's input; None: it comes as a float."""
        node = self.maker.get(name)
        return self.encoding(node) if node is not None and node.op_type == "DequantizeLinear" else None

    def writes(self, name: str) -> Encoding | None:
        """The encoding of a node's output; None: it stays a float."""
        quantizers = [node for node in self.readers.get(name, []) if node.op_type == "QuantizeLinear"]
        return self.encoding(quantizers[0]) if quantizers else None

    def shape(self, name: str) -> tuple[int | str, ...] | None:
        if name in self.constants:
            return tuple(self.constants[name].dims)
        kind = self.types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)

    def element(self, name: str) -> int | None:
        if name in self.constants:
            return int(self.constants[name].data_type)
        kind = self.types.get(name)
        return None if kind is None or not kind.elem_type else int(kind.elem_type)

    def missing(self, name: str) -> str | None:
        """Why a constant's numbers cannot be had from its data file; None: they can."""
        tensor = self.constants[name]
        if tensor.data_location != TensorProto.EXTERNAL:
            return None
        info = ExternalDataInfo(tensor)
        if self.folder is None:
            return f"no folder for {info.location}"
        path = (self.folder / info.location).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            return f"{info.location} lies outside the model's folder"
        if not path.is_file():
            return f"no file {info.location}"
        n_bytes, needed = path.stat().st_size, (info.offset or 0) + _least_bytes(tensor)
        return None if n_bytes >= needed else f"{info.location} has {n_bytes} bytes, the tensor ends at {needed}"

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        """A constant's numbers as they are stored, a few million at a time."""
        if self.missing(name) is None:
            flat = array_of(self.constants[name], self.folder).reshape(-1)
            for start in range(0, flat.size, PIECE):
                yield np.asarray(flat[start : start + PIECE])

    def _numbers(self, name: str) -> NDArray[np.float64]:
        return np.asarray(array_of(self.constants[name], self.folder)).astype(np.float64)


def _least_bytes(tensor: TensorProto) -> int:
    bits = _BITS.get(tensor.data_type) or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return (int(np.prod(tensor.dims, dtype=np.int64)) * bits + 7) // 8


def attribute(node: onnx.NodeProto, name: str) -> object:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)
