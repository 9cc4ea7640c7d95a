"""GPTQ and AWQ checkpoints: four-bit weights packed eight to an int32, with float scales and integer zero points.

``scales`` is (groups, outputs) in both. What differs is told by ``PACKINGS``; sources: AutoGPTQ's and AutoAWQ's packing
of their linear layers. Nothing is rounded: integers stay integers, and integer times scale is exact in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import CheckpointError
from harness.model.hf_weights import FloatWeights
from harness.model.options import Options
from harness.model.weight_source import QuantizedTensor, why_not_blocks

BITS: Final = 4
PER_WORD: Final = 32 // BITS
GROUP_SIZES: Final = (32, 64, 128, -1)
"""Inputs that share a scale; -1 is all of them."""
BLOCK: Final = 32
"""The block of the ``w4a16-b32`` recipe."""
_PARTS: Final = ("qweight", "qzeros", "scales", "g_idx")

Integers = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    words_along_inputs: bool
    """``qweight`` is (inputs / 8, outputs) if true, else (inputs, outputs / 8). ``qzeros`` is (groups, outputs / 8)."""
    order: tuple[int, ...]
    """Four bits number i of a word, from the lowest, belong to element ``order[i]`` of its eight."""
    option: str
    """What else decides the layout, in the checkpoint's options."""
    zero_offsets: Mapping[str, int]
    """By that option's value: what is added to a stored zero point."""
    default: str


PACKINGS: Final[Mapping[str, Packing]] = {
    "gptq": Packing(
        words_along_inputs=True,
        order=(0, 1, 2, 3, 4, 5, 6, 7),
        option="checkpoint_format",
        zero_offsets={"gptq": 1, "gptq_v2": 0},
        default="gptq",
    ),
    "awq": Packing(
        words_along_inputs=False,
        order=(0, 2, 4, 6, 1, 3, 5, 7),
        option="version",
        zero_offsets={"gemm": 0},
        default="gemm",
    ),
}


def read_packing(options: Options) -> tuple[Packing, int, int]:
    """The packing, the group size, and what to add to zero points. Raises CheckpointError for what is not read."""
    method = options.values.get("quant_method", "gptq" if "desc_act" in options.values else None)
    packing = PACKINGS.get(method) if isinstance(method, str) else None
    if packing is None:
        raise options.wrong("quant_method", " or ".join(map(repr, PACKINGS)))
    if options.values.get("bits") != BITS:
        raise options.wrong("bits", str(BITS))
    group_size = options.values.get("group_size")
    if type(group_size) is not int or group_size not in GROUP_SIZES:
        raise options.wrong("group_size", ", ".join(map(str, GROUP_SIZES)))
    layout = options.text(packing.option, packing.default).lower()
    if layout not in packing.zero_offsets:
        raise options.wrong(packing.option, " or ".join(map(repr, packing.zero_offsets)))
    return packing, group_size, packing.zero_offsets[layout]


class PackedWeights:
    """A WeightSource over a folder with packed linear layers: ``X.qweight`` and its like appear as ``X.weight``."""

    def __init__(self, floats: FloatWeights, options: Options) -> None:
        self._floats = floats
        self._packing, self._group_size, self._zero_offset = read_packing(options)
        stored = floats.shapes
        self._packed = {f"{name.removesuffix('.qweight')}.weight" for name in stored if name.endswith(".qweight")}
        parts = {_part(name, part) for name in self._packed for part in _PARTS}
        shapes = {name: shape for name, shape in stored.items() if name not in parts}
        self.shapes: Mapping[str, tuple[int, ...]] = shapes | {name: self._shape(name) for name in self._packed}

    @property
    def files(self) -> tuple[Path, ...]:
        return self._floats.files

    def origin(self, name: str) -> Path:
        return self._floats.origin(_part(name, "qweight") if name in self._packed else name)

    def unreadable(self, name: str) -> tuple[str, str] | None:
        if name not in self._packed:
            return self._floats.unreadable(name)
        stored = self._floats.stored.tensors
        odd = [p for p in ("qweight", "qzeros") if stored[_part(name, p)].dtype != "I32"]
        return (f"{stored[_part(name, odd[0])].dtype} {odd[0]}", "I32") if odd else None

    def read(self, name: str) -> NDArray[np.float32]:
        tensor = self.quantized(name)
        return self._floats.read(name) if tensor is None else tensor.dequantized()

    def quantized(self, name: str) -> QuantizedTensor | None:
        if name not in self._packed:
            return None
        words = self._floats.stored.read(_part(name, "qweight"))
        values = self._unpack(words.T).T if self._packing.words_along_inputs else self._unpack(words)
        zero_points, groups = self._grid(name)
        return QuantizedTensor(
            bits=BITS,
            values=np.ascontiguousarray(values.T),
            scales=np.ascontiguousarray(self._floats.read(_part(name, "scales")).T),
            zero_points=zero_points,
            groups=groups,
        )

    def grid_note(self) -> str:
        """How many of the packed weights lie on a grid that symmetric blocks of 32 hold, and why the others do not."""
        reasons: dict[str, int] = {}
        for name in sorted(self._packed):
            reason = why_not_blocks(*self._grid(name), bits=BITS, block=BLOCK)
            if reason is not None:
                reasons[reason] = reasons.get(reason, 0) + 1
        n_held = len(self._packed) - sum(reasons.values())
        others = "".join(f"; {n} do not: {reason}" for reason, n in sorted(reasons.items()))
        return f"{n_held} of {len(self._packed)} four-bit weights lie on a grid that blocks of {BLOCK} hold{others}"

    def _shape(self, name: str) -> tuple[int, int]:
        """(outputs, inputs), from the shapes of the parts, which must agree."""
        stored = self._floats.shapes
        shapes = {part: stored.get(_part(name, part)) for part in _PARTS}
        words, scales = shapes["qweight"], shapes["scales"]
        if words is None or len(words) != 2 or scales is None or len(scales) != 2:
            raise self._contradiction(name, shapes)
        along = self._packing.words_along_inputs
        n_inputs = words[0] * PER_WORD if along else words[0]
        n_outputs = words[1] if along else words[1] * PER_WORD
        n_groups = 1 if self._group_size == -1 else -(-n_inputs // self._group_size)
        expected: dict[str, tuple[int, ...]] = {
            "scales": (n_groups, n_outputs),
            "qzeros": (n_groups, n_outputs // PER_WORD),
        }
        if shapes["g_idx"] is not None:
            expected["g_idx"] = (n_inputs,)
        if any(shapes[part] != shape for part, shape in expected.items()):
            raise self._contradiction(name, shapes)
        return n_outputs, n_inputs

    def _contradiction(self, name: str, shapes: Mapping[str, Any]) -> CheckpointError:
        return CheckpointError(
            f"the parts of {name.removesuffix('.weight')} do not fit each other",
            found=", ".join(f"{part} {shape}" for part, shape in shapes.items() if shape is not None),
            expected=f"qweight, qzeros and scales with groups of {self._group_size}",
            next_step="fetch the checkpoint again",
        )

    def _unpack(self, words: Integers) -> NDArray[np.uint8]:
        """(rows, n) words to (rows, 8 n) integers of four bits."""
        result = np.empty((*words.shape, PER_WORD), dtype=np.uint8)
        for at, element in enumerate(self._packing.order):
            result[..., element] = (words >> (BITS * at)) & 0xF
        return result.reshape(words.shape[0], -1)

    def _grid(self, name: str) -> tuple[NDArray[np.uint8], Integers]:
        """Zero points (outputs, groups), and the group of each input."""
        zeros = self._unpack(self._floats.stored.read(_part(name, "qzeros")))
        if self._zero_offset and np.any(zeros == 0xF):
            raise CheckpointError(
                f"{_part(name, 'qzeros')} of {self.origin(name)} holds a zero point that is either 0 or 16",
                found="15, stored less one",
                expected="0 to 14: writers of this layout disagree about 15",
                next_step="convert the checkpoint to checkpoint_format gptq_v2",
            )
        zero_points = np.ascontiguousarray((zeros + np.uint8(self._zero_offset)).T)
        n_groups, n_inputs = zero_points.shape[1], self.shapes[name][1]
        if _part(name, "g_idx") not in self._floats.shapes:
            size = n_inputs if self._group_size == -1 else self._group_size
            return zero_points, (np.arange(n_inputs) // size).astype(np.int32)
        groups = self._floats.stored.read(_part(name, "g_idx")).astype(np.int32)
        if np.any((groups < 0) | (groups >= n_groups)):
            raise CheckpointError(
                f"{_part(name, 'g_idx')} of {self.origin(name)} names a group that is not there",
                found=f"{groups.min()} to {groups.max()}",
                expected=f"0 to {n_groups - 1}",
                next_step="fetch the checkpoint again",
            )
        return zero_points, groups


def _part(name: str, part: str) -> str:
    return f"{name.removesuffix('.weight')}.{part}"
