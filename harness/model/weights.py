"""Weights of four or eight bits: rounding to nearest, and the DequantizeLinear that carries them in a graph.

A weight is (inputs, outputs), the right operand of a MatMul. Zero points are always 0: the HTP ignores any other
without an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from harness.errors import ModelError
from harness.model.storage import TensorStore

LOWEST, HIGHEST = -8, 7
"""Of four bits."""
_SHRINKS: Final = np.linspace(1.0, 0.7, 16)
_TILE_ELEMENTS: Final = 1 << 18
"""Elements whose scales are chosen at a time: they stay in the processor's cache over all fractions."""
_THREADS: Final = min(4, os.cpu_count() or 1)
_Place = TypeVar("_Place")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWeight:
    """real[i, o] = scales[i // block, o] * steps[i, o]"""

    steps: NDArray[np.int8]
    """(inputs, outputs), each in -8..7, or in -128..127"""
    scales: NDArray[np.float32]
    """(blocks, outputs); one block is per channel"""
    bits: int = 4

    @property
    def block(self) -> int:
        return len(self.steps) // len(self.scales)

    def real(self) -> NDArray[np.float32]:
        return self.steps.astype(np.float32) * np.repeat(self.scales, self.block, axis=0)


class LaidOver(Mapping[str, FixedWeight]):
    """``upper`` where it has a weight, ``lower`` elsewhere; nothing of ``lower`` is computed before it is asked for."""

    def __init__(self, upper: Mapping[str, FixedWeight], lower: Mapping[str, FixedWeight]) -> None:
        self._upper, self._lower = upper, lower
        self._names = dict.fromkeys((*lower, *upper))

    def __getitem__(self, name: str) -> FixedWeight:
        return self._upper[name] if name in self._upper else self._lower[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def choose_scales(weight: NDArray[np.float32], block: int | None, bits: int = 4) -> NDArray[np.float32]:
    """(blocks, outputs): of 16 fractions of the largest value, the one whose rounding has the least squared error."""
    n_inputs, n_outputs = weight.shape
    rows = n_inputs if block is None else block
    if n_inputs % rows:
        raise ModelError(
            "a weight cannot be cut into blocks",
            found=f"{n_inputs} inputs",
            expected=f"a multiple of {rows}",
            next_step="choose w4a16, which has one scale per output channel",
        )
    blocks = weight.reshape(n_inputs // rows, rows, n_outputs)
    best = np.empty((len(blocks), n_outputs), dtype=np.float32)
    across = max(1, _TILE_ELEMENTS // (rows * n_outputs))
    wide = max(64, _TILE_ELEMENTS // rows) if across == 1 else n_outputs

    def fill(at: tuple[int, int]) -> None:
        tile = (slice(at[0], at[0] + across), slice(at[1], at[1] + wide))
        best[tile] = _best_scales(np.ascontiguousarray(blocks[tile[0], :, tile[1]]), 2 ** (bits - 1))

    _in_threads(fill, [(start, left) for start in range(0, len(blocks), across) for left in range(0, n_outputs, wide)])
    return best


def _best_scales(blocks: NDArray[np.float32], n_positive: int) -> NDArray[np.float32]:
    """(blocks, outputs) of (blocks, inputs of a block, outputs)."""
    widest: NDArray[np.float32] = np.maximum(np.abs(blocks).max(axis=1) / np.float32(n_positive - 1), np.float32(1e-9))
    best, least = widest, np.full(widest.shape, np.inf, dtype=np.float32)
    steps = np.empty_like(blocks)
    for shrink in _SHRINKS:
        scales = (widest * shrink).astype(np.float32)
        np.divide(blocks, scales[:, None], out=steps)
        np.rint(steps, out=steps)
        np.clip(steps, -n_positive, n_positive - 1, out=steps)
        np.multiply(steps, scales[:, None], out=steps)
        np.subtract(steps, blocks, out=steps)
        error = np.square(steps, out=steps).sum(axis=1)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best


def round_to_nearest(weight: NDArray[np.float32], block: int | None, bits: int = 4) -> FixedWeight:
    return round_to_scales(weight, choose_scales(weight, block, bits), bits)


def round_to_scales(weight: NDArray[np.float32], scales: NDArray[np.float32], bits: int) -> FixedWeight:
    n_blocks, n_outputs = scales.shape
    blocks = weight.reshape(n_blocks, len(weight) // n_blocks, n_outputs)
    steps = np.empty(blocks.shape, dtype=np.int8)
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    across = max(1, _TILE_ELEMENTS // (blocks.shape[1] * n_outputs))

    def fill(start: int) -> None:
        part = blocks[start : start + across] / scales[start : start + across, None]
        steps[start : start + across] = np.clip(np.rint(part, out=part), lowest, highest, out=part)

    _in_threads(fill, range(0, n_blocks, across))
    return FixedWeight(steps=steps.reshape(weight.shape), scales=scales, bits=bits)


def per_channel(weight: NDArray[np.float32]) -> FixedWeight:
    """Eight bits, one scale an output channel: the largest magnitude is 127."""
    n_inputs, n_outputs = weight.shape
    scales = np.empty(n_outputs, dtype=np.float32)
    steps = np.empty(weight.shape, dtype=np.int8)
    wide = max(64, _TILE_ELEMENTS // max(1, n_inputs))

    def fill(left: int) -> None:
        tile = weight[:, left : left + wide]
        widest = np.maximum(tile.max(axis=0, initial=0.0), -tile.min(axis=0, initial=0.0))
        scales[left : left + wide] = np.maximum(widest / np.float32(127), np.float32(1e-9))
        part = tile / scales[left : left + wide]
        steps[:, left : left + wide] = np.clip(np.rint(part, out=part), -127, 127, out=part)

    _in_threads(fill, range(0, n_outputs, wide))
    return FixedWeight(steps=steps, scales=scales[None], bits=8)


def by_rows(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """``weight`` with each row in one piece, as a transposed matrix is not."""
    if weight.flags.c_contiguous:
        return weight
    rows = np.empty(weight.shape, weight.dtype)
    wide = max(64, _TILE_ELEMENTS // max(1, len(weight)))

    def fill(left: int) -> None:
        rows[:, left : left + wide] = weight[:, left : left + wide]

    _in_threads(fill, range(0, weight.shape[1], wide))
    return rows


def _in_threads(work: Callable[[_Place], None], places: Iterable[_Place]) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(work, places):
            pass


def weight_initializers(
    store: TensorStore, name: str, make: Callable[[], FixedWeight], *, kernel: bool = False
) -> tuple[list[onnx.TensorProto], onnx.NodeProto]:
    """Integers, scales and zero points of the weight ``name``, and the DequantizeLinear that puts out ``name`` itself.

    ``make`` is called unless the store has the weight. ``kernel``: as a Conv reads it, (outputs, inputs, 1, 1).
    """
    ends = ("quantized", "scale", "zero_point")
    if f"{name}_quantized" in store:
        tensors = [store.initializer(f"{name}_{end}", _known) for end in ends]
    else:
        weight = make()
        scales = weight.scales if len(weight.scales) > 1 else weight.scales[0]
        steps = weight.steps
        if kernel:
            steps = steps.T[:, :, None, None]
            scales = scales.T[:, :, None, None] if scales.ndim == 2 else scales
        zeros = np.zeros(scales.shape, dtype=np.int8)
        tensors = [
            store.initializer(f"{name}_quantized", lambda: steps, weight.bits),
            store.initializer(f"{name}_scale", lambda: scales.astype("<f4")),
            store.initializer(f"{name}_zero_point", lambda: zeros, weight.bits),
        ]
    dims, scale_dims = tensors[0].dims, tensors[1].dims
    inputs_at, outputs_at = (1, 0) if kernel else (0, 1)
    layout: dict[str, Any] = {"axis": outputs_at}
    if len(scale_dims) == len(dims):
        layout = {"axis": inputs_at, "block_size": dims[inputs_at] // scale_dims[inputs_at]}
    inputs = [f"{name}_{end}" for end in ends]
    return tensors, helper.make_node("DequantizeLinear", inputs, [name], name=f"{name}_dequantize", **layout)


def _known() -> NDArray[Any]:
    raise AssertionError("the store has it")
