"""Float graph to QDQ graph: one table of activation encodings for every AR-N graph.

Every activation gets its scale and zero point from the table, so prefill and decode agree, and a key or value keeps one
encoding from the step that makes it to the step that reads it. Graph inputs and outputs are the integers themselves.
Weights are rounded one at a time and go to a store: no copy of the model is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from harness.errors import ModelError
from harness.model.calibrate import Range
from harness.model.graph import CONV
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
from harness.model.recipes import Scheme
from harness.model.storage import Contents, TensorStore, array_of
from harness.model.weights import FixedWeight, by_rows, per_channel, round_to_nearest, weight_initializers

_ELEMENTS: Final[Mapping[int, type[np.unsignedinteger[Any]]]] = MappingProxyType({8: np.uint8, 16: np.uint16})
_SAME_ENCODING: Final = ("Reshape", "Transpose", "Slice", "Gather")
"""What these put out has the encoding of what they read: they move integers and compute nothing."""
BEFORE_EDGE: Final = "_QuantizeLinear_Input"
"""Behind the name of a graph output: the float tensor that becomes it."""
_MASKED: Final = "_masked_scores"
_SLICE_ELEMENTS: Final = 1 << 24
"""Elements that are rounded at a time."""


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

    Keys and values of 8-bit activations are symmetric from the start; those of 16 bits get so in ``with_cache``.
    """
    bits = scheme.activation_bits
    table = {name: seen.widened(scheme.range_headroom) for name, seen in ranges.items()}
    symmetric: set[str] = set()
    table[MASK] = Range(low=scheme.mask_value, high=0.0)
    table[COS] = table[SIN] = Range(low=-1.0, high=1.0)
    for tied in tied_names(n_layers):
        names = [name for name in tied if name in table]
        union = table[names[0]]
        for name in names[1:]:
            union = union.union(table[name])
        table.update(dict.fromkeys(names, union))
        if bits == 8:
            symmetric.update(names)
    for at in [name.removesuffix(_MASKED) for name in table if name.endswith(_MASKED)]:
        scores = table[f"{at}_scores"]
        table[f"{at}{_MASKED}"] = Range(low=scores.low - scheme.score_headroom, high=scores.high)
        table[f"{at}_attention"] = Range(low=0.0, high=1.0)
    return {
        name: Encoding.symmetric(covered, bits) if name in symmetric else Encoding.of_range(covered, bits)
        for name, covered in table.items()
    }


def tied_names(n_layers: int) -> list[tuple[str, ...]]:
    """Tensors that must have one encoding: a key or value from where it is made to where it is read back.

    The tools give the output of Reshape, Transpose and Slice the encoding of their input, whatever the overrides say:
    a tie must begin where the numbers are made: in a Conv, where linear layers are such. Not every graph has them all.
    """
    return [
        names
        for layer in range(n_layers)
        for names in (
            (past_key_in(layer), f"layer{layer}_key_rotated", past_key_out(layer), f"layer{layer}_all_keys"),
            (
                past_value_in(layer),
                f"layer{layer}_value_flat",
                f"layer{layer}_value_flat{CONV}",
                past_value_out(layer),
                f"layer{layer}_all_values",
            ),
        )
    ]


class RoundedWeights(Mapping[str, FixedWeight]):
    """Weights of a float graph in four bits, each rounded to nearest when it is asked for."""

    def __init__(self, model: onnx.ModelProto, names: list[str], block: int | None, folder: Contents | None) -> None:
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._names, self._block, self._folder = dict.fromkeys(names), block, folder

    def __getitem__(self, name: str) -> FixedWeight:
        if name not in self._names:
            raise KeyError(name)
        weight = matrix_of(self._constants[name], self._folder).astype(np.float32, copy=False)
        return round_to_nearest(by_rows(weight), self._block)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def four_bit_weights(
    model: onnx.ModelProto, scheme: Scheme, folder: Contents | None = None
) -> Mapping[str, FixedWeight]:
    """Every weight that ``scheme`` wants in four bits, rounded to nearest. Empty where it wants none.

    ``folder``: where the model's data file is.
    """
    names = four_bit_names(model) if scheme.weight_bits == 4 else []
    return RoundedWeights(model, names, scheme.block, folder)


def four_bit_names(model: onnx.ModelProto) -> list[str]:
    """Every weight in the graph's order but the output head's: it keeps eight bits."""
    return [weight for weight, node in _weights(model).items() if node.output[0] not in (LOGITS, f"{LOGITS}{CONV}")]


def weight_names(model: onnx.ModelProto) -> list[str]:
    """Every weight of a MatMul or Conv, in the graph's order."""
    return list(_weights(model))


def _weights(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """Initialisers that are the right operand of a MatMul or Conv, and that node."""
    constants = {tensor.name for tensor in model.graph.initializer}
    linear = (node for node in model.graph.node if node.op_type in ("MatMul", "Conv"))
    return {node.input[1]: node for node in linear if node.input[1] in constants}


def matrix_of(tensor: TensorProto, folder: Contents | None) -> NDArray[Any]:
    """A weight as (inputs, outputs), whether a MatMul or a Conv reads it."""
    values = array_of(tensor, folder)
    return values if values.ndim == 2 else values[:, :, 0, 0].T


def quantize_graph(
    model: onnx.ModelProto,
    table: Mapping[str, Encoding],
    scheme: Scheme,
    weights: Mapping[str, FixedWeight] = MappingProxyType({}),
    floats: Collection[str] = (),
    *,
    folder: Contents | None = None,
    store: TensorStore | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> onnx.ModelProto:
    """The QDQ graph of a float32 graph whose data file lies in ``folder``; its own weights go to ``store``.

    Weights named in ``weights`` are taken from there, all others become int8, symmetric, per output channel.
    Activations named in ``floats`` are not quantised.
    """
    if scheme.float_attention:
        floats = {*floats, *attention_activations(model)}
    return _Inserter(model, table, scheme, weights, floats, folder, store or TensorStore(), progress).run()


def attention_activations(model: onnx.ModelProto) -> list[str]:
    """Scores, masked scores and softmax of every layer: left out together, the chain that makes them is float."""
    makers = {node.output[0]: node for node in model.graph.node}
    softmaxes = [node for node in model.graph.node if node.op_type == "Softmax"]
    return [name for node in softmaxes for name in (makers[node.input[0]].input[0], node.input[0], node.output[0])]


class _Inserter:
    """Writes the nodes of a float graph again, each activation between QuantizeLinear and DequantizeLinear."""

    def __init__(
        self,
        model: onnx.ModelProto,
        table: Mapping[str, Encoding],
        scheme: Scheme,
        weights: Mapping[str, FixedWeight],
        floats: Collection[str],
        folder: Contents | None,
        store: TensorStore,
        progress: Callable[[str], None],
    ) -> None:
        self._model, self._table, self._bits = model, table, scheme.activation_bits
        self._weights, self._floats, self._folder = weights, frozenset(floats), folder
        self._store, self._progress = store, progress
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._matrices = _weights(model)
        self._activations = frozenset(_activations(model))
        self._read = {name for node in model.graph.node for name in node.input}
        self._outputs = {value.name for value in model.graph.output}
        self._reads: dict[str, str] = {}
        """What readers of a tensor read instead."""
        self._encoded: dict[str, str] = {}
        """A tensor, and the tensor after which its scale and zero point are named."""
        self._encodings: dict[str, Encoding] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}

    def run(self) -> onnx.ModelProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(_ELEMENTS[self._bits]))
        graph = onnx.GraphProto(name=self._model.graph.name)
        graph.input.extend(self._model.graph.input)
        graph.output.extend(self._model.graph.output)
        for value in (*graph.input, *graph.output):
            if value.name in self._activations:
                value.type.tensor_type.elem_type = element
        for value in graph.input:
            if value.name in self._activations:
                self._own_encoding(value.name)
                self._dequantize(value.name, value.name, f"{value.name}_DequantizeLinear_Output")
        for index, node in enumerate(self._model.graph.node):
            if index % 200 == 0:
                self._progress(f"{graph.name}: node {index} of {len(self._model.graph.node)}")
            self._write(node)
        graph.node.extend(self._nodes)
        graph.initializer.extend(self._initializers.values())
        return helper.make_model(
            graph,
            opset_imports=self._model.opset_import,
            ir_version=self._model.ir_version,
            producer_name=self._model.producer_name,
        )

    def _write(self, node: onnx.NodeProto) -> None:
        for name in node.input:
            if name in self._constants and name not in self._reads:
                self._constant(name)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for index, name in enumerate(node.input):
            copy.input[index] = self._reads.get(name, name)
        self._nodes.append(copy)
        (output,) = node.output
        if output not in self._activations:
            return
        if node.op_type in _SAME_ENCODING:
            self._encoded[output] = self._encoded[node.input[0]]
        elif node.op_type == "Sigmoid":
            self._scalars(output, Encoding(scale=2.0**-self._bits, zero_point=0, bits=self._bits))
        else:
            self._own_encoding(output)
        if output in self._floats:
            return
        if output in self._outputs:
            copy.output[0] = f"{output}{BEFORE_EDGE}"
            self._quantize(output, copy.output[0], output)
            if output in self._read:
                self._dequantize(output, output, f"{output}_real")
            return
        self._quantize(output, output, f"{output}_QuantizeLinear_Output")
        self._dequantize(output, f"{output}_QuantizeLinear_Output", f"{output}_DequantizeLinear_Output")

    def _quantize(self, name: str, read: str, written: str) -> None:
        self._nodes.append(
            helper.make_node("QuantizeLinear", self._inputs(name, read), [written], name=f"{name}_QuantizeLinear")
        )

    def _dequantize(self, name: str, read: str, written: str) -> None:
        self._nodes.append(
            helper.make_node("DequantizeLinear", self._inputs(name, read), [written], name=f"{name}_DequantizeLinear")
        )
        self._reads[name] = written

    def _inputs(self, name: str, read: str) -> list[str]:
        """Of a Q or DQ of ``name``; only scales that something reads are put into the graph."""
        owner = self._encoded[name]
        encoding = self._encodings[owner]
        self._add(f"{owner}_scale", lambda: np.array(encoding.scale, np.float32))
        self._add(f"{owner}_zero_point", lambda: np.array(encoding.zero_point, _ELEMENTS[self._bits]))
        return [read, f"{owner}_scale", f"{owner}_zero_point"]

    def _own_encoding(self, name: str) -> None:
        if name not in self._table:
            raise ModelError(f"activation {name} was not calibrated", expected="every activation in the table")
        self._scalars(name, self._table[name])

    def _scalars(self, name: str, encoding: Encoding) -> None:
        self._encoded[name] = name
        self._encodings[name] = encoding

    def _add(self, name: str, values: Callable[[], NDArray[Any]]) -> None:
        self._initializers[name] = self._store.initializer(name, values)

    def _constant(self, name: str) -> None:
        """Weights of MatMul and Conv become signed integers, any other float constant an activation's unsigned ones."""
        tensor = self._constants[name]
        if tensor.data_type != TensorProto.FLOAT:
            self._initializers[name] = tensor
            self._reads[name] = name
            return
        if name in self._matrices:
            kernel = self._matrices[name].op_type == "Conv"
            made, node = weight_initializers(self._store, name, lambda: self._rounded(name), kernel=kernel)
            self._initializers.update({each.name: each for each in made})
            self._nodes.append(node)
            self._reads[name] = name
            return
        values = array_of(tensor, self._folder)
        covered = Range(low=float(values.min(initial=0.0)), high=float(values.max(initial=0.0)))
        encoding = Encoding.of_range(covered, self._bits)
        self._scalars(name, encoding)
        self._add(f"{name}_quantized", lambda: _unsigned(values, encoding))
        self._dequantize(name, f"{name}_quantized", f"{name}_DequantizeLinear_Output")

    def _rounded(self, name: str) -> FixedWeight:
        if name in self._weights:
            return self._weights[name]
        return per_channel(matrix_of(self._constants[name], self._folder))


def _unsigned(values: NDArray[Any], encoding: Encoding) -> NDArray[Any]:
    """``values`` as the integers of ``encoding``."""
    steps = np.empty(values.shape, _ELEMENTS[encoding.bits])
    flat, source = steps.reshape(-1), values.reshape(-1)
    for start in range(0, flat.size, _SLICE_ELEMENTS):
        part = np.rint(source[start : start + _SLICE_ELEMENTS] / np.float32(encoding.scale))
        flat[start : start + _SLICE_ELEMENTS] = np.clip(part + np.float32(encoding.zero_point), 0, 2**encoding.bits - 1)
    return steps


def _activations(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    names = [value.name for value in graph.input] + [name for node in graph.node for name in node.output]
    return [name for name in names if kinds[name] == TensorProto.FLOAT]
