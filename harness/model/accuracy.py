"""How far a compiled graph's numbers are from the float graph's, layer by layer, on the same held-out tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from harness.model.decoder import Decoder
from harness.model.interface import LOGITS
from harness.model.perplexity import Corpus
from harness.model.reference import CpuGraph
from harness.record.artifact import AccuracyFigures, GraphSpec, ModelFacts

N_WINDOWS: Final = 2
SNR_CAP_DB: Final = 200.0
"""Of equal numbers."""


def measure_accuracy(
    fp32: tuple[Path, GraphSpec],
    graph: tuple[Path, GraphSpec],
    corpus: Corpus,
    facts: ModelFacts,
    *,
    context_length: int,
    mask_values: tuple[float, float],
) -> AccuracyFigures | None:
    """The prefill graphs of both legs over the whole chunks of the first windows; None where no window fills a chunk.

    ``mask_values``: of fp32 and of the graph. SNR is 10 log10 of the sum of squares of the float numbers over that of
    the differences; a layer's numbers are the residual stream behind its feed-forward part.
    """
    layers = [f"layer{layer}_after_feed_forward" for layer in range(facts.n_layers)]
    chunk = fp32[1].n_tokens
    windows = [window[: len(window) // chunk * chunk] for window in corpus.windows[:N_WINDOWS]]
    windows = [window for window in windows if window]
    if not windows:
        return None
    legs = [_Watched(*leg, layers) for leg in (fp32, graph)]
    decoders = [
        Decoder([leg], facts, context_length=context_length, mask_value=value)
        for leg, value in zip(legs, mask_values, strict=True)
    ]
    signal, error = dict.fromkeys([*layers, LOGITS], 0.0), dict.fromkeys([*layers, LOGITS], 0.0)
    agreed = n_positions = 0
    for window in windows:
        rows = []
        for leg, decoder in zip(legs, decoders, strict=True):
            leg.seen = []
            decoder.reset()
            rows.append(decoder.real(decoder.extend(window)).astype(np.float64))
        pairs = [(LOGITS, rows[0], rows[1])]
        pairs += [(n, a[n], b[n]) for a, b in zip(legs[0].seen, legs[1].seen, strict=True) for n in layers]
        for name, wanted, found in pairs:
            signal[name] += float(np.square(wanted).sum())
            error[name] += float(np.square(found - wanted).sum())
        agreed += int((rows[0].argmax(axis=1) == rows[1].argmax(axis=1)).sum())
        n_positions += len(window)
    decibels = {name: _decibels(signal[name], error[name]) for name in signal}
    return AccuracyFigures(
        layer_snr_db=tuple(decibels[name] for name in layers),
        logits_snr_db=decibels[LOGITS],
        top1_agreement=agreed / n_positions,
        n_positions=n_positions,
    )


def _decibels(signal: float, error: float) -> float:
    if error == 0.0:
        return SNR_CAP_DB
    if signal == 0.0 or not math.isfinite(error):
        return -SNR_CAP_DB
    return min(SNR_CAP_DB, 10 * math.log10(signal / error))


class _Watched:
    """A graph that also puts out some of its inner tensors."""

    def __init__(self, path: Path, spec: GraphSpec, names: list[str]) -> None:
        model = onnx.load(path)
        kind = onnx.TensorProto.FLOAT16 if _is_half(model) else onnx.TensorProto.FLOAT
        for name in names:
            model.graph.output.append(helper.make_tensor_value_info(name, kind, None))
        self._graph = CpuGraph(model.SerializeToString(), spec)
        self._names = names
        self.seen: list[dict[str, NDArray[np.float64]]] = []

    @property
    def spec(self) -> GraphSpec:
        return self._graph.spec

    def run(self, feed: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        outputs = self._graph.run(feed)
        self.seen.append({name: outputs[name].astype(np.float64) for name in self._names})
        return outputs


def _is_half(model: onnx.ModelProto) -> bool:
    return any(value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for value in model.graph.output)
