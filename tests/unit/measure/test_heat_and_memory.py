"""Temperatures per domain and the runner's peak memory."""

from __future__ import annotations

import math

import pytest

from harness.measure.memory import peak_rss_bytes
from harness.measure.thermal import temperatures, usable_celsius
from harness.record.run import SensorSeries
from harness.record.runner import Memory


def series(domain, values, *, state="ok", unit="celsius", name="s"):
    return SensorSeries(
        name=name, domain=domain, unit=unit, state=state, monotonic_ns=tuple(range(len(values))), values=tuple(values)
    )


def test_start_and_peak_are_taken_per_domain_from_the_hottest_sensor():
    found = temperatures([series("npu", [40.0, 45.0]), series("npu", [41.0, 42.0]), series("skin", [30.0, 33.0])])
    assert (found["npu"].start_celsius, found["npu"].peak_celsius) == (41.0, 45.0)
    assert (found["skin"].start_celsius, found["skin"].peak_celsius) == (30.0, 33.0)
    assert (found["npu"].n_sensors, found["npu"].n_readings) == (2, 4)


@pytest.mark.parametrize("value", [None, 0.0, -273.0, 3200.0, math.nan, math.inf])
def test_sentinels_are_no_temperatures(value):
    assert not usable_celsius(value)
    found = temperatures([series("npu", [value, 40.0, value, 42.0])])
    assert (found["npu"].start_celsius, found["npu"].peak_celsius) == (40.0, 42.0)


def test_suspect_sensors_and_other_units_are_left_out():
    assert temperatures([series("cpu", [95.0, 95.0], state="suspect")]) == {}
    assert temperatures([series("cpu", [95.0], state="unavailable")]) == {}
    assert temperatures([series("cpu", [95.0], unit="hz")]) == {}
    assert temperatures([series("cpu", [95.0, None], state="partial")])["cpu"].peak_celsius == 95.0


def test_a_sensor_without_one_reading_is_no_domain():
    assert temperatures([series("gpu", [None, None])]) == {}


def memory(hwm, rss, swap):
    return Memory(
        at="end", vm_hwm_bytes=hwm, vm_rss_bytes=rss, vm_swap_bytes=swap, rss_anon_bytes=None, rss_file_bytes=None,
        monotonic_ns=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([memory(100, 90, 5)], 100),
        ([memory(100, 90, 20)], 110),  # swapped pages are not in the high-water mark
        ([memory(100, 90, None), memory(80, 70, 0)], 100),
        ([memory(None, 70, None)], 70),
        ([memory(None, None, 50)], None),
        ([], None),
    ],
)
def test_peak_memory_counts_what_was_swapped_out(readings, expected):
    assert peak_rss_bytes(readings) == expected
