"""The checkpoint evaluated directly in NumPy: an independent statement of what the model computes.

Nothing here is shared with the graphs except the checkpoint and its facts, so a mistake in the one shows against the
other. No KV cache: a whole sequence at once.
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

    def project(x: Array, role: Role, bias: Role, layer: int, n_heads: int) -> Array:
        """(n, hidden) to (n_heads, n, head_dim), with the bias where the architecture has one."""
        product = x @ weight(role, layer).T
        return heads(product + weight(bias, layer) if checkpoint.has(bias) else product, n_heads)

    def normed(x: Array, role: Role, layer: int) -> Array:
        """Each head on its own, where the architecture does so."""
        return rms_norm(x, weight(role, layer)) if checkpoint.has(role) else x

    n = len(tokens)
    half = facts.head_dim // 2
    frequency = facts.rope_theta ** -(np.arange(half) / half)
    if facts.rope_scaling is not None:
        frequency = frequency / facts.rope_scaling.divisors
    turn = np.exp(1j * np.outer(np.arange(n), frequency))

    def rotate(x: Array) -> Array:
        """Pairs (i, i + half) as complex numbers, turned by position * frequency."""
        turned = (x[..., :half] + 1j * x[..., half:]) * turn
        return np.concatenate([turned.real, turned.imag], axis=-1)

    hidden = weight(Role.EMBEDDING)[np.asarray(tokens)]
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    visible = (distance >= 0) & (distance < (facts.sliding_window or n))
    for layer in range(facts.n_layers):
        x = rms_norm(hidden, weight(Role.INPUT_NORM, layer))
        query = project(x, Role.QUERY, Role.QUERY_BIAS, layer, facts.n_heads)
        key = project(x, Role.KEY, Role.KEY_BIAS, layer, facts.n_kv_heads)
        value = project(x, Role.VALUE, Role.VALUE_BIAS, layer, facts.n_kv_heads)
        query, key = rotate(normed(query, Role.QUERY_NORM, layer)), rotate(normed(key, Role.KEY_NORM, layer))
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
