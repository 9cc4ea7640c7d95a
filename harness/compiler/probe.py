"""Known defects of an arch, asked of the compiled graphs themselves: the emulator's numbers beside the CPU's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.compiler.execute import run_context
from harness.model.decoder import Decoder
from harness.model.embeddings import with_embeddings
from harness.model.encoding import decode
from harness.model.reference import CpuGraph
from harness.model.shards import as_one
from harness.record.artifact import GraphSpec, ModelFacts, TensorSpec
from harness.soc import KNOWN_DEFECTS, Soc

MIN_CORRELATION: Final = 0.9
"""Of any output with the CPU's: outputs with a wrong head had -0.04 to 0.23, right ones 0.99 and more."""
N_TOKENS: Final = 8

Array = NDArray[Any]
Step = tuple[Path, GraphSpec, Path]
"""An ONNX graph, its specification and its binary."""


def defects_to_look_for(soc: Soc) -> tuple[str, ...]:
    return tuple(defect.name for defect in KNOWN_DEFECTS if soc.htp_arch in defect.htp_archs)


def seen_defects(
    steps: Sequence[Step],
    facts: ModelFacts,
    soc: Soc,
    *,
    context_length: int,
    mask_value: float,
    embeddings: Array | None = None,
) -> tuple[str, ...]:
    """The known defects of ``soc`` that the AR-1 graph shows on the emulator, after some tokens on the CPU."""
    names = defects_to_look_for(soc)
    if not names:
        return ()
    least = least_correlation(steps, facts, context_length=context_length, mask_value=mask_value, embeddings=embeddings)
    return names if least < MIN_CORRELATION else ()


def least_correlation(
    steps: Sequence[Step],
    facts: ModelFacts,
    *,
    context_length: int,
    mask_value: float,
    embeddings: Array | None = None,
) -> float:
    """Of the outputs of an AR-N graph on the emulator with those on the CPU, after some tokens on the CPU.

    ``steps``: ONNX graph, specification and binary of the graph, or of each of its shards. Every shard gets the inputs
    that it has on the CPU.
    """
    watched = [Watched(CpuGraph(path, spec)) for path, spec, _ in steps]
    decoder = Decoder(
        [with_embeddings(as_one(watched), embeddings)], facts, context_length=context_length, mask_value=mask_value
    )
    n_tokens = max(min(N_TOKENS, context_length), min(steps[0][1].n_tokens, context_length))
    decoder.extend([index * facts.vocab_size // n_tokens for index in range(n_tokens)])
    least = 1.0
    for (_, spec, binary), runner in zip(steps, watched, strict=True):
        if spec.epcontext_nodes == 0:
            continue  # runs on the CPU anyway
        least = min(least, agreement(runner, spec, binary))
    return least


def agreement(watched: Watched, spec: GraphSpec, binary: Path) -> float:
    """The least correlation of an output of its last run with the emulator's, for the same inputs."""
    (found,) = run_context(binary, spec, [watched.feed])
    return min(correlation(watched.outputs[t.name], found[t.name], t) for t in spec.outputs)


def correlation(expected: Array, found: Array, spec: TensorSpec) -> float:
    """Pearson's, of the real numbers; 1 where both are the same constant."""
    pair = [decode(values, spec).astype(np.float64).ravel() for values in (expected, found)]
    pair = [values - values.mean() for values in pair]
    norms = [float(np.linalg.norm(values)) for values in pair]
    if min(norms) == 0.0:
        return float(max(norms) == 0.0)
    return float(pair[0] @ pair[1]) / (norms[0] * norms[1])


class Watched:
    """A graph that keeps the inputs and outputs of its last run."""

    def __init__(self, graph: CpuGraph) -> None:
        self._graph = graph
        self.feed: Mapping[str, Array] = {}
        self.outputs: Mapping[str, Array] = {}

    @property
    def spec(self) -> GraphSpec:
        return self._graph.spec

    def run(self, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        self.feed, self.outputs = dict(feed), self._graph.run(feed)
        return self.outputs
