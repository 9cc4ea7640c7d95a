"""Four-bit weights: rounding to nearest, and the DequantizeLinear that carries them in a graph.

A weight is (inputs, outputs), the right operand of a MatMul. Zero points are always 0: the HTP ignores any other
without an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from harness.errors import ModelError

LOWEST, HIGHEST = -8, 7
_SHRINKS: Final = np.linspace(1.0, 0.7, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int4Weight:
    """real[i, o] = scales[i // block, o] * steps[i, o]"""

    steps: NDArray[np.int8]
    """(inputs, outputs), each in -8..7"""
    scales: NDArray[np.float32]
    """(blocks, outputs); one block is per channel"""

    @property
    def block(self) -> int:
        return len(self.steps) // len(self.scales)

    def real(self) -> NDArray[np.float32]:
        return self.steps.astype(np.float32) * np.repeat(self.scales, self.block, axis=0)


def choose_scales(weight: NDArray[np.float32], block: int | None) -> NDArray[np.float32]:
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
    widest: NDArray[np.float32] = np.maximum(np.abs(blocks).max(axis=1) / np.float32(HIGHEST), np.float32(1e-9))
    best, least = widest, np.full(widest.shape, np.inf, dtype=np.float32)
    for shrink in _SHRINKS:
        scales = (widest * shrink).astype(np.float32)
        steps = np.clip(np.rint(blocks / scales[:, None]), LOWEST, HIGHEST)
        error = np.square(steps * scales[:, None] - blocks).sum(axis=1)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best


def round_to_nearest(weight: NDArray[np.float32], block: int | None) -> Int4Weight:
    scales = choose_scales(weight, block)
    rows = len(weight) // len(scales)
    steps = np.clip(np.rint(weight / np.repeat(scales, rows, axis=0)), LOWEST, HIGHEST).astype(np.int8)
    return Int4Weight(steps=steps, scales=scales)


def insert_weight(model: onnx.ModelProto, name: str, weight: Int4Weight) -> None:
    """Put ``weight`` in the place of the initialiser ``name``: INT4 values behind a DequantizeLinear.

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
            _int4_tensor(f"{name}_quantized", weight.steps),
            helper.make_tensor(
                f"{name}_scale", TensorProto.FLOAT, shape, weight.scales.astype("<f4").tobytes(), raw=True
            ),
            _int4_tensor(f"{name}_zero_point", np.zeros(shape, dtype=np.int8)),
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


def _int4_tensor(name: str, steps: NDArray[np.int8]) -> onnx.TensorProto:
    """Two values a byte, the first in the low half."""
    nibbles = steps.reshape(-1).astype(np.uint8) & 0xF
    if len(nibbles) % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    packed = (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8)
    return helper.make_tensor(name, TensorProto.INT4, steps.shape, packed.tobytes(), raw=True)
