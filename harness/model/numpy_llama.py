"""The checkpoint evaluated directly in NumPy: an independent statement of what the model computes.

Nothing here is shared with the graphs except the checkpoint and the RoPE tables' formula, so a mistake in the one
shows against the other. No KV cache: a whole sequence at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint

Array = NDArray[Any]


def numpy_logits(checkpoint: Checkpoint, tokens: Sequence[int]) -> Array:
    """Logits (n_tokens, vocabulary) of one sequence, computed in float64. Tensors are read one layer at a time."""
    facts = checkpoint.facts

    def weight(role: Role, layer: int | None = None) -> Array:
        return checkpoint.weight(role, layer).astype(np.float64)

    def rms_norm(x: Array, gamma: Array) -> Array:
        rms: Array = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + facts.rms_norm_eps)
        return x / rms * gamma

    def heads(x: Array, n_heads: int) -> Array:
        """(n, heads * dim) to (heads, n, dim)"""
        return x.reshape(len(x), n_heads, facts.head_dim).transpose(1, 0, 2)

    n = len(tokens)
    half = facts.head_dim // 2
    frequency = facts.rope_theta ** -(np.arange(half) / half)
    turn = np.exp(1j * np.outer(np.arange(n), frequency))

    def rotate(x: Array) -> Array:
        """Pairs (i, i + half) as complex numbers, turned by position * frequency."""
        turned = (x[..., :half] + 1j * x[..., half:]) * turn
        return np.concatenate([turned.real, turned.imag], axis=-1)

    hidden = weight(Role.EMBEDDING)[np.asarray(tokens)]
    visible = np.tril(np.ones((n, n), dtype=bool))
    for layer in range(facts.n_layers):
        x = rms_norm(hidden, weight(Role.INPUT_NORM, layer))
        query = rotate(heads(x @ weight(Role.QUERY, layer).T, facts.n_heads))
        key = rotate(heads(x @ weight(Role.KEY, layer).T, facts.n_kv_heads))
        value = heads(x @ weight(Role.VALUE, layer).T, facts.n_kv_heads)
        repeats = facts.n_heads // facts.n_kv_heads
        key, value = np.repeat(key, repeats, axis=0), np.repeat(value, repeats, axis=0)
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(facts.head_dim)
        scores = np.where(visible, scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        mixed = mixed.transpose(1, 0, 2).reshape(n, facts.n_heads * facts.head_dim)
        hidden = hidden + mixed @ weight(Role.OUTPUT, layer).T
        x = rms_norm(hidden, weight(Role.POST_NORM, layer))
        gate = x @ weight(Role.GATE, layer).T
        inner = gate / (1 + np.exp(-gate)) * (x @ weight(Role.UP, layer).T)
        hidden = hidden + inner @ weight(Role.DOWN, layer).T
    return rms_norm(hidden, weight(Role.FINAL_NORM)) @ weight(Role.HEAD).T
