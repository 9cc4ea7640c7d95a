"""Weights by name, whatever kind of file holds them; and those a checkpoint already keeps as small integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedTensor:
    """real[o, i] = scales[o, g] * (values[o, i] - zero_points[o, g]) with g = groups[i]."""

    bits: int
    values: NDArray[np.uint8]
    """(out_features, in_features), each below 2**bits."""
    scales: NDArray[np.float32]
    """(out_features, n_groups)"""
    zero_points: NDArray[np.uint8]
    """(out_features, n_groups)"""
    groups: NDArray[np.int32]
    """(in_features,): the group of each input."""

    def dequantized(self) -> NDArray[np.float32]:
        """Exact: an integer of 5 bits times a scale of 11 significant bits fits float32."""
        steps = self.values.astype(np.float32) - self.zero_points[:, self.groups].astype(np.float32)
        return steps * self.scales[:, self.groups]

    def why_not_blocks(self, block: int) -> str | None:
        return why_not_blocks(self.zero_points, self.groups, bits=self.bits, block=block)


def why_not_blocks(zero_points: NDArray[np.uint8], groups: NDArray[np.int32], *, bits: int, block: int) -> str | None:
    """What keeps a grid from symmetric blocks of ``block`` successive inputs; None: it fits them exactly.

    The HTP ignores zero points of 4-bit weights, so signed integers around 0 are all it holds. A group of several
    blocks is several blocks with equal scales.
    """
    middle = 1 << (bits - 1)
    if np.any(zero_points != middle):
        return f"zero points other than {middle}, which the HTP ignores"
    if len(groups) % block:
        return f"a number of inputs that is no multiple of {block}"
    if np.any(groups.reshape(-1, block) != groups[::block, None]):
        return f"groups that are not runs of {block} successive inputs (act-order)"
    return None


class WeightSource(Protocol):
    """Every tensor of a checkpoint by its Hugging Face name."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that was read."""
        ...

    def origin(self, name: str) -> Path:
        """The file that holds a tensor, for error messages."""
        ...

    def unreadable(self, name: str) -> tuple[str, str] | None:
        """The element type of a tensor that cannot be read as numbers, and the types that can. None: it can."""
        ...

    def read(self, name: str) -> NDArray[np.float32]:
        """One tensor as float32, exactly."""
        ...

    def quantized(self, name: str) -> QuantizedTensor | None:
        """The integers of a tensor that the checkpoint keeps quantised; None: it keeps floats."""
        ...
