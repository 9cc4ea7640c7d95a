"""The 8-bit KV cache, by surgery on a finished QDQ graph; and the check of what stands at a graph's edges."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.errors import ModelError
from harness.model.interface import past_key_in, past_key_out, past_value_in, past_value_out
from harness.record.artifact import TensorSpec

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
KV8_ZERO_POINT: Final = 128


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


def to_kv8(model: onnx.ModelProto, n_layers: int) -> onnx.ModelProto:
    """A copy whose keys and values are cached as uint8 around 128, scale = largest magnitude / 127 of the 16-bit range.

    What this step computes is rounded to 16 bits first, then to 8: the pair becomes one conversion on the HTP. The
    matrix products then read 16-bit activations against 8-bit keys and values, which the HTP computes most exactly.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    present = {value.name for value in graph.input}
    for layer in range(n_layers):
        if past_key_in(layer) in present:  # a shard has only its own layers
            _narrow(graph, past_key_in(layer), past_key_out(layer))
            _narrow(graph, past_value_in(layer), past_value_out(layer))
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return result


def _narrow(graph: onnx.GraphProto, past_in: str, past_out: str) -> None:
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
            value.type.tensor_type.elem_type = TensorProto.UINT8

    scale16, zero16 = (float(numpy_helper.to_array(constants[name])) for name in write_new.input[1:3])
    low, high = -zero16 * scale16, (65535 - zero16) * scale16
    scale8, zero8 = f"{past_in}_scale8", f"{past_in}_zero_point8"
    graph.initializer.append(numpy_helper.from_array(np.array(max(-low, high) / 127, np.float32), scale8))
    graph.initializer.append(numpy_helper.from_array(np.array(KV8_ZERO_POINT, np.uint8), zero8))
    for node in (read_past, read_new, write_all, read_all):
        node.input[1], node.input[2] = scale8, zero8

    wide, real = f"{past_out}_16", f"{past_out}_16_real"
    write_new.output[0] = wide
    at = next(index for index, node in enumerate(graph.node) if node is write_new or node.name == write_new.name)
    graph.node.insert(at + 1, helper.make_node(_DEQUANTIZE, [wide, *write_new.input[1:3]], [real], name=real))
    graph.node.insert(at + 2, helper.make_node(_QUANTIZE, [real, scale8, zero8], [past_out], name=f"{past_out}_8"))


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
