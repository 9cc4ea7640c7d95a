"""The accuracy of what was compiled, while both graphs are at hand, and the lines that tell it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.compiler.recipe import Plan
from harness.model.perplexity import Corpus
from harness.model.recipes import FLOAT_MASK_VALUE, mask_value
from harness.model.reference import reference_file
from harness.record.artifact import AccuracyFigures, GraphSpec, ModelFacts
from harness.record.comparison import Leg


def measured_accuracy(
    folder: Path,
    plan: Plan,
    facts: ModelFacts,
    corpus: Corpus | None,
    graph_spec: Callable[[Path, int], GraphSpec],
    progress: Callable[[str], None],
) -> AccuracyFigures | None:
    """Per-layer and logits SNR and top-1 agreement of the prefill graph; None without held-out text."""
    if corpus is None:
        return None
    from harness.model.accuracy import measure_accuracy

    n_tokens = plan.prefill_tokens
    legs = []
    for leg in (Leg.FP32, Leg.GRAPH):
        path = folder / reference_file(leg, n_tokens)
        legs.append((path, graph_spec(path, n_tokens)))
    progress(f"accuracy of {plan.precision} against fp32, layer by layer")
    return measure_accuracy(
        legs[0],
        legs[1],
        corpus,
        facts,
        context_length=plan.context_length,
        mask_values=(FLOAT_MASK_VALUE, mask_value(plan.precision)),
    )
