"""Latency: from a cold process to a loaded model."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("latency_run")


def test_loading(verdict):
    verdict("load_ms")


@pytest.mark.parametrize(
    "phase",
    ["open_libraries", "backend", "device", "read", "verify", "context_create", "graph_retrieve", "buffers"],
)
def test_load_phase(phase, verdict):
    verdict(f"load_{phase}_ms")
