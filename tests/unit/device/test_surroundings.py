"""What goes on around a run, in the forms that vendors give it."""

from __future__ import annotations

import pytest

from harness.device.conditions import conditions_from, parse_last_run
from harness.device.surroundings import (
    parse_charger,
    parse_clocks,
    parse_load,
    parse_refresh_hz,
    parse_screen_on,
    parse_switch,
    parse_trend,
)

POLICY = "/sys/devices/system/cpu/cpufreq/policy"
BOOT = "0a1b2c3d-0000-1111-2222-333344445555"


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("  mWakefulness=Awake\r\n", True),
        ("  mWakefulness=Dozing\n", False),
        ("Display Power: state=OFF\n", False),
        ("  mWakefulness=Strange\n", None),
        ("", None),
    ],
)
def test_the_screen_is_lit_when_the_phone_is_awake(text: str, on: bool | None) -> None:
    assert parse_screen_on(text) is on


def test_several_chargers_are_all_named_and_none_is_not_unknown() -> None:
    assert parse_charger({"ac powered": "true", "usb powered": "false", "wireless powered": "true"}) == "ac+wireless"
    assert parse_charger({"ac powered": "false", "usb powered": "false"}) == "none"
    assert parse_charger({}) is None


def test_a_setting_that_was_never_set_is_unknown() -> None:
    assert [parse_switch(text) for text in ("1\r\n", "0\n", "null\n", "")] == [True, False, None, None]


@pytest.mark.parametrize(
    ("text", "hz"),
    [("renderFrameRate 120.00001\n", 120.0), ("fps=59.94\n", 59.9), ("renderFrameRate 0\n", None), ("", None)],
)
def test_the_refresh_rate_is_that_of_the_frames(text: str, hz: float | None) -> None:
    assert parse_refresh_hz(text) == hz


def test_a_cluster_that_is_held_below_its_hardware_is_named() -> None:
    clocks = parse_clocks(
        f"{POLICY}0 walt 300000 2000000 300000 2000000\n{POLICY}7 walt 300000 1500000 300000 3300000\n"
        f"{POLICY}5 - - - - -\nnoise\n"
    )
    assert clocks.governors == ("walt", "walt")
    assert clocks.limits == ("policy7 at most 1500 of 3300 MHz",)


def test_load_is_the_busy_share_between_two_readings() -> None:
    # 100 ticks passed, 60 of them idle and 10 waiting for storage: 30 % busy.
    assert parse_load("cpu  100 0 100 800 0 0 0 0 0 0", "cpu  120 0 110 860 10 0 0 0 0 0") == 0.3
    assert parse_load("cpu  100 0 100 800 0 0 0 0 0 0", "cpu  100 0 100 800 0 0 0 0 0 0") is None
    assert parse_load("", "cpu  1 2 3 4 5") is None


def test_the_trend_is_the_skins_even_where_cores_jump() -> None:
    first = "100.00 999\nskin-therm 30000\ncpu-0 35000\nmmw0 -273000\n"
    second = "105.00 999\nskin-therm 30500\ncpu-0 60000\nmmw0 -273000\n"
    # half a degree in five seconds
    assert parse_trend(first, second) == 6.0
    assert parse_trend(second.replace("105.", "100."), first.replace("100.", "105.")) == -6.0


def test_one_step_of_a_sensor_is_no_trend_and_no_sensor_is_none() -> None:
    assert parse_trend("1.00 \nskin 30000\n", "2.00 \nskin 30100\n") == 0.0
    assert parse_trend("1.00 \ncpu-0 30000\n", "2.00 \ncpu-0 40000\n") is None
    assert parse_trend("", "garbage") is None


def test_the_last_run_counts_only_within_one_boot() -> None:
    assert parse_last_run(f"{BOOT} 100.5\n", boot_id=BOOT, uptime_s=160.0) == 59.5
    assert parse_last_run(f"{BOOT} 100.5\n", boot_id=BOOT.replace("0a", "ff"), uptime_s=160.0) is None
    assert parse_last_run(f"{BOOT} 100.5\n", boot_id=BOOT, uptime_s=50.0) is None
    assert parse_last_run("", boot_id=BOOT, uptime_s=50.0) is None


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("--snapgate power\n  mWakefulness=Awake\n", "screen is on"),
        ("--snapgate saver\n1\n", "battery saver is on"),
        (
            "--snapgate stat1\ncpu  0 0 0 0 0 0 0 0\n--snapgate stat2\ncpu  50 0 0 50 0 0 0 0\n",
            "other programs keep 50 % of the CPUs busy",
        ),
        (
            "--snapgate zones1\n1.00\nskin 30000\n--snapgate zones2\n6.00\nskin 31000\n",
            "warming by 12.0 °C a minute",
        ),
        (
            f"--snapgate clocks\n{POLICY}0 walt 1 1500000 1 2000000\n",
            "clock is limited: policy0 at most 1500 of 2000 MHz",
        ),
        (f"--snapgate clocks\n{POLICY}0 powersave 1 2000000 1 2000000\n", "CPU governor is powersave"),
    ],
)
def test_each_of_them_is_a_violation_by_itself(text: str, violation: str) -> None:
    assert conditions_from(text).violations == (violation,)
