"""Calibration of a model of which one layer at a time is kept: what each layer puts out over the text, its ranges, and
its four-bit weights by GPTQ.

A layer's float graph runs over the calibration text, and what comes out of it is what the next one is given.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.compiler.float_layers import FloatLayers
from harness.compiler.probe import N_TOKENS
from harness.compiler.recipe import Plan
from harness.compiler.stages import Stage, Stages, plain
from harness.model.recipes import SCHEMES, mask_value
from harness.record.artifact import ModelFacts
from harness.record.codec import read_json, write_json

if TYPE_CHECKING:
    from harness.model.calibrate import CalibrationText, Range
    from harness.model.weights import FixedWeight

_RANGES: Final = "ranges.json"
_SAMPLE: Final = "sample.npy"
"""Of what a layer puts out, the first rows of the first text: what the check of the next shard begins with."""
_STEPS, _SCALES = ".steps.npy", ".scales.npy"
"""Behind the name of a weight."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranges:
    """Lowest and highest value by tensor."""

    ranges: dict[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class CalibratedLayers:
    """``base``: what decides the float graphs. Layers are calibrated in their order."""

    facts: ModelFacts
    plan: Plan
    text: CalibrationText
    base: Mapping[str, Any]
    stages: Stages
    progress: Callable[[str], None]

    def calibrate(self, layer: int, floats: FloatLayers) -> dict[str, Range]:
        """Its ranges. They and, where GPTQ rounds them, its rounded weights are kept to the end; what it puts out is
        kept until the next layer is finished."""
        from harness.model.calibrate import Range

        states: Stage | None = None
        if self.stages.find(_ranges_stage(layer), self._decided(layer)) is None:
            states = self._states(layer, floats)
        kept = self._ranges(layer, states)
        if self.plan.weights == "gptq":
            self.stages.folder(
                _gptq_stage(layer), self._decided_weights(layer), partial(self._round_weights, layer, floats)
            )
        self.stages.drop(_states_stage(layer - 1))
        if layer == self.facts.n_layers - 1:
            self.stages.drop(_states_stage(layer))
        seen = read_json(kept.path / _RANGES, _Ranges).ranges
        return {name: Range(low=low, high=high) for name, (low, high) in seen.items()}

    def sample(self, layer: int) -> Array:
        """The first rows that a calibrated layer, not the last, put out: (rows, hidden) float32."""
        rows: Array = np.load(self._ranges(layer, None).path / _SAMPLE)
        return rows

    def weights(self, layers: range) -> Mapping[str, FixedWeight]:
        """Those that GPTQ rounded, read where they are asked for."""
        folders = [self.stages.find(_gptq_stage(layer), self._decided_weights(layer)) for layer in layers]
        return _KeptWeights([stage.path for stage in folders if stage is not None])

    def _decided(self, layer: int) -> dict[str, Any]:
        return {
            **self.base,
            "text": plain(self.text),
            "mask": mask_value(self.plan.precision),
            "layer": layer,
        }

    def _decided_weights(self, layer: int) -> dict[str, Any]:
        return self._decided(layer) | {"block": SCHEMES[self.plan.precision].block}

    def _ranges(self, layer: int, states: Stage | None) -> Stage:
        """``states``: of the same layer, needed where it is not finished."""

        def make(folder: Path) -> None:
            for name in (_RANGES, _SAMPLE):
                if states is not None and (states.path / name).is_file():
                    shutil.copyfile(states.path / name, folder / name)

        return self.stages.folder(_ranges_stage(layer), self._decided(layer), make)

    def _states(self, layer: int, floats: FloatLayers) -> Stage:
        """What ``layer`` puts out over the text: found, or made from what the nearest layer before it put out."""
        start, before = layer + 1, None
        while start > 0 and before is None:
            before = self.stages.find(_states_stage(start - 1), self._decided(start - 1))
            start -= before is None
        for each in range(start, layer + 1):
            make = partial(self._run, each, before, floats)
            before = self.stages.folder(_states_stage(each), self._decided(each), make)
        if before is None:
            raise ValueError(f"there is no layer {layer}")
        return before

    def _given(self, before: Stage | None) -> list[Array]:
        """What a layer is given over the text: ids into the first, else what ``before`` holds."""
        from harness.model.calibrate import whole_chunks

        sequences = whole_chunks(self.text, self.plan.prefill_tokens)
        if before is None:
            return [np.array(sequence, dtype=np.int32) for sequence in sequences]
        return [np.load(before.path / f"text{number}.npy", mmap_mode="r") for number in range(len(sequences))]

    def _run(self, layer: int, before: Stage | None, floats: FloatLayers, folder: Path) -> None:
        from harness.model.calibrate import RangeRecorder

        self.progress(f"ranges of layer {layer + 1} of {self.facts.n_layers}")
        recorder = RangeRecorder(floats.graph(layer), floats.folder)
        given = self._given(before)
        made: list[Array] = []
        if layer + 1 < self.facts.n_layers:
            made = [
                np.lib.format.open_memmap(
                    folder / f"text{number}.npy", "w+", np.float32, (len(rows), self.facts.hidden_size)
                )
                for number, rows in enumerate(given)
            ]
        for number, start, rows in floats.through(layer, recorder, given, mask_value(self.plan.precision)):
            if made:
                made[number][start : start + len(rows)] = rows
        if made:
            np.save(folder / _SAMPLE, made[0][: max(N_TOKENS, self.plan.prefill_tokens)])
        write_json(folder / _RANGES, _Ranges(ranges={name: (r.low, r.high) for name, r in recorder.ranges.items()}))

    def _round_weights(self, layer: int, floats: FloatLayers, folder: Path) -> None:
        from harness.model.gptq import MomentRecorder
        from harness.model.quantize import four_bit_names

        before = self._states(layer - 1, floats) if layer > 0 else None
        model = floats.graph(layer)
        names = four_bit_names(model)
        recorder = MomentRecorder(model, names, floats.folder)
        for _ in floats.through(layer, recorder, self._given(before), mask_value(self.plan.precision)):
            pass
        for index, name in enumerate(names, start=1):
            self.progress(f"gptq: layer {layer + 1} of {self.facts.n_layers}, weight {index} of {len(names)}")
            rounded = recorder.rounded(name, SCHEMES[self.plan.precision].block)
            np.save(folder / f"{name}{_STEPS}", rounded.steps)
            np.save(folder / f"{name}{_SCALES}", rounded.scales)


class _KeptWeights(Mapping[str, "FixedWeight"]):
    def __init__(self, folders: list[Path]) -> None:
        paths = [path for folder in folders for path in sorted(folder.glob(f"*{_STEPS}"))]
        self._paths = {path.name.removesuffix(_STEPS): path for path in paths}

    def __getitem__(self, name: str) -> FixedWeight:
        from harness.model.weights import FixedWeight

        path = self._paths[name]
        return FixedWeight(steps=np.load(path, mmap_mode="r"), scales=np.load(path.with_name(f"{name}{_SCALES}")))

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _ranges_stage(layer: int) -> str:
    return f"layer {layer + 1} ranges"


def _states_stage(layer: int) -> str:
    return f"layer {layer + 1} states"


def _gptq_stage(layer: int) -> str:
    return f"layer {layer + 1} gptq"
