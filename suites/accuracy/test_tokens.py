"""Accuracy: the tokens that greedy decoding chooses."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("accuracy_run")


def test_the_most_likely_token_is_that_of_fp32(verdict):
    verdict("top1_agreement")


def test_greedy_tokens_are_exact(verdict):
    """A gate for fp16 only: quantised models may differ where fp32 itself is undecided."""
    verdict("greedy_exact_fraction")


def test_greedy_tokens_differ_only_where_fp32_is_undecided(verdict):
    verdict("greedy_mismatch_max_margin")
