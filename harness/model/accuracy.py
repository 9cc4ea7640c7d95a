"""How far a compiled graph's numbers are from the float graph's, layer by layer, on the same held-out tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.model.decoder import Decoder
from harness.model.embeddings import with_embeddings
from harness.model.interface import LOGITS, boundary
from harness.model.perplexity import Corpus
from harness.model.reference import CpuGraph
from harness.model.shards import as_one
from harness.record.artifact import AccuracyFigures, GraphSpec, ModelFacts

N_WINDOWS: Final = 2
SNR_CAP_DB: Final = 200.0
"""Of equal numbers."""

Array = NDArray[Any]


def measure_accuracy(
    fp32: Sequence[tuple[Path, GraphSpec]],
    graph: Sequence[tuple[Path, GraphSpec]],
    corpus: Corpus,
    facts: ModelFacts,
    *,
    context_length: int,
    mask_values: tuple[float, float],
    embeddings: Array | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> AccuracyFigures | None:
    """The prefill graphs (or their shards) of both legs over the whole chunks of the first windows.

    None where no window fills a chunk. ``mask_values``: of fp32 and of the graph. SNR is 10 log10 of the sum of squares
    of the float numbers over that of the differences; a layer's numbers are the residual stream behind its feed-forward
    part.
    """
    layers = [boundary(layer) for layer in range(facts.n_layers)]
    chunk = fp32[0][1].n_tokens
    windows = [window[: len(window) // chunk * chunk] for window in corpus.windows[:N_WINDOWS]]
    windows = [window for window in windows if window]
    if not windows:
        return None
    seen: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    decoders = [
        Decoder(
            [with_embeddings(as_one([WatchedGraph(path, spec, layers, into) for path, spec in leg]), embeddings)],
            facts,
            context_length=context_length,
            mask_value=value,
        )
        for leg, into, value in zip((fp32, graph), seen, mask_values, strict=True)
    ]
    differences = Differences()
    for index, window in enumerate(windows):
        progress(f"accuracy: window {index + 1} of {len(windows)}")
        for decoder in decoders:
            decoder.reset()
        for start in range(0, len(window), chunk):
            rows = [decoder.real(decoder.extend(window[start : start + chunk])) for decoder in decoders]
            for name in layers:
                differences.add(name, *(values[name] for values in seen))
            differences.add_logits(*rows)
    return differences.figures(facts.n_layers)


class Differences:
    """Sums over positions, of each layer's numbers and of the logits; float values in any shape, fp32's first."""

    def __init__(self) -> None:
        self.squares: dict[str, tuple[float, float]] = {}
        """By tensor, the sum of squares of fp32's numbers, and of the differences."""
        self.n_agreed = 0
        self.n_positions = 0

    def add(self, name: str, wanted: Array, found: Array) -> None:
        wanted, found = wanted.astype(np.float64), found.astype(np.float64)
        signal, error = self.squares.get(name, (0.0, 0.0))
        self.squares[name] = (
            signal + float(np.square(wanted).sum()),
            error + float(np.square(found - wanted).sum()),
        )

    def add_logits(self, wanted: Array, found: Array) -> None:
        """(positions, vocabulary)"""
        self.add(LOGITS, wanted, found)
        self.n_agreed += int((wanted.argmax(axis=1) == found.argmax(axis=1)).sum())
        self.n_positions += len(wanted)

    def figures(self, n_layers: int) -> AccuracyFigures | None:
        """None where no position was added."""
        if self.n_positions == 0:
            return None
        return AccuracyFigures(
            layer_snr_db=tuple(_decibels(*self.squares[boundary(layer)]) for layer in range(n_layers)),
            logits_snr_db=_decibels(*self.squares[LOGITS]),
            top1_agreement=self.n_agreed / self.n_positions,
            n_positions=self.n_positions,
        )


def _decibels(signal: float, error: float) -> float:
    if error == 0.0:
        return SNR_CAP_DB
    if signal == 0.0 or not math.isfinite(error):
        return -SNR_CAP_DB
    return min(SNR_CAP_DB, 10 * math.log10(signal / error))


class WatchedGraph:
    """A graph (or shard) that also puts out those of ``names`` that it computes, into ``seen``, in float."""

    def __init__(self, path: Path, spec: GraphSpec, names: Sequence[str], seen: dict[str, Array]) -> None:
        from onnx import TensorProto, helper

        from harness.model.quantize import BEFORE_EDGE
        from harness.model.storage import load_graph

        model = load_graph(path)
        kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
        kind = TensorProto.FLOAT16 if TensorProto.FLOAT16 in kinds.values() else TensorProto.FLOAT
        made = {name for node in model.graph.node for name in node.output}
        sources = {name: f"{name}{BEFORE_EDGE}" for name in names}
        self._sources = {name: sources[name] if sources[name] in made else name for name in names if name in made}
        for source in self._sources.values():
            if source not in kinds:
                model.graph.output.append(helper.make_tensor_value_info(source, kind, None))
        self._graph = CpuGraph(model.SerializeToString(), spec, folder=path.parent)
        self._seen = seen

    @property
    def spec(self) -> GraphSpec:
        return self._graph.spec

    def run(self, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        outputs = self._graph.run(feed)
        for name, source in self._sources.items():
            self._seen[name] = outputs[source]
        return outputs
