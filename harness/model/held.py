"""Weights that a checkpoint already keeps as integers, for a recipe that can hold them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint
from harness.model.graph import query_factor, weight_name
from harness.model.weight_source import QuantizedTensor
from harness.model.weights import FixedWeight, LaidOver

MATRICES: Final = (Role.QUERY, Role.KEY, Role.VALUE, Role.OUTPUT, Role.GATE, Role.UP, Role.DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGrid:
    """real[i, o] = scales[i // block, o] * steps[i, o], as the right operand of a MatMul."""

    steps: NDArray[np.int8]
    """(inputs, outputs), each in -8..7"""
    scales: NDArray[np.float32]
    """(blocks, outputs)"""


class HeldGrids(Mapping[str, HeldGrid]):
    """By the name of the graph's initialiser, every four-bit weight whose grid fits symmetric blocks exactly.

    Each is read from the checkpoint when it is asked for: no more than one is in memory. ``block``: inputs that share a
    scale; None is all of a column. ``layers``: default all. What the graph folds into a weight is folded into its
    scales.
    """

    def __init__(self, checkpoint: Checkpoint, block: int | None, layers: range | None = None) -> None:
        self._checkpoint, self._block = checkpoint, block
        layers = range(checkpoint.facts.n_layers) if layers is None else layers
        self._at = {
            weight_name(layer, role): (role, layer) for layer in layers for role in MATRICES if self._fits(role, layer)
        }

    def __getitem__(self, name: str) -> HeldGrid:
        role, layer = self._at[name]
        tensor = self._checkpoint.quantized(role, layer)
        if tensor is None:
            raise KeyError(name)
        factor = np.float32(query_factor(self._checkpoint) if role is Role.QUERY else 1.0)
        middle = np.int8(1 << (tensor.bits - 1))
        return HeldGrid(
            steps=np.ascontiguousarray(tensor.values.T).astype(np.int8) - middle,
            scales=np.ascontiguousarray(tensor.scales[:, tensor.groups[:: self._width(tensor)]].T) * factor,
        )

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def _fits(self, role: Role, layer: int) -> bool:
        tensor = self._checkpoint.quantized(role, layer)
        return tensor is not None and tensor.why_not_blocks(self._width(tensor)) is None

    def _width(self, tensor: QuantizedTensor) -> int:
        return tensor.values.shape[1] if self._block is None else self._block


class _Kept(Mapping[str, FixedWeight]):
    """Those grids that are asked for, as weights."""

    def __init__(self, grids: HeldGrids, names: Iterable[str]) -> None:
        self._grids, self._names = grids, dict.fromkeys(name for name in names if name in grids)

    def __getitem__(self, name: str) -> FixedWeight:
        if name not in self._names:
            raise KeyError(name)
        grid = self._grids[name]
        return FixedWeight(steps=grid.steps, scales=grid.scales)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def keep_grids(
    checkpoint: Checkpoint,
    rounded: Mapping[str, FixedWeight],
    *,
    block: int | None,
    layers: range | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Mapping[str, FixedWeight]:
    """``rounded``, the checkpoint's own integers in the place of those that it holds on a grid that fits."""
    if not rounded:
        return rounded
    kept = _Kept(HeldGrids(checkpoint, block, layers), rounded)
    if kept:
        progress(f"{len(kept)} of {len(rounded)} four-bit weights keep the checkpoint's own integers")
    return LaidOver(kept, rounded)
