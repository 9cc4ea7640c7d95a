"""Some layers' graphs over a KV cache of their own: what ``Decoder`` is to a whole model.

The residual stream goes in and comes out (token ids into the first layers, logits out of the last), in the graph's own
element type. Layer after layer, texts so pass a model of which no more than one layer is ever in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.model.decoder import PADDING_TOKEN, GraphRunner, step_mask
from harness.model.encoding import NUMPY_DTYPES, encode, zero_element
from harness.model.interface import (
    COS,
    INPUT_IDS,
    LOGITS,
    MASK,
    SIN,
    boundary,
    past_key_in,
    past_key_out,
    past_value_in,
    past_value_out,
)
from harness.model.rope import rope_tables
from harness.record.artifact import ModelFacts, TensorSpec

Array = NDArray[Any]


class PartDecoder:
    """One text at a time through ``layers``. ``runners``: their AR-N graphs."""

    def __init__(
        self,
        runners: Sequence[GraphRunner],
        facts: ModelFacts,
        layers: range,
        *,
        context_length: int,
        mask_value: float,
    ) -> None:
        self._facts, self._layers = facts, layers
        self._context_length, self._mask_value = context_length, mask_value
        self._runners = {runner.spec.n_tokens: runner for runner in runners}
        self._given = boundary(layers.start - 1) if layers.start > 0 else INPUT_IDS
        self._made = boundary(layers.stop - 1) if layers.stop < facts.n_layers else LOGITS
        self._cos, self._sin = rope_tables(facts, context_length)
        self._cache: dict[str, Array] = {}
        self._n_cached = 0
        self.reset()

    @property
    def chunk_tokens(self) -> int:
        return max(self._runners)

    @property
    def given(self) -> TensorSpec:
        """What a step takes."""
        return self._inputs(self.chunk_tokens)[self._given]

    def reset(self) -> None:
        inputs = self._inputs(self.chunk_tokens)
        heads, dim, length = self._facts.n_kv_heads, self._facts.head_dim, self._context_length
        for layer in self._layers:
            for name, shape in (
                (past_key_in(layer), (heads, 1, dim, length)),
                (past_value_in(layer), (heads, 1, length, dim)),
            ):
                self._cache[name] = np.full(shape, zero_element(inputs[name]), NUMPY_DTYPES[inputs[name].dtype])
        self._n_cached = 0

    def step(self, rows: Array) -> Array:
        """The next tokens, ids (n,) or rows (n, hidden), through the narrowest graph that holds them."""
        n_graph, n_real = min(n for n in self._runners if n >= len(rows)), len(rows)
        specs, start = self._inputs(n_graph), self._n_cached
        past, end = self._context_length - n_graph, start + n_real
        if start + n_graph > self._context_length:
            raise ValueError(f"a step of {n_graph} behind {start} tokens exceeds the context of {self._context_length}")
        given = np.full((1, n_graph, *rows.shape[1:]), PADDING_TOKEN, dtype=rows.dtype)
        given[0, :n_real] = rows
        mask = step_mask(n_graph, start, context_length=self._context_length, mask_value=self._mask_value)
        feed: dict[str, Array] = {
            self._given: given,
            MASK: encode(mask[None, None], specs[MASK]),
            COS: encode(self._cos[None, None, start : start + n_graph], specs[COS]),
            SIN: encode(self._sin[None, None, start : start + n_graph], specs[SIN]),
        }
        for layer in self._layers:
            feed[past_key_in(layer)] = self._cache[past_key_in(layer)][..., :past].copy()
            feed[past_value_in(layer)] = self._cache[past_value_in(layer)][:, :, :past].copy()
        outputs = self._runners[n_graph].run(feed)
        for layer in self._layers:
            self._cache[past_key_in(layer)][..., start:end] = outputs[past_key_out(layer)][..., :n_real]
            self._cache[past_value_in(layer)][:, :, start:end] = outputs[past_value_out(layer)][:, :, :n_real]
        self._n_cached = end
        made: Array = outputs[self._made][0, :n_real]
        return made

    def through(self, texts: Sequence[Array]) -> Iterator[tuple[int, int, Array]]:
        """Each text from an empty cache, chunk by chunk: its number, the first row of the chunk, what came out."""
        for number, text in enumerate(texts):
            self.reset()
            for start in range(0, len(text), self.chunk_tokens):
                yield number, start, self.step(np.asarray(text[start : start + self.chunk_tokens]))

    def _inputs(self, n_graph: int) -> Mapping[str, TensorSpec]:
        return {tensor.name: tensor for tensor in self._runners[n_graph].spec.inputs}
