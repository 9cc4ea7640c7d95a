from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.model.checkpoint import Checkpoint
from harness.model.hf_config import rope_scaling
from harness.model.rope import plain_frequencies, rope_file_bytes, rope_tables
from harness.record.artifact import RopeScaling

LLAMA_31: dict[str, float] = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192.0,
}
HERE = Path("config.json")


def scaled(kind: str, numbers: dict[str, float], theta: float, head_dim: int) -> np.ndarray:
    scaling = rope_scaling(kind, numbers, theta, head_dim, HERE)
    assert scaling is not None
    return plain_frequencies(theta, head_dim) / np.array(scaling.divisors)


def test_plain_frequencies_fall_from_one_by_equal_ratios() -> None:
    assert plain_frequencies(10000.0, 8) == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_llama_31_keeps_short_waves_slows_long_ones_and_mixes_between() -> None:
    """Llama 3.1 8B: theta 500000, heads of 128. Waves below 8192 / 4 stay, those above 8192 / 1 turn 8 times slower.

    Pair 32 turns by 500000^-0.5 = 1.4142136e-3, a wave of 4442.88: (8192 / 4442.88 - 1) / 3 = 0.281283 of it is kept,
    1.4142136e-3 * (0.281283 + 0.718717 / 8) = 5.248462e-4.
    """
    frequencies = scaled("llama3", LLAMA_31, 500000.0, 128)
    assert len(frequencies) == 64
    assert frequencies[0] == 1.0
    assert frequencies[1] == pytest.approx(0.8146172, rel=1e-6)
    assert frequencies[32] == pytest.approx(5.248462e-4, rel=1e-6)
    assert frequencies[63] == pytest.approx(2.455141e-6 / 8, rel=1e-5)


def test_llama_31_leaves_29_frequencies_alone_and_divides_the_last_29_by_eight() -> None:
    """500000^(-i/64) > 2 pi * 4 / 8192 for i <= 28; < 2 pi / 8192 for i >= 35."""
    scaling = rope_scaling("llama3", LLAMA_31, 500000.0, 128, HERE)
    assert scaling is not None
    divisors = np.array(scaling.divisors)
    assert list(np.flatnonzero(divisors == 1.0)) == list(range(29))
    assert list(np.flatnonzero(np.isclose(divisors, 8.0))) == list(range(35, 64))
    assert np.all(np.diff(divisors[28:36]) > 0)


def test_linear_scaling_divides_every_frequency() -> None:
    assert scaled("linear", {"factor": 4.0}, 10000.0, 4) == pytest.approx([0.25, 0.0025])


def test_the_tables_are_scaled(tiny_llama: Checkpoint) -> None:
    facts = replace(tiny_llama.facts, rope_scaling=RopeScaling(kind="linear", divisors=(2.0,) * 16))
    plain_cos, plain_sin = rope_tables(tiny_llama.facts, 8)
    cos, sin = rope_tables(facts, 16)
    assert cos[::2] == pytest.approx(plain_cos)
    assert sin[::2] == pytest.approx(plain_sin)
    assert sin[1, 0] == pytest.approx(0.479425539)  # sin(1 / 2)


def test_the_file_holds_cosines_then_sines(tiny_llama: Checkpoint) -> None:
    values = np.frombuffer(rope_file_bytes(tiny_llama.facts, 3), "<f4").reshape(2, 3, 16)
    assert values[0, 0] == pytest.approx(1.0)
    assert values[:, 2, 0] == pytest.approx([-0.416146837, 0.909297427])  # cos 2, sin 2
