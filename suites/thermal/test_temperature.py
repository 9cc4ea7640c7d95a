"""Thermal: start and peak per domain. There is no "device temperature"."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("latency_run")


@pytest.mark.parametrize("domain", ["cpu", "gpu", "npu", "skin", "battery"])
def test_temperature_at_the_start(domain, verdict):
    verdict(f"start_{domain}_celsius")


@pytest.mark.parametrize("domain", ["cpu", "gpu", "npu", "skin", "battery"])
def test_peak_temperature(domain, verdict):
    verdict(f"peak_{domain}_celsius")
