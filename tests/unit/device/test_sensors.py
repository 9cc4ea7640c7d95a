"""Thermal zones, clocks and battery nodes as phones list them, and what of their readings can be trusted."""

from __future__ import annotations

import pytest

from harness.device.sensors import (
    Node,
    Sample,
    choose_nodes,
    domain_of,
    judge,
    memory_series,
    parse_nodes,
    parse_samples,
    series_from,
)
from harness.record.runner import Clock

CPU = Node(path="/sys/z", name="cpu-0-0-0", kind="zone", domain="cpu", unit="celsius")
SKIN = Node(path="/sys/z", name="skin-msm-therm", kind="zone", domain="skin", unit="celsius")
CLOCK = Node(path="/sys/c", name="clock policy0", kind="clock", domain="cpu", unit="hz")


@pytest.mark.parametrize(
    ("zone", "domain"),
    [
        ("cpu-1-1-1", "cpu"),
        ("cpuss-0-0", "cpu"),
        ("cpu0-silver-usr", "cpu"),
        ("gpuss-7", "gpu"),
        ("nsphmx-0", "npu"),
        ("nsphvx-2", "npu"),
        ("ddr", "ddr"),
        ("battery", "battery"),
        ("skin-msm-therm", "skin"),
        ("quiet-therm", "skin"),
        ("sys-therm-5", "skin"),
        ("mdmss-1", "other"),
        ("aoss-0", "other"),
        ("pm8550_tz", "other"),
    ],
)
def test_a_zone_belongs_to_the_domain_its_name_tells(zone: str, domain: str) -> None:
    assert domain_of(zone) == domain


def test_zones_that_are_no_temperature_are_left_out() -> None:
    lines = [
        f"zone /sys/class/thermal/thermal_zone{i} {name}"
        for i, name in enumerate(["cpu-0-0-0", "pm8550-bcl-lvl0", "socd", "vbat", "cpu-hw-trip-0", "ddr"])
    ]
    assert [node.name for node in parse_nodes("\n".join(lines))] == ["cpu-0-0-0", "ddr"]


def test_nodes_are_named_after_what_they_are() -> None:
    text = (
        "zone /sys/class/thermal/thermal_zone7 nsphvx-0\r\n"
        "clock /sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq\n"
        "clock /sys/devices/system/cpu/cpu7/cpufreq/scaling_cur_freq\n"
        "battery /sys/class/power_supply/battery/current_now\n"
        "battery /sys/class/power_supply/battery/unknown_node\n"
        "zone /etc/passwd evil\n"
        "noise\n"
    )
    assert [(n.path, n.name, n.unit) for n in parse_nodes(text)] == [
        ("/sys/class/thermal/thermal_zone7/temp", "nsphvx-0", "celsius"),
        ("/sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq", "clock policy4", "hz"),
        ("/sys/devices/system/cpu/cpu7/cpufreq/scaling_cur_freq", "clock cpu7", "hz"),
        ("/sys/class/power_supply/battery/current_now", "battery current_now", "ua"),
    ]


def test_no_domain_crowds_out_another_when_zones_are_chosen() -> None:
    names = [f"cpu-0-{i}-0" for i in range(30)] + [f"gpuss-{i}" for i in range(8)] + ["nsphmx-0", "battery"]
    nodes = parse_nodes("\n".join(f"zone /sys/class/thermal/thermal_zone{i} {n}" for i, n in enumerate(names)))
    chosen = choose_nodes(nodes)
    assert len(chosen) == 16
    assert {node.domain for node in chosen} == {"cpu", "gpu", "npu", "battery"}
    assert sum(node.domain == "gpu" for node in chosen) == 7


def test_four_clocks_are_chosen_first_and_last_among_them_and_policies_win() -> None:
    text = "\n".join(
        [f"clock /sys/devices/system/cpu/cpu{i}/cpufreq/scaling_cur_freq" for i in range(8)]
        + [f"clock /sys/devices/system/cpu/cpufreq/policy{i}/scaling_cur_freq" for i in (0, 2, 5, 6, 7)]
    )
    assert [n.name for n in choose_nodes(parse_nodes(text))] == [
        "clock policy0",
        "clock policy2",
        "clock policy5",
        "clock policy7",
    ]


def test_samples_are_read_and_broken_lines_passed_over() -> None:
    lines = ["P 12", "S 100.25 31000 -", "S 101.25 3", "S x 1 2", "nothing", "S 102.30 31500 4000"]
    assert parse_samples(lines, 2) == (
        Sample(uptime_s=100.25, values=(31000, None)),
        Sample(uptime_s=102.30, values=(31500, 4000)),
    )


def test_thousandths_become_degrees() -> None:
    assert judge(CPU, [45000, 45500]) == ((45.0, 45.5), "ok")


def test_kilohertz_become_hertz() -> None:
    assert judge(CLOCK, [1_804_800, 300_000]) == ((1_804_800_000.0, 300_000_000.0), "ok")


def test_a_missing_reading_makes_a_series_partial() -> None:
    assert judge(SKIN, [31000, None, 31500]) == ((31.0, None, 31.5), "partial")


def test_a_placeholder_among_real_readings_is_none() -> None:
    assert judge(CPU, [45000, 0, 45500, -273000]) == ((45.0, None, 45.5, None), "partial")


@pytest.mark.parametrize("placeholder", [-273_000, 0, 125_000])
def test_a_zone_parked_at_a_placeholder_is_suspect_and_keeps_its_values(placeholder: int) -> None:
    assert judge(CPU, [placeholder] * 3) == ((placeholder / 1000,) * 3, "suspect")


def test_a_node_that_cannot_be_read_is_unavailable() -> None:
    assert judge(CPU, [None, None]) == ((None, None), "unavailable")


def test_a_core_that_never_moves_is_suspect_after_20_samples() -> None:
    assert judge(CPU, [95000] * 19)[1] == "ok"
    assert judge(CPU, [95000] * 20)[1] == "suspect"


def test_a_skin_that_never_moves_is_no_wonder() -> None:
    assert judge(SKIN, [31000] * 40)[1] == "ok"


def test_a_zone_in_another_unit_is_a_guess_and_suspect() -> None:
    assert judge(SKIN, [31, 32]) == ((31.0, 32.0), "suspect")
    assert judge(SKIN, [310, 320]) == ((31.0, 32.0), "suspect")


def test_the_battery_gives_tenths() -> None:
    battery = Node(path="/sys/b", name="battery temp", kind="battery", domain="battery", unit="celsius")
    assert judge(battery, [312, 313]) == ((31.2, 31.3), "ok")


def test_uptime_maps_to_the_runners_monotonic_clock() -> None:
    clock = Clock(monotonic_ns=40_000_000_000, boottime_ns=100_000_000_000, realtime_ns=0)
    series = series_from([SKIN], [Sample(uptime_s=100.5, values=(31000,))], start=clock, end=clock)
    assert series[0].monotonic_ns == (40_500_000_000,)
    assert series[0].state == "ok"


def test_a_phone_that_slept_during_the_run_makes_stamps_suspect() -> None:
    start = Clock(monotonic_ns=0, boottime_ns=100_000_000_000, realtime_ns=0)
    end = Clock(monotonic_ns=10_000_000_000, boottime_ns=111_000_000_000, realtime_ns=0)
    series = series_from([SKIN], [Sample(uptime_s=101.0, values=(31000,))], start=start, end=end)
    assert series[0].state == "suspect"


def test_without_the_runners_clock_no_stamp_is_invented() -> None:
    series = series_from([SKIN], [Sample(uptime_s=101.0, values=(31000,))], start=None, end=None)
    assert (series[0].state, series[0].monotonic_ns, series[0].values) == ("unavailable", (), ())


def test_memory_of_the_runner_is_read_in_bytes() -> None:
    clock = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
    lines = ["S 1.00 5", "M 1.00 2000 0 1500 - 900", "M 2.00 3000 8 - 4096 800", "M 3.00 1", "M x 1 2 3 4 5"]
    found = {s.name: s for s in memory_series(lines, start=clock, end=clock)}
    assert {s.domain for s in found.values()} == {"memory"}
    assert {s.unit for s in found.values()} == {"bytes"}
    assert (found["runner rss"].values, found["runner rss"].state) == ((2_048_000, 3_072_000), "ok")
    assert (found["runner swap"].values, found["runner swap"].state) == ((0, 8192), "ok")
    assert (found["runner pss"].values, found["runner pss"].state) == ((1_536_000, None), "partial")
    assert (found["runner dma-buf"].values, found["runner dma-buf"].state) == ((None, 4096), "partial")
    assert (found["phone available"].values, found["phone available"].state) == ((921_600, 819_200), "ok")
    assert found["runner rss"].monotonic_ns == (1_000_000_000, 2_000_000_000)


def test_a_runner_whose_memory_was_never_read_leaves_it_unavailable() -> None:
    clock = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
    assert {s.state for s in memory_series(["S 1.00 5"], start=clock, end=clock)} == {"unavailable"}
