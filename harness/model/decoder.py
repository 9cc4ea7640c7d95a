"""Runs an AR-N and an AR-1 graph over a KV cache exactly as the native runner does, whatever executes the graphs.

The cache of position p is slot p of the past (filled from the left). A chunk of fewer than N tokens is padded behind
its real tokens with token 0; what the padding computes is dropped. Of several AR-N graphs a step takes the
narrowest that holds all tokens left, or else the widest; none that would reach past the end of the context. Where none
fits, tokens go through the AR-1 graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.errors import ArtifactError, UserError
from harness.model.encoding import NUMPY_DTYPES, decode, encode, zero_element
from harness.model.interface import (
    COS,
    INPUT_IDS,
    LOGITS,
    MASK,
    SIN,
    past_key_in,
    past_key_out,
    past_value_in,
    past_value_out,
)
from harness.model.rope import rope_tables
from harness.record.artifact import GraphSpec, ModelFacts, TensorSpec

PADDING_TOKEN: Final = 0

Array = NDArray[Any]


def step_mask(
    n_graph: int, n_cached: int, *, context_length: int, mask_value: float | np.float32
) -> NDArray[np.float32]:
    """(N, context): row j sees the cached slots, and of the new tokens the ones up to itself."""
    mask = np.full((n_graph, context_length), np.float32(mask_value), dtype=np.float32)
    mask[:, :n_cached] = 0.0
    new = mask[:, context_length - n_graph :]
    new[np.tril(np.ones((n_graph, n_graph), dtype=bool))] = 0.0
    return mask


def row_nll(logits: Array, following: Sequence[int]) -> NDArray[np.float64]:
    """-ln p of each following token by its row of ``logits``; a last row that nothing follows is left out."""
    chosen = np.asarray(following, dtype=np.int64)
    rows = logits[: len(chosen)].astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True) if len(rows) else 0.0
    values: NDArray[np.float64] = np.log(np.exp(rows).sum(axis=-1)) - rows[np.arange(len(chosen)), chosen]
    return values


class GraphRunner(Protocol):
    """One graph and something that executes it."""

    @property
    def spec(self) -> GraphSpec: ...

    def run(self, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        """All outputs by name, for all inputs by name, in the graph's own element types."""
        ...


class Decoder:
    """One sequence at a time. Logits are kept raw, in the graph's element type; ``real`` turns them into float32."""

    def __init__(
        self, runners: Sequence[GraphRunner], facts: ModelFacts, *, context_length: int, mask_value: float
    ) -> None:
        self.facts = facts
        self.context_length = context_length
        self._mask_value = np.float32(mask_value)
        self._runners = {runner.spec.n_tokens: runner for runner in runners}
        self._chunk = max(self._runners)
        spec = self._runners[self._chunk].spec
        self._inputs = {n: {t.name: t for t in r.spec.inputs} for n, r in self._runners.items()}
        self.logits_spec: TensorSpec = next(tensor for tensor in spec.outputs if tensor.name == LOGITS)
        self._puts_out_every_row = self.logits_spec.shape[1] == self._chunk
        self._cos, self._sin = rope_tables(facts, context_length)
        self._keys: list[Array] = []
        self._values: list[Array] = []
        self.n_cached = 0
        self.reset()

    @property
    def chunk_tokens(self) -> int:
        """Tokens of a whole prefill step."""
        return self._chunk

    def reset(self) -> None:
        """Forget the sequence: an empty cache."""
        inputs = self._inputs[self._chunk]
        heads, dim, length = self.facts.n_kv_heads, self.facts.head_dim, self.context_length
        self._keys, self._values = [], []
        for layer in range(self.facts.n_layers):
            key, value = inputs[past_key_in(layer)], inputs[past_value_in(layer)]
            self._keys.append(np.full((heads, 1, dim, length), zero_element(key), NUMPY_DTYPES[key.dtype]))
            self._values.append(np.full((heads, 1, length, dim), zero_element(value), NUMPY_DTYPES[value.dtype]))
        self.n_cached = 0

    def extend(self, tokens: Sequence[int], *, step_with: str = "chunk") -> Array:
        """Append ``tokens`` to the sequence; raw logits (n_tokens, vocabulary), row i computed from token i.

        ``step_with``: ``chunk`` uses the AR-N graph, ``token`` the AR-1 graph, one token after the other. An AR-N
        graph that puts out its last row only takes whole chunks, and gives that one row for each; the rest goes by
        tokens.
        """
        self._check(tokens)
        rows: list[Array] = []
        rest = list(tokens)
        while rest:
            fitting = sorted(n for n in self._runners if step_with == "chunk" and self._takes(n, len(rest)))
            n_graph = next((n for n in fitting if n >= len(rest)), fitting[-1]) if fitting else self._smallest()
            rows.append(self._run(rest[:n_graph], n_graph))
            rest = rest[n_graph:]
        return np.concatenate(rows)

    def real(self, raw: Array) -> NDArray[np.float32]:
        return decode(raw, self.logits_spec)

    def generate(
        self,
        tokens: Sequence[int],
        n_gen: int,
        *,
        forced: Sequence[int] = (),
        step_with: str = "chunk",
        ignore_eos: bool = False,
    ) -> tuple[tuple[int, ...], Array]:
        """From an empty cache: what greedy decoding chose at each step, and raw logits (n_prompt + n - 1, vocabulary).

        Ties go to the lowest id. Stops after ``n_gen`` choices, after an end token (kept), or at a full context.
        With ``forced``, its ids are fed instead of the choices and end tokens do not stop it.
        """
        if forced and len(forced) < n_gen - 1:
            raise UserError("too few forced tokens", found=str(len(forced)), expected=f"{n_gen - 1} for n_gen {n_gen}")
        self.reset()
        rows = [self.extend(tokens, step_with=step_with)]
        chosen = [int(np.argmax(rows[-1][-1]))] if n_gen > 0 else []
        while len(chosen) < n_gen and self.n_cached < self.context_length:
            fed = forced[len(chosen) - 1] if forced else chosen[-1]
            if not forced and not ignore_eos and fed in self.facts.eos_ids:
                break
            rows.append(self.extend((fed,), step_with="token"))
            chosen.append(int(np.argmax(rows[-1][-1])))
        return tuple(chosen), np.concatenate(rows)

    def window_nll(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """-ln p(token i+1 | tokens 0..i) from an empty cache: len(tokens) - 1 values, log-softmax in float64."""
        if not self._puts_out_every_row:
            raise ArtifactError(
                "perplexity needs the logits of every token",
                found=f"{self.logits_spec.shape[1]} row of {self._chunk}",
                next_step="prepare the artifact with --logits all",
            )
        self.reset()
        values: list[NDArray[np.float64]] = []
        for start in range(0, len(tokens), self._chunk):
            logits = self.real(self.extend(tokens[start : start + self._chunk]))
            values.append(row_nll(logits, tokens[start + 1 : start + self._chunk + 1]))
        return np.concatenate(values)

    def _takes(self, n_graph: int, n_rest: int) -> bool:
        fits = n_graph > 1 and self.n_cached + n_graph <= self.context_length
        return fits and (n_rest >= n_graph or self._puts_out_every_row)

    def _smallest(self) -> int:
        smallest = min(self._runners)
        if smallest != 1:
            raise ArtifactError(
                "stepping one token needs an AR-1 graph", found=str(sorted(self._runners)), expected="1"
            )
        return smallest

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise UserError("the prompt is empty", found="0 tokens", expected="at least 1")
        if self.n_cached + len(tokens) > self.context_length:
            raise UserError(
                "the prompt is longer than the context",
                found=f"{self.n_cached + len(tokens)} tokens",
                expected=f"at most {self.context_length}",
                next_step="shorten the prompt, or prepare with a larger --context",
            )
        outside = [token for token in tokens if not 0 <= token < self.facts.vocab_size]
        if outside:
            raise UserError(
                "a token id lies outside the vocabulary",
                found=str(outside[0]),
                expected=f"0 to {self.facts.vocab_size - 1}",
                next_step="tokenise with the artifact's own tokenizer.json",
            )

    def _run(self, tokens: Sequence[int], n_graph: int) -> Array:
        start, n_real = self.n_cached, len(tokens)
        specs = self._inputs[n_graph]
        past = self.context_length - n_graph
        ids = np.full((1, n_graph), PADDING_TOKEN, dtype=np.int32)
        ids[0, :n_real] = tokens
        feed: dict[str, Array] = {
            INPUT_IDS: ids,
            MASK: encode(
                step_mask(n_graph, start, context_length=self.context_length, mask_value=self._mask_value)[None, None],
                specs[MASK],
            ),
            COS: encode(self._cos[None, None, start : start + n_graph], specs[COS]),
            SIN: encode(self._sin[None, None, start : start + n_graph], specs[SIN]),
        }
        for layer in range(self.facts.n_layers):
            feed[past_key_in(layer)] = self._keys[layer][..., :past].copy()
            feed[past_value_in(layer)] = self._values[layer][:, :, :past].copy()
        outputs = self._runners[n_graph].run(feed)
        end = start + n_real
        for layer in range(self.facts.n_layers):
            self._keys[layer][..., start:end] = outputs[past_key_out(layer)][..., :n_real]
            self._values[layer][:, :, start:end] = outputs[past_value_out(layer)][:, :, :n_real]
        self.n_cached = end
        logits: Array = outputs[LOGITS][0, :n_real]
        return logits
