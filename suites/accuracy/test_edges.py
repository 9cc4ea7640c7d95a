"""Accuracy at the edges: chunk boundaries, padded rows, the end of the context; and the same answer every time."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("edges_run")]


def test_prompts_around_a_chunk_and_a_whole_context_are_near_fp32(verdict):
    """1, N-1, N, N+1, 2N and context-length tokens. One token, and one more than a chunk, leave all other rows of the
    graph padding; the first chunk has an empty cache, so all columns left of it are masked. The runner pads nothing on
    the left and masks no row throughout (``device_runtime/src/attention_mask.h``)."""
    verdict("edge_snr_db")


def test_long_positions_are_near_fp32(verdict):
    """A position table that is wrong only far from the start shows nowhere else."""
    verdict("long_position_snr_db")


def test_the_same_prompt_gives_the_same_answer(verdict):
    verdict("deterministic")
