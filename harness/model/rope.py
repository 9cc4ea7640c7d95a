"""Rotary position tables, the one source for graphs, reference, NumPy model and runner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.record.artifact import ModelFacts


def rope_tables(facts: ModelFacts, n_positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin of position * theta^(-2i/head_dim), each float32 (n_positions, head_dim / 2), computed in float64."""
    pairs = np.arange(facts.head_dim // 2, dtype=np.float64)
    frequencies = facts.rope_theta ** (-2.0 * pairs / facts.head_dim)
    angles = np.arange(n_positions, dtype=np.float64)[:, None] * frequencies[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rope_file_bytes(facts: ModelFacts, n_positions: int) -> bytes:
    """The contents of ``rope.bin``: the cos table, then the sin table, little-endian float32."""
    return b"".join(table.astype("<f4").tobytes() for table in rope_tables(facts, n_positions))
