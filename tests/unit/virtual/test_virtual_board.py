from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.virtual.adbd.board import Board


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A board of one moving skin zone (30 to 50 degrees, 10 s), a battery zone and one that is no sensor."""
    files = {
        "class/thermal/thermal_zone0/temp": 30000,
        "class/thermal/thermal_zone1/temp": 29000,
        "class/thermal/thermal_zone2/temp": -273000,
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": 300000,
        "devices/system/cpu/cpu0/cpufreq/scaling_max_freq": 2000000,
        "class/power_supply/battery/capacity": 50,
        "class/power_supply/battery/status": 0,
        "class/power_supply/battery/charge_counter": 2000000,
        "class/power_supply/battery/voltage_now": 0,
        "class/power_supply/battery/current_now": 0,
        "class/power_supply/battery/temp": 0,
        "class/power_supply/usb/online": 0,
    }
    for name, value in files.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    (tmp_path / "dumpsys").mkdir()
    board = {
        "load_processes": ["a-name-longer-than-fifteen"],
        "skin_thresholds": [None, 40.0, 45.0, None, None, None, None],
        "clusters": [{"cpus": [0], "min_khz": 300000, "max_khz": 2000000}],
        "zones": [
            {"type": "skin", "idle": 30.0, "rise": 20.0, "tau_s": 10.0, "hal_type": 3, "hal_name": "skin"},
            {"type": "battery", "idle": 29.0, "rise": 0.0, "tau_s": 1.0, "hal_type": 2, "hal_name": "battery"},
            {"type": "mmw0", "fixed_millidegrees": -273000},
        ],
        "memory": {"total_bytes": 8 << 30, "taken_bytes": 3 << 30},
        "battery": {"full_uah": 4000000, "idle_ua": 100000, "load_ua": 900000, "charger_ua": 1500000},
    }
    (tmp_path / "board.json").write_text(json.dumps(board))
    (tmp_path / "meminfo").touch()
    return tmp_path


def _read(root: Path, name: str) -> str:
    return (root / "sys" / name).read_text().strip()


SKIN = "class/thermal/thermal_zone0/temp"
SUPPLY = "class/power_supply/battery"


def test_one_time_constant_of_load_covers_63_percent_of_the_rise(root: Path) -> None:
    board = Board(root)
    board.tick(10.0, loaded=True)
    assert _read(root, SKIN) == "42642"  # 30 + 20 * (1 - 1/e)
    board.tick(10.0, loaded=False)
    assert _read(root, SKIN) == "34651"  # 30 + 12.642 / e


def test_ten_short_ticks_heat_as_much_as_one_long_one(root: Path) -> None:
    board = Board(root)
    for _ in range(10):
        board.tick(1.0, loaded=True)
    assert _read(root, SKIN) == "42642"


def test_what_is_no_sensor_never_moves(root: Path) -> None:
    Board(root).tick(100.0, loaded=True)
    assert _read(root, "class/thermal/thermal_zone2/temp") == "-273000"


def test_a_held_zone_ignores_load_until_it_is_given_back(root: Path) -> None:
    board = Board(root)
    board.set_temperature("skin", 47.5)
    board.tick(100.0, loaded=True)
    assert _read(root, SKIN) == "47500"
    board.set_temperature("skin", None)
    board.tick(1000.0, loaded=False)
    assert _read(root, SKIN) == "30000"


def test_the_status_is_the_highest_threshold_reached(root: Path) -> None:
    board = Board(root)
    for celsius, status in ((39.9, 0), (40.0, 1), (44.9, 1), (45.0, 2), (99.0, 2)):
        board.set_temperature("skin", celsius)
        assert board.thermal_status() == status
        assert f"Thermal Status: {status}\n" in (root / "dumpsys/thermalservice").read_text()


def test_cached_temperatures_are_those_of_the_last_status_change(root: Path) -> None:
    board = Board(root)
    board.set_temperature("skin", 41.0)
    board.set_temperature("skin", 43.0)
    text = (root / "dumpsys/thermalservice").read_text()
    cached, _, current = text.partition("HAL Ready: true")
    assert "mValue=41.0, mType=3, mName=skin, mStatus=1" in cached
    assert "mValue=43.0, mType=3, mName=skin, mStatus=1" in current


def test_the_battery_loses_what_an_hour_of_load_draws(root: Path) -> None:
    board = Board(root)
    board.tick(3600.0, loaded=True)  # 0.1 A + 0.9 A for an hour, of 4 Ah
    assert _read(root, f"{SUPPLY}/charge_counter") == "1000000"
    assert _read(root, f"{SUPPLY}/capacity") == "25"
    assert _read(root, f"{SUPPLY}/current_now") == "-1000000"
    assert _read(root, f"{SUPPLY}/status") == "Discharging"


def test_the_charger_gives_what_the_phone_does_not_draw_and_stops_when_full(root: Path) -> None:
    board = Board(root)
    board.set_battery(percent=50.0, charging=True)
    board.tick(3600.0, loaded=False)  # 1.5 A - 0.1 A
    assert _read(root, f"{SUPPLY}/charge_counter") == "3400000"
    assert _read(root, f"{SUPPLY}/current_now") == "1400000"
    board.tick(3600.0, loaded=False)
    assert _read(root, f"{SUPPLY}/status") == "Full"
    assert _read(root, f"{SUPPLY}/current_now") == "0"


def test_a_reboot_continues_where_the_last_boot_stopped(root: Path) -> None:
    board = Board(root)
    board.set_battery(percent=20.0, charging=False)
    board.tick(10.0, loaded=True)
    again = Board(root)
    assert again.battery.percent == 20
    assert again.zones[0].celsius == pytest.approx(42.642)


def test_a_reader_that_keeps_the_file_open_sees_longer_and_shorter_values(root: Path) -> None:
    board = Board(root)
    fd = os.open(root / "sys" / SKIN, os.O_RDONLY)
    try:
        for celsius, text in ((123.0, b"123000\n"), (9.0, b"9000\n"), (45.0, b"45000\n")):
            board.set_temperature("skin", celsius)
            assert os.pread(fd, 100, 0) == text
    finally:
        os.close(fd)


def test_process_names_are_compared_as_the_kernel_cuts_them(root: Path) -> None:
    assert Board(root).load_processes == {"a-name-longer-t"}


def test_a_hot_skin_holds_the_clocks_below_what_the_hardware_can(root: Path) -> None:
    board = Board(root)
    highest = "devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    for celsius, khz in ((39.0, "2000000"), (41.0, "2000000"), (46.0, "1700000"), (39.0, "2000000")):
        board.set_temperature("skin", celsius)
        assert _read(root, highest) == khz


def test_time_advanced_by_hand_heats_by_the_declared_load(root: Path) -> None:
    board = Board(root)
    board.advance(10.0, 0.5)
    assert _read(root, SKIN) == "36321"  # 30 + 10 * (1 - 1/e)
    assert _read(root, f"{SUPPLY}/current_now") == "-550000"  # 100 mA and half of 900 mA


def available_gib(root: Path) -> float:
    (line,) = [line for line in (root / "meminfo").read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) / 2**20


def test_memory_is_what_android_the_runner_and_others_leave(root: Path) -> None:
    board = Board(root)
    board.tick(1.0, loaded=True, resident_bytes=1 << 30)
    assert available_gib(root) == 8 - 3 - 1
    board.press_memory(3 << 30)
    assert available_gib(root) == 1
    assert (root / "meminfo").read_text().startswith("MemTotal:        8388608 kB\n")
    board.press_memory(8 << 30)
    assert available_gib(root) == 0
    board.press_memory(0)
    board.tick(1.0, loaded=False)
    assert available_gib(root) == 5
    with pytest.raises(ValueError, match="not between 0 and the phone's 8589934592"):
        board.press_memory(-1)
