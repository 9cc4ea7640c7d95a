"""Rotary position tables, the one source for graphs, reference and runner, and the known ways to scale them.

A scaling divides the frequencies, each by a number of its own, and nothing else. Kinds that also scale the attention
(yarn, longrope) or that change with the length of the prompt (dynamic) are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.record.artifact import ModelFacts

Floats = NDArray[np.float64]


def plain_frequencies(theta: float, head_dim: int) -> Floats:
    """theta^(-2i/head_dim), radians a position, for i below head_dim / 2."""
    pairs = np.arange(head_dim // 2, dtype=np.float64)
    frequencies: Floats = theta ** (-2.0 * pairs / head_dim)
    return frequencies


def _linear(frequencies: Floats, given: Mapping[str, float]) -> Floats:
    """Position interpolation (Chen et al. 2023): every frequency divided by ``factor``."""
    return np.full_like(frequencies, given["factor"])


def _llama3(frequencies: Floats, given: Mapping[str, float]) -> Floats:
    """Llama 3.1's rule: waves longer than the trained context / low_freq_factor are slowed by ``factor``, waves shorter
    than it / high_freq_factor are left alone, and between the two the *frequencies* are mixed linearly. Not a number
    where low_freq_factor is not below high_freq_factor.
    """
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    if not low < high:
        return np.full_like(frequencies, np.nan)
    turns = given["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    divisors: Floats = 1.0 / (kept + (1.0 - kept) / given["factor"])
    return divisors


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeKind:
    keys: tuple[str, ...]
    """Positive numbers a checkpoint must give beside the kind."""
    divisors: Callable[[Floats, Mapping[str, float]], Floats] | None
    """None: nothing is scaled."""


ROPE_KINDS: Final[Mapping[str, RopeKind]] = MappingProxyType(
    {
        "default": RopeKind(keys=(), divisors=None),
        "linear": RopeKind(keys=("factor",), divisors=_linear),
        "llama3": RopeKind(
            keys=("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
            divisors=_llama3,
        ),
    }
)


def rope_tables(facts: ModelFacts, n_positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin of position * frequency, each float32 (n_positions, head_dim / 2), computed in float64."""
    frequencies = plain_frequencies(facts.rope_theta, facts.head_dim)
    if facts.rope_scaling is not None:
        frequencies = frequencies / np.array(facts.rope_scaling.divisors)
    angles = np.arange(n_positions, dtype=np.float64)[:, None] * frequencies[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rope_file_bytes(facts: ModelFacts, n_positions: int) -> bytes:
    """The contents of ``rope.bin``: the cos table, then the sin table, little-endian float32."""
    return b"".join(table.astype("<f4").tobytes() for table in rope_tables(facts, n_positions))
