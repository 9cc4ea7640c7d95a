"""Weights of four (or eight) bits: rounding to nearest, and the DequantizeLinear that carries them in a graph.

A weight is (inputs, outputs), the right operand of a MatMul. Zero points are always 0: the HTP ignores any other
without an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from harness.errors import ModelError

LOWEST, HIGHEST = -8, 7
"""Of four bits."""
_SHRINKS: Final = np.linspace(1.0, 0.7, 16)


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
    widest: NDArray[np.float32] = np.maximum(
        np.abs(blocks).max(axis=1) / np.float32(2 ** (bits - 1) - 1), np.float32(1e-9)
    )
    best, least = widest, np.full(widest.shape, np.inf, dtype=np.float32)
    for shrink in _SHRINKS:
        scales = (widest * shrink).astype(np.float32)
        steps = np.clip(np.rint(blocks / scales[:, None]), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        error = np.square(steps * scales[:, None] - blocks).sum(axis=1)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best


def round_to_nearest(weight: NDArray[np.float32], block: int | None, bits: int = 4) -> FixedWeight:
    return round_to_scales(weight, choose_scales(weight, block, bits), bits)


def round_to_scales(weight: NDArray[np.float32], scales: NDArray[np.float32], bits: int) -> FixedWeight:
    rows = len(weight) // len(scales)
    steps = np.rint(weight / np.repeat(scales, rows, axis=0))
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return FixedWeight(steps=np.clip(steps, lowest, highest).astype(np.int8), scales=scales, bits=bits)


def insert_weight(model: onnx.ModelProto, name: str, weight: FixedWeight) -> None:
    """Put ``weight`` in the place of the initialiser ``name``: integers behind a DequantizeLinear.

    Changes ``model``.

    The dequantised tensor keeps the name, so no reader changes.
    """
    graph = model.graph
    old = next(tensor for tensor in graph.initializer if tensor.name == name)
    graph.initializer.remove(old)
    n_blocks = len(weight.scales)
    shape = weight.scales.shape if n_blocks > 1 else weight.scales.shape[1:]
    graph.initializer.extend(
        [
            _integer_tensor(f"{name}_quantized", weight.steps, weight.bits),
            helper.make_tensor(
                f"{name}_scale", TensorProto.FLOAT, shape, weight.scales.astype("<f4").tobytes(), raw=True
            ),
            _integer_tensor(f"{name}_zero_point", np.zeros(shape, dtype=np.int8), weight.bits),
        ]
    )
    layout: dict[str, Any] = {"axis": 0, "block_size": weight.block} if n_blocks > 1 else {"axis": 1}
    graph.node.insert(
        0,
        helper.make_node(
            "DequantizeLinear",
            [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"],
            [name],
            name=f"{name}_dequantize",
            **layout,
        ),
    )


def _integer_tensor(name: str, steps: NDArray[np.int8], bits: int) -> onnx.TensorProto:
    """Of four bits, two values a byte, the first in the low half."""
    if bits == 8:
        return numpy_helper.from_array(np.ascontiguousarray(steps), name)
    nibbles = steps.reshape(-1).astype(np.uint8) & 0xF
    if len(nibbles) % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    packed = (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8)
    return helper.make_tensor(name, TensorProto.INT4, steps.shape, packed.tobytes(), raw=True)
