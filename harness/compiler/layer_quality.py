"""Quality of a model of which one layer's floats and one shard's graphs are kept at a time, against fp32.

The held-out windows pass the float layers one after the other; what each puts out is kept, for every precision of the
same checkpoint. They pass each shard's graphs on the CPU while those are there, and are set against what was kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.compiler.figures import graph_spec
from harness.compiler.float_layers import FloatLayers
from harness.compiler.recipe import Plan
from harness.compiler.stages import Stage, Stages
from harness.model.accuracy import N_WINDOWS, Differences, WatchedGraph
from harness.model.decoder import row_nll
from harness.model.embeddings import with_embeddings
from harness.model.encoding import NUMPY_DTYPES, decode
from harness.model.interface import LOGITS, boundary
from harness.model.part import PartDecoder
from harness.model.perplexity import Corpus
from harness.model.recipes import FLOAT_MASK_VALUE, mask_value
from harness.model.reference import ENGINE
from harness.record.artifact import AccuracyFigures, ModelFacts, PerplexityFigure
from harness.record.codec import read_json, write_json
from harness.record.comparison import Leg
from harness.soc import KvPrecision

MAX_WORK: Final = 7e12
"""Tokens times parameters of one figure: of a model of 7 B, 4 windows of 256 tokens."""
MAX_WINDOWS: Final = 32
"""What they put out is kept on disk, layer by layer."""
_FIGURES, _STATES, _LOGITS = "figures.json", "states", "logits"

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """What some layers gave; of ``Differences``, nothing but ``window_nll`` where the layers are fp32's."""

    window_nll: tuple[float, ...]
    """Sum of each window; empty before the last layer."""
    squares: dict[str, tuple[float, float]]
    n_agreed: int
    n_positions: int


@dataclass(frozen=True, kw_only=True)
class LayerQuality:
    """``base``: what decides the float graphs. ``embeddings``: the table of graphs that take its rows."""

    facts: ModelFacts
    plan: Plan
    corpus: Corpus
    base: Mapping[str, Any]
    embeddings: Array | None
    stages: Stages
    progress: Callable[[str], None]

    @cached_property
    def windows(self) -> tuple[tuple[int, ...], ...]:
        """As many as ``MAX_WORK`` affords, at least ``N_WINDOWS``; a last step that the context cannot hold is cut."""
        chunk, length = self.plan.prefill_tokens, len(self.corpus.windows[0])
        if math.ceil(length / chunk) * chunk > self.plan.context_length:
            length = length // chunk * chunk
        affordable = int(MAX_WORK / length / self.facts.n_parameters)
        n_windows = max(N_WINDOWS, min(affordable, MAX_WINDOWS))
        return tuple(window[:length] for window in self.corpus.windows[:n_windows])

    # The float layers

    def run_floats(self, layer: int, floats: FloatLayers) -> None:
        """The windows through ``layer``. Layers come in their order."""
        make = partial(self._run_floats, layer, floats)
        self.stages.folder(_layer_stage(layer), self._decided(layer), make)

    def _decided(self, layer: int) -> dict[str, Any]:
        return {
            **self.base,
            "corpus": self.corpus.sha256,
            "windows": [len(self.windows), len(self.windows[0])],
            "layer": layer,
        }

    def _float_stage(self, layer: int) -> Stage:
        stage = self.stages.find(_layer_stage(layer), self._decided(layer))
        if stage is None:
            raise ValueError(f"the windows did not pass layer {layer}, or what it put out was damaged since")
        return stage

    def _run_floats(self, layer: int, floats: FloatLayers, folder: Path) -> None:
        self.progress(f"held-out text through the floats of layer {layer + 1} of {self.facts.n_layers}")
        is_last, behind, seen = layer + 1 == self.facts.n_layers, boundary(layer), dict[str, Array]()
        path = floats.path(layer)
        runner = WatchedGraph(path, graph_spec(path, self.plan.prefill_tokens), [behind], seen)
        before = None if layer == 0 else self._float_stage(layer - 1)
        n_kept = N_WINDOWS if is_last else len(self.windows)
        made = self._open(folder, _STATES, self.facts.hidden_size, np.float32, n_kept)
        logits = self._open(folder, _LOGITS, self.facts.vocab_size, np.float32, n_kept if is_last else 0)
        sums = [0.0] * len(self.windows)
        for number, start, rows in floats.through(layer, runner, self._given(before), FLOAT_MASK_VALUE):
            span = slice(start, start + len(rows))
            if number < n_kept:
                made[number][span] = seen[behind][0, : len(rows)]
            if is_last:
                sums[number] += self._nll(number, start, rows)
            if number < len(logits):
                logits[number][span] = rows
        figures = _Figures(window_nll=tuple(sums) if is_last else (), squares={}, n_agreed=0, n_positions=0)
        write_json(folder / _FIGURES, figures)

    def _given(self, before: Stage | None) -> list[Array]:
        if before is None:
            return [np.array(window, dtype=np.int32) for window in self.windows]
        return self._load(before, _STATES, len(self.windows))

    def _open(self, folder: Path, kind: str, width: int, dtype: Any, n_windows: int) -> list[Array]:
        return [
            np.lib.format.open_memmap(folder / f"{kind}{number}.npy", "w+", dtype, (len(window), width))
            for number, window in enumerate(self.windows[:n_windows])
        ]

    def _load(self, stage: Stage, kind: str, n_windows: int) -> list[Array]:
        n_windows = min(n_windows, len(self.windows))
        return [np.load(stage.path / f"{kind}{number}.npy", mmap_mode="r") for number in range(n_windows)]

    def _nll(self, number: int, start: int, logits: Array) -> float:
        following = self.windows[number][start + 1 : start + 1 + len(logits)]
        return float(row_nll(logits, following).sum())

    # A shard's graphs

    def run_shard(
        self, number: int, layers: range, decided_by: Mapping[str, Any], before: Stage | None, graph: Callable[[], Path]
    ) -> Stage:
        """The windows through the shard's AR-N ``graph`` with logits of every token, which is asked for if they have
        to pass. ``before``: of the shard before."""

        def make(folder: Path) -> None:
            self._run_shard(number, layers, before, graph(), folder)

        decided = {
            **decided_by,
            **self._decided(self.facts.n_layers - 1),
            "before": None if before is None else before.key,
        }
        return self.stages.folder(f"held-out text shard {number}", decided, make)

    def _run_shard(self, number: int, layers: range, before: Stage | None, path: Path, folder: Path) -> None:
        chunk, seen = self.plan.prefill_tokens, dict[str, Array]()
        spec = graph_spec(path, chunk)
        runner = WatchedGraph(path, spec, [boundary(layer) for layer in layers], seen)
        part = PartDecoder(
            [with_embeddings(runner, self.embeddings)],
            self.facts,
            layers,
            context_length=self.plan.context_length,
            mask_value=mask_value(self.plan.precision),
        )
        is_last = layers.stop == self.facts.n_layers
        (out,) = (tensor for tensor in spec.outputs if tensor.name in (LOGITS, boundary(layers.stop - 1)))
        dtype, n_passed_on = NUMPY_DTYPES[out.dtype], 0 if is_last else len(self.windows)
        made = self._open(folder, _STATES, self.facts.hidden_size, dtype, n_passed_on)
        wanted = {boundary(layer): self._load(self._float_stage(layer), _STATES, N_WINDOWS) for layer in layers}
        if is_last:
            wanted[LOGITS] = self._load(self._float_stage(layers.stop - 1), _LOGITS, N_WINDOWS)
        sums, differences = [0.0] * len(self.windows), Differences()
        for index, start, rows in part.through(self._given(before)):
            if start == 0:
                self.progress(
                    f"held-out text through the graph of shard {number}: window {index + 1} of {len(self.windows)}"
                )
            compared, span = index < N_WINDOWS and len(rows) == chunk, slice(start, start + len(rows))
            if compared:
                for name in seen:
                    differences.add(name, wanted[name][index][span], seen[name][0])
            if not is_last:
                made[index][span] = rows
                continue
            logits = decode(rows, out)
            sums[index] += self._nll(index, start, logits)
            if compared:
                differences.add_logits(wanted[LOGITS][index][span], logits)
        figures = _Figures(
            window_nll=tuple(sums) if is_last else (),
            squares=differences.squares,
            n_agreed=differences.n_agreed,
            n_positions=differences.n_positions,
        )
        write_json(folder / _FIGURES, figures)

    # What came of it

    def figures(
        self, shards: Sequence[Stage], kv: KvPrecision
    ) -> tuple[tuple[PerplexityFigure, ...], AccuracyFigures | None]:
        """Perplexity of fp32 and of the graph; accuracy None where no window fills a chunk."""
        floats = read_json(self._float_stage(self.facts.n_layers - 1).path / _FIGURES, _Figures)
        parts = [read_json(stage.path / _FIGURES, _Figures) for stage in shards]
        quality = (
            self._perplexity(str(Leg.FP32), floats.window_nll),
            self._perplexity(str(kv), parts[-1].window_nll),
        )
        for figure in quality:
            self.progress(
                f"perplexity of {figure.graph}: {figure.perplexity:.4f} over {figure.n_windows} windows, {ENGINE}"
            )
        differences = Differences()
        for part in parts:
            differences.squares |= part.squares
            differences.n_agreed += part.n_agreed
            differences.n_positions += part.n_positions
        return quality, differences.figures(self.facts.n_layers)

    def _perplexity(self, graph: str, sums: tuple[float, ...]) -> PerplexityFigure:
        n_scored = sum(len(window) - 1 for window in self.windows)
        return PerplexityFigure(
            engine=ENGINE,
            graph=graph,
            perplexity=math.exp(math.fsum(sums) / n_scored),
            n_windows=len(self.windows),
            n_scored_tokens=n_scored,
            corpus_sha256=self.corpus.sha256,
            window_nll=sums,
        )


def _layer_stage(layer: int) -> str:
    return f"held-out text layer {layer + 1}"
