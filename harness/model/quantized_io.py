"""The symmetric KV cache, by surgery on a finished QDQ graph; and the check of what stands at a graph's edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from harness.errors import ModelError
from harness.model.interface import past_key_in, past_key_out, past_value_in, past_value_out
from harness.record.artifact import TensorSpec
from harness.soc import KvPrecision

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


class _Wiring:
    """Who makes and who reads each tensor of a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.producer: dict[str, onnx.NodeProto] = {name: node for node in graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def only_reader(self, tensor: str, op: str) -> onnx.NodeProto:
        readers = self.readers.get(tensor, [])
        if len(readers) != 1 or readers[0].op_type != op:
            raise _unexpected(tensor, f"read by {[node.op_type for node in readers]}", f"one {op}")
        return readers[0]

    def maker(self, tensor: str, op: str) -> onnx.NodeProto:
        node = self.producer.get(tensor)
        if node is None or node.op_type != op:
            raise _unexpected(tensor, f"made by {node.op_type if node is not None else 'nothing'}", op)
        return node


def _unexpected(tensor: str, found: str, expected: str) -> ModelError:
    return ModelError(f"{tensor} is in an unexpected place of the quantised graph", found=found, expected=expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """The integers that keys and values are cached as."""

    element: type[np.uint8 | np.int16]
    zero_point: int
    largest: int
    """Steps from the zero point to the largest magnitude."""


CACHES: Final[Mapping[KvPrecision, _Cache]] = MappingProxyType(
    {
        KvPrecision.KV8: _Cache(element=np.uint8, zero_point=128, largest=127),
        KvPrecision.KV16: _Cache(element=np.int16, zero_point=0, largest=32767),
    }
)


def with_cache(model: onnx.ModelProto, kv: KvPrecision, n_layers: int) -> onnx.ModelProto:
    """A copy of a graph with 16-bit activations whose keys and values are cached symmetrically: ``CACHES``.

    What this step computes is rounded to unsigned 16 bits first, then to the cache's: the pair becomes one conversion
    on the HTP. Its matrix products take 16-bit activations against such keys and values as they are; unsigned 16-bit
    ones they would round to 8 bits first.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    present = {value.name for value in graph.input}
    for layer in range(n_layers):
        if past_key_in(layer) in present:  # a shard has only its own layers
            _narrow(graph, past_key_in(layer), past_key_out(layer), CACHES[kv])
            _narrow(graph, past_value_in(layer), past_value_out(layer), CACHES[kv])
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return result


def _narrow(graph: onnx.GraphProto, past_in: str, past_out: str, cache: _Cache) -> None:
    wiring = _Wiring(graph)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    read_past = wiring.only_reader(past_in, _DEQUANTIZE)
    read_new = wiring.only_reader(past_out, _DEQUANTIZE)
    write_new = wiring.maker(past_out, _QUANTIZE)
    concat = wiring.only_reader(read_past.output[0], "Concat")
    write_all = wiring.only_reader(concat.output[0], _QUANTIZE)
    read_all = wiring.only_reader(write_all.output[0], _DEQUANTIZE)
    for value in (*graph.input, *graph.output):
        if value.name in (past_in, past_out):
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(cache.element))

    scale16, zero16 = (float(numpy_helper.to_array(constants[name])) for name in write_new.input[1:3])
    magnitude = max(zero16, 65535 - zero16) * scale16
    scale, zero = f"{past_in}_cache_scale", f"{past_in}_cache_zero_point"
    graph.initializer.append(numpy_helper.from_array(np.array(magnitude / cache.largest, np.float32), scale))
    graph.initializer.append(numpy_helper.from_array(np.array(cache.zero_point, cache.element), zero))
    cached = [read_past, read_new, write_all, read_all]
    for piece in wiring.readers.get(read_all.output[0], []):
        if piece.op_type == "Slice":  # of one head: the same integers
            write_piece = wiring.only_reader(piece.output[0], _QUANTIZE)
            cached += [write_piece, wiring.only_reader(write_piece.output[0], _DEQUANTIZE)]
    for node in cached:
        node.input[1], node.input[2] = scale, zero

    wide, real = f"{past_out}_wide", f"{past_out}_wide_real"
    write_new.output[0] = wide
    at = next(index for index, node in enumerate(graph.node) if node is write_new or node.name == write_new.name)
    graph.node.insert(at + 1, helper.make_node(_DEQUANTIZE, [wide, *write_new.input[1:3]], [real], name=real))
    graph.node.insert(at + 2, helper.make_node(_QUANTIZE, [real, scale, zero], [past_out], name=f"{past_out}_cache"))


def _rename_reads(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


def check_quantized_io(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], n_layers: int) -> None:
    """Every tensor but the token ids has an encoding, and each key and value leaves as it is read back."""
    for tensor in (*inputs, *outputs):
        if tensor.scale is None and tensor.dtype != "int32":
            raise ModelError(f"graph tensor {tensor.name} is not quantised", found=tensor.dtype, expected="an integer")
    encodings = {t.name: (t.dtype, t.scale, t.zero_point) for t in (*inputs, *outputs)}
    for layer in range(n_layers):
        for read, written in (
            (past_key_in(layer), past_key_out(layer)),
            (past_value_in(layer), past_value_out(layer)),
        ):
            if encodings.get(read) != encodings.get(written):
                raise ModelError(
                    f"{read} and {written} are quantised differently",
                    found=f"{encodings.get(read)} and {encodings.get(written)}",
                    expected="one encoding for the cache",
                )
