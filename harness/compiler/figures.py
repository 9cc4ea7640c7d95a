"""The accuracy of what was compiled, while both graphs are at hand, and the lines that tell it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.compiler.recipe import Plan
from harness.model.perplexity import Corpus
from harness.model.recipes import FLOAT_MASK_VALUE, mask_value
from harness.record.artifact import AccuracyFigures, GraphSpec, ModelFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def measured_accuracy(
    legs: tuple[Sequence[Path], Sequence[Path]],
    plan: Plan,
    facts: ModelFacts,
    corpus: Corpus,
    progress: Callable[[str], None],
    *,
    embeddings: NDArray[np.float32] | None = None,
) -> AccuracyFigures | None:
    """Per-layer and logits SNR and top-1 agreement of the prefill graph; None where no window fills a chunk.

    ``legs``: the fp32 graph, and the graph that is compiled, each perhaps in shards. ``embeddings``: the table of
    graphs that take its rows.
    """
    from harness.model.accuracy import measure_accuracy

    fp32, graph = ([(path, graph_spec(path, plan.prefill_tokens)) for path in paths] for paths in legs)
    progress(f"accuracy of {plan.precision} against fp32, layer by layer")
    return measure_accuracy(
        fp32,
        graph,
        corpus,
        facts,
        context_length=plan.context_length,
        mask_values=(FLOAT_MASK_VALUE, mask_value(plan.precision)),
        embeddings=embeddings,
        progress=progress,
    )


def graph_spec(path: Path, n_tokens: int) -> GraphSpec:
    """Inputs and outputs of an ONNX graph, its weights left where they are."""
    from harness.model.io_specs import io_specs
    from harness.model.storage import load_graph

    inputs, outputs = io_specs(load_graph(path))
    return GraphSpec(name=path.stem, n_tokens=n_tokens, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)
