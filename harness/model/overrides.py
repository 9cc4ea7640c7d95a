"""A user's encodings laid over the calibrated ones: by tensor name or by pattern, before anything is quantised."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import overload

import numpy as np
import onnx
from numpy.typing import NDArray

from harness.errors import UserError
from harness.model.encodings_file import EncodingsFile, TensorEncoding
from harness.model.quantize import Encoding, matrix_of, tied_names, weight_names
from harness.model.storage import array_of
from harness.model.weights import FixedWeight, LaidOver, round_to_nearest, round_to_scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    table: Mapping[str, Encoding]
    weights: Mapping[str, FixedWeight]
    floats: tuple[str, ...]
    """Activations that are not quantised."""


def lay_over(
    file: EncodingsFile,
    model: onnx.ModelProto,
    table: Mapping[str, Encoding],
    weights: Mapping[str, FixedWeight],
    n_layers: int,
    folder: Path | None = None,
) -> Laid:
    """The encodings of ``file`` where it has them, those of ``table`` and ``weights`` elsewhere.

    A later entry of the file goes over an earlier one. Keys and values have one encoding: what is said of one tensor
    of a cache is true of the others. Raises UserError for a name or pattern that fits no tensor, and for what the
    graph cannot hold.
    """
    edges = {value.name for value in (*model.graph.input, *model.graph.output)}
    ties = {name: group for group in tied_names(n_layers) for name in group}
    activations, floats = dict(table), set[str]()
    for entry in file.activations:
        for name in _fitting(entry.name, list(table), "activation"):
            if entry.is_float:
                if name in edges or name in ties:
                    raise UserError(
                        f"{name} cannot be left in float",
                        found="a graph input or output, or part of the KV cache",
                        expected="an activation inside the graph",
                        next_step="take it out of the overrides",
                    )
                floats.add(name)
                continue
            floats.discard(name)
            wanted = _encoding(entry, table[name].bits)
            tied = [other for other in ties.get(name, (name,)) if other in table]
            activations.update(dict.fromkeys(tied, wanted))
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    rounded: dict[str, FixedWeight] = {}
    for entry in file.parameters:
        for name in _fitting(entry.name, weight_names(model), "weight"):
            rounded[name] = _weight(entry, matrix_of(constants[name], folder).astype(np.float32), name)
    return Laid(table=activations, weights=LaidOver(rounded, weights), floats=tuple(sorted(floats)))


def _fitting(pattern: str, names: Sequence[str], kind: str) -> list[str]:
    found = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UserError(
            f"the overrides name an {kind} that is not there" if kind == "activation" else f"no {kind} of that name",
            found=pattern,
            expected=f"a name or a pattern that fits, as in {', '.join(list(names)[:3])}",
            next_step="write the names with --write-encodings FILE and compare",
        )
    return found


def _encoding(entry: TensorEncoding, bits: int) -> Encoding:
    if entry.bits != bits or len(entry.scales) != 1:
        raise UserError(
            f"the override of {entry.name} does not fit this precision",
            found=f"{entry.bits} bits, {len(entry.scales)} scales",
            expected=f"{bits} bits, one scale",
            next_step="give min and max (or scale and offset) at that width, or choose another --precision",
        )
    if not 0 <= entry.zero_points[0] < 2**bits:
        raise UserError(
            f"the override of {entry.name} has an offset out of range",
            found=str(-entry.zero_points[0]),
            expected=f"{1 - 2**bits} to 0",
        )
    return Encoding(scale=float(np.float32(entry.scales[0])), zero_point=entry.zero_points[0], bits=bits)


def _weight(entry: TensorEncoding, weight: NDArray[np.float32], name: str) -> FixedWeight:
    n_inputs, n_outputs = weight.shape
    if entry.is_float or entry.bits not in (4, 8):
        raise UserError(
            f"the override of {name} asks for a weight that is not built",
            found="float" if entry.is_float else f"{entry.bits} bits",
            expected="4 or 8 bits",
        )
    middle = 2 ** (entry.bits - 1)
    if any(zero != middle for zero in entry.zero_points):
        raise UserError(
            f"the override of {name} is not symmetric",
            found=f"offset {-next(zero for zero in entry.zero_points if zero != middle)}",
            expected=f"{-middle}: the HTP ignores any other without an error",
        )
    if not entry.scales:
        return round_to_nearest(weight, entry.block, entry.bits)
    n_blocks = 1 if entry.block is None else n_inputs // entry.block
    scales = np.array(entry.scales, dtype=np.float32)
    if len(scales) == 1:
        scales = np.repeat(scales, n_blocks * n_outputs)
    if len(scales) != n_blocks * n_outputs:
        raise UserError(
            f"the override of {name} has another number of scales",
            found=str(len(scales)),
            expected=f"1 or {n_blocks * n_outputs}, one an output channel and block",
        )
    return round_to_scales(weight, scales.reshape(n_blocks, n_outputs), entry.bits)


def encodings_of(
    model: onnx.ModelProto,
    table: Mapping[str, Encoding],
    floats: Collection[str],
    quantized: Sequence[onnx.ModelProto],
    folder: Path | None = None,
) -> EncodingsFile:
    """Everything a file can say of a finished graph: ``lay_over`` with it gives the same graph again.

    ``quantized``: the graph, or its shards. ``folder``: where their data file is; scales are read from it as they are
    asked for.
    """
    activations = activation_encodings(table, floats)
    return EncodingsFile(activations=activations, parameters=_Parameters(weight_names(model), quantized, folder))


def activation_encodings(table: Mapping[str, Encoding], floats: Collection[str]) -> tuple[TensorEncoding, ...]:
    return tuple(
        TensorEncoding(name=name, bits=16, is_float=True)
        if name in floats
        else TensorEncoding(name=name, bits=e.bits, scales=(e.scale,), zero_points=(e.zero_point,))
        for name, e in table.items()
    )


class _Parameters(Sequence[TensorEncoding]):
    """The encodings of a graph's weights, each made when it is asked for."""

    def __init__(self, names: list[str], quantized: Sequence[onnx.ModelProto], folder: Path | None) -> None:
        self._names, self._folder = names, folder
        self._constants = {tensor.name: tensor for model in quantized for tensor in model.graph.initializer}

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> TensorEncoding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TensorEncoding]: ...
    def __getitem__(self, index: int | slice) -> TensorEncoding | Sequence[TensorEncoding]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        name = self._names[index]
        steps = self._constants[f"{name}_quantized"]
        scales = array_of(self._constants[f"{name}_scale"], self._folder)
        n_inputs = steps.dims[0] if len(steps.dims) == 2 else steps.dims[1]
        if scales.ndim == 4:
            scales = scales[:, :, 0, 0].T
        bits = 4 if steps.data_type == onnx.TensorProto.INT4 else 8
        return TensorEncoding(
            name=name,
            bits=bits,
            scales=tuple(scales.ravel().tolist()),
            zero_points=(2 ** (bits - 1),) * scales.size,
            block=n_inputs // len(scales) if scales.ndim == 2 else None,
        )
