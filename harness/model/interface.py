"""The inputs and outputs every AR-N graph has, in order, with their shapes.

The new N tokens come last in the attention: of the ``context_length`` columns of ``attention_mask``, the first
``context_length - N`` stand for the past cache, the last N for the tokens of this step. Which slots of the past hold
tokens is whatever the mask says; SnapGate fills the past from the left (slot = position) everywhere, so that equal
prompts give equal sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.model.form import Embeddings
from harness.record.artifact import ModelFacts

INPUT_IDS: Final = "input_ids"
INPUT_EMBEDS: Final = "input_embeds"
"""In the place of ``input_ids`` where the host looks embeddings up."""
MASK: Final = "attention_mask"
COS: Final = "position_ids_cos"
SIN: Final = "position_ids_sin"
LOGITS: Final = "logits"

Shapes = Mapping[str, tuple[int, ...]]


def past_key_in(layer: int) -> str:
    return f"past_key_{layer}_in"


def past_value_in(layer: int) -> str:
    return f"past_value_{layer}_in"


def past_key_out(layer: int) -> str:
    return f"past_key_{layer}_out"


def past_value_out(layer: int) -> str:
    return f"past_value_{layer}_out"


def boundary(layer: int) -> str:
    """The residual stream behind ``layer``."""
    return f"layer{layer}_after_feed_forward"


def input_shapes(
    facts: ModelFacts,
    n_tokens: int,
    context_length: int,
    embeddings: Embeddings = Embeddings.GRAPH,
    layers: range | None = None,
) -> Shapes:
    """``input_ids`` int32, everything else of the graph's own element type. Keys are kept transposed.

    ``layers``: of a graph of these layers only, which takes the residual stream of the one before; default all.
    """
    past = context_length - n_tokens
    layers = range(facts.n_layers) if layers is None else layers
    rows = (1, n_tokens, facts.hidden_size)
    first: dict[str, tuple[int, ...]] = {boundary(layers.start - 1): rows}
    if layers.start == 0:
        first = {INPUT_IDS: (1, n_tokens)} if embeddings is Embeddings.GRAPH else {INPUT_EMBEDS: rows}
    shapes: dict[str, tuple[int, ...]] = {
        **first,
        MASK: (1, 1, n_tokens, context_length),
        COS: (1, 1, n_tokens, facts.head_dim // 2),
        SIN: (1, 1, n_tokens, facts.head_dim // 2),
    }
    for layer in layers:
        shapes[past_key_in(layer)] = (facts.n_kv_heads, 1, facts.head_dim, past)
        shapes[past_value_in(layer)] = (facts.n_kv_heads, 1, past, facts.head_dim)
    return shapes


def output_shapes(
    facts: ModelFacts, n_tokens: int, *, n_logits: int | None = None, layers: range | None = None
) -> Shapes:
    """``n_logits``: rows of logits; default one a token. ``layers``: see ``input_shapes``."""
    layers = range(facts.n_layers) if layers is None else layers
    shapes: dict[str, tuple[int, ...]] = {boundary(layers.stop - 1): (1, n_tokens, facts.hidden_size)}
    if layers.stop == facts.n_layers:
        shapes = {LOGITS: (1, n_logits or n_tokens, facts.vocab_size)}
    for layer in layers:
        shapes[past_key_out(layer)] = (facts.n_kv_heads, 1, facts.head_dim, n_tokens)
        shapes[past_value_out(layer)] = (facts.n_kv_heads, 1, n_tokens, facts.head_dim)
    return shapes
