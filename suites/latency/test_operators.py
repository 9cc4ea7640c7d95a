"""Latency: which operators take the cycles of the HTP. The library counts, which slows it: shown, never judged."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("operators_run")]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cycles_of_all_operators(phase, verdict):
    verdict(f"{phase}_cycles")
