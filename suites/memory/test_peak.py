"""Memory: what the runner and the whole phone needed at most and at the end, and what it allocated while generating."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("latency_run")


def test_peak_memory_of_the_runner(verdict):
    verdict("peak_rss_bytes")


def test_steady_memory_of_the_runner(verdict):
    verdict("steady_rss_bytes")


def test_fit_in_the_free_memory_of_the_phone(verdict):
    verdict("of_free_ram_percent")


def test_lowest_free_memory_of_the_phone(verdict):
    verdict("lowest_available_bytes")


def test_peak_memory_of_the_whole_phone(verdict):
    verdict("phone_peak_bytes")


def test_steady_memory_of_the_whole_phone(verdict):
    verdict("phone_steady_bytes")


def test_size_of_the_kv_pool(verdict):
    verdict("kv_pool_bytes")


def test_nothing_is_allocated_while_generating(verdict):
    verdict("heap_allocations")
