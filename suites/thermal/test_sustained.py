"""Thermal: 300 tokens again and again; what is left of the speed, how hot it gets, and what a slower pace spares."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("sustained_run")]


def test_speed_of_the_first_300_tokens(verdict):
    verdict("first_300_tps")


def test_peak_speed(verdict):
    verdict("sustained_peak_tps")


def test_sustained_speed(verdict):
    verdict("sustained_tps")


def test_time_to_throttling(verdict):
    verdict("seconds_to_throttle")


def test_tokens_to_throttling(verdict):
    verdict("tokens_to_throttle")


@pytest.mark.parametrize("domain", ["cpu", "npu", "skin", "battery"])
def test_rise_of_temperature(domain, verdict):
    verdict(f"rise_{domain}_celsius")


@pytest.mark.parametrize("domain", ["cpu", "npu", "skin", "battery"])
def test_rise_of_temperature_at_a_slower_pace(domain, verdict):
    verdict(f"paced_rise_{domain}_celsius")


def test_speed_at_a_slower_pace(verdict):
    verdict("paced_tps")


def test_recovery(verdict):
    verdict("recovery_s")
