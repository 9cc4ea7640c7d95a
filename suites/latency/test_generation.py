"""Latency: prompt in, tokens out. Each speed names its phase."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("latency_run")


def test_time_to_first_token(verdict):
    verdict("ttft_ms")


def test_prefill_speed(verdict):
    verdict("prefill_tps")


def test_decode_speed(verdict):
    verdict("decode_tps")


@pytest.mark.parametrize("quantile", ["p50", "p90", "p99", "max"])
def test_gap_between_tokens(quantile, verdict):
    verdict(f"itl_{quantile}_ms")


def test_bandwidth_of_the_memory(verdict):
    verdict("memory_gb_per_s")


def test_share_of_the_memory_roof(verdict):
    """One rule for every SoC: bytes that a token moves at the least, over what this phone's memory gave."""
    verdict("decode_efficiency_percent")


def test_share_of_the_compute_roof(verdict):
    verdict("prefill_efficiency_percent")
