"""What phones say about themselves before a run, in the forms that vendors give it."""

from __future__ import annotations

import time

import pytest

from harness.device.conditions import (
    conditions_from,
    parse_battery,
    parse_df_available,
    parse_memory_available,
    parse_thermal_status,
    parse_uptime,
)

BATTERY = """\
Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Max charging current: 500000
  Max charging voltage: 5000000
  Charge counter: 3270000
  status: 5
  health: 2
  present: true
  level: 87
  scale: 100
  voltage: 4352
  temperature: 312
  technology: Li-ion
"""
THERMAL = """\
IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 1
\tkilled: false
\tbroadcasts count: -1
Thermal Status: 0
Cached temperatures:
\tTemperature{mValue=58.44, mType=0, mName=CPU, mStatus=3}
HAL Ready: true
Current temperatures from HAL:
\tTemperature{mValue=44.181, mType=0, mName=CPU, mStatus=0}
"""


def answer(
    battery: str = BATTERY, thermal: str = THERMAL, available_kb: int = 5_000_000, uptime: str = "9000.5"
) -> str:
    return (
        f"--snapgate battery\n{battery}\n--snapgate thermal\n{thermal}\n"
        f"--snapgate meminfo\nMemTotal: 7591488 kB\nMemAvailable: {available_kb} kB\n"
        "--snapgate df\nFilesystem 1K-blocks Used Available Use% Mounted on\n"
        "/dev/block/dm-8 120000000 40000000 80000000 34% /data\n"
        f"--snapgate uptime\n{uptime} 30000.00\n"
    )


def test_a_cool_charged_phone_violates_nothing() -> None:
    conditions = conditions_from(answer())
    assert conditions.violations == ()
    assert (conditions.battery_percent, conditions.battery_celsius, conditions.charging) == (87, 31.2, False)
    assert conditions.thermal_status == 0
    assert conditions.memory_available_bytes == 5_120_000_000
    assert conditions.storage_available_bytes == 81_920_000_000
    assert conditions.uptime_s == 9000.5


def test_windows_line_ends_change_nothing() -> None:
    assert conditions_from(answer().replace("\n", "\r\n")) == conditions_from(answer())


def test_a_phone_that_says_nothing_gives_none_and_no_violation() -> None:
    conditions = conditions_from("")
    assert conditions.violations == ()
    assert conditions.battery_percent is None
    assert conditions.thermal_status is None
    assert conditions.uptime_s is None


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        (answer(BATTERY.replace("level: 87", "level: 12")), "battery 12 % < 20 %"),
        (answer(BATTERY.replace("temperature: 312", "temperature: 415")), "battery 41.5 °C > 40 °C"),
        (answer(BATTERY.replace("status: 5", "status: 2")), "charging"),
        (answer(thermal=THERMAL.replace("Status: 0", "Status: 3")), "thermal status 3"),
        (answer(thermal=THERMAL.replace("Override: false", "Override: true")), "thermal status is overridden"),
        (answer(available_kb=500_000), "free memory 0.51 GB < 1.07 GB"),
        (answer(uptime="30.25"), "booted 30 s ago, less than 120 s"),
    ],
)
def test_each_bad_condition_is_named_alone(text: str, violation: str) -> None:
    assert conditions_from(text).violations == (violation,)


def test_frozen_battery_readings_are_named_and_not_taken() -> None:
    frozen = BATTERY.replace("state:\n", "state:\n  (UPDATES STOPPED -- use 'reset' to restart)\n")
    conditions = conditions_from(answer(frozen))
    assert conditions.violations == ("battery readings are frozen by `dumpsys battery set`",)
    assert conditions.battery_percent is None


def test_a_vendors_event_log_below_the_block_is_not_read() -> None:
    text = BATTERY + "[EventLogBuffer]\n08-11 18:34:14.721 Sending: level:72, temperature:345\n  level: 3\n"
    assert parse_battery(text).percent == 87


def test_a_scale_other_than_100_is_applied() -> None:
    assert parse_battery(BATTERY.replace("level: 87", "level: 50").replace("scale: 100", "scale: 200")).percent == 25


@pytest.mark.parametrize("tenths", ["0", "-2730", "1250", "abc"])
def test_a_battery_temperature_that_cannot_be_is_none(tenths: str) -> None:
    assert parse_battery(BATTERY.replace("temperature: 312", f"temperature: {tenths}")).celsius is None


def test_an_unknown_charging_status_is_none() -> None:
    assert parse_battery(BATTERY.replace("status: 5", "status: 1")).charging is None


def test_the_status_of_a_single_sensor_is_not_the_phones() -> None:
    assert parse_thermal_status("Temperature{mValue=1.0, mType=0, mName=Thermal Status: 4, mStatus=4}\n") == (
        None,
        False,
    )


def test_a_thermal_status_outside_the_scale_is_none() -> None:
    assert parse_thermal_status("Thermal Status: 7\n") == (None, False)


def test_df_is_read_when_a_long_name_broke_the_line() -> None:
    text = "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/block/very/long/name\n  1000 600 400 60% /data\n"
    assert parse_df_available(text) == 409_600


def test_df_errors_are_none() -> None:
    assert parse_df_available("df: /data/local/tmp: Permission denied\n") is None


def test_memory_without_the_line_is_none() -> None:
    assert parse_memory_available("MemTotal: 100 kB\nMemFree: 50 kB\n") is None


def test_uptime_garbage_is_none() -> None:
    assert parse_uptime("cat: /proc/uptime: No such file\n") is None


def test_megabytes_of_empty_lines_are_read_in_one_pass() -> None:
    began = time.process_time()
    assert parse_thermal_status("\n" * 1_000_000 + "Thermal Status: 2\n") == (2, False)
    assert time.process_time() - began < 20
