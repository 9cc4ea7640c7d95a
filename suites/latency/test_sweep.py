"""Latency over prompt length, depth and pauses; start-up cold and warm."""

from __future__ import annotations

import pytest

from harness.measure.suite_metrics import DEPTHS, LENGTHS, PAUSES

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("sweep_run")]


@pytest.mark.parametrize("n", LENGTHS)
def test_time_to_first_token_over_prompt_length(n, verdict):
    verdict(f"ttft_at_{n}_ms")


@pytest.mark.parametrize("n", LENGTHS)
def test_prefill_speed_over_prompt_length(n, verdict):
    """Not below one whole chunk: there it is padding."""
    verdict(f"prefill_tps_at_{n}")


@pytest.mark.parametrize("n", DEPTHS)
def test_decode_speed_over_depth(n, verdict):
    verdict(f"decode_tps_at_depth_{n}")


def test_longest_text(verdict):
    verdict("longest_text_tokens")


def test_a_token_after_a_pause(verdict):
    verdict("tpot_after_idle_ms")


@pytest.mark.parametrize("n", PAUSES)
def test_time_to_first_token_after_a_pause(n, verdict):
    verdict(f"ttft_after_{n}_s_ms")


def test_copy_to_the_phone(verdict):
    verdict("copy_ms")


def test_first_start(verdict):
    verdict("load_first_ms")


def test_later_starts(verdict):
    verdict("load_again_ms")
