"""Weights that a checkpoint already keeps as integers, for a recipe that can hold them as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint
from harness.model.graph import query_factor, weight_name
from harness.model.weights import FixedWeight, LaidOver

MATRICES: Final = (Role.QUERY, Role.KEY, Role.VALUE, Role.OUTPUT, Role.GATE, Role.UP, Role.DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGrid:
    """real[i, o] = scales[i // block, o] * steps[i, o], as the right operand of a MatMul."""

    steps: NDArray[np.int8]
    """(inputs, outputs), each in -8..7"""
    scales: NDArray[np.float32]
    """(blocks, outputs)"""


def held_grids(checkpoint: Checkpoint, block: int | None, layers: range | None = None) -> dict[str, HeldGrid]:
    """By the name of the graph's initialiser, every four-bit weight whose grid fits symmetric blocks exactly.

    ``block``: inputs that share a scale; None is all of a column. ``layers``: default all. What the graph folds into a
    weight is folded into its scales.
    """
    held = {}
    for layer in range(checkpoint.facts.n_layers) if layers is None else layers:
        for role in MATRICES:
            tensor = checkpoint.quantized(role, layer)
            if tensor is None:
                continue
            width = tensor.values.shape[1] if block is None else block
            if tensor.why_not_blocks(width) is not None:
                continue
            factor = np.float32(query_factor(checkpoint) if role is Role.QUERY else 1.0)
            middle = np.int8(1 << (tensor.bits - 1))
            held[weight_name(layer, role)] = HeldGrid(
                steps=np.ascontiguousarray(tensor.values.T).astype(np.int8) - middle,
                scales=np.ascontiguousarray(tensor.scales[:, tensor.groups[::width]].T) * factor,
            )
    return held


def keep_grids(
    checkpoint: Checkpoint,
    rounded: Mapping[str, FixedWeight],
    *,
    block: int | None,
    layers: range | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Mapping[str, FixedWeight]:
    """``rounded``, the checkpoint's own integers in the place of those that it holds on a grid that fits."""
    held = held_grids(checkpoint, block, layers)
    kept = {name: FixedWeight(steps=grid.steps, scales=grid.scales) for name, grid in held.items() if name in rounded}
    if kept:
        progress(f"{len(kept)} of {len(rounded)} four-bit weights keep the checkpoint's own integers")
    return LaidOver(kept, rounded)
