"""Sensors of a running phone, and what the loop leaves behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.device.adb import AdbDevice
from harness.device.conditions import read_conditions
from harness.device.sensors import SensorRecorder
from harness.device.store import ROOT
from harness.record.runner import Clock
from harness.virtual.lab import VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("wire-sensors")]


def record(device: AdbDevice, seconds: float) -> SensorRecorder:
    recorder = SensorRecorder(device, max_samples=60)
    recorder.start()
    time.sleep(seconds)
    recorder.stop()
    return recorder


def test_a_second_of_a_phone_is_a_sample_of_every_chosen_node(
    device: AdbDevice, virtual: VirtualPhone, tmp_path: Path
) -> None:
    virtual.set_temperature("nsphmx-0", 61.5)
    try:
        recorder = record(device, 3.5)
    finally:
        virtual.set_temperature("nsphmx-0", None)
    clock = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
    series = {s.name: s for s in recorder.series(start=clock, end=clock)}
    assert recorder.trouble is None
    assert {s.domain for s in series.values()} >= {"cpu", "gpu", "npu", "skin", "battery", "ddr"}
    heat = [s for s in series.values() if s.unit == "celsius" and s.state == "ok"]
    assert heat
    assert all(len(s.values) >= 2 for s in series.values())
    gaps = [b - a for s in heat for a, b in zip(s.monotonic_ns, s.monotonic_ns[1:], strict=False)]
    assert min(gaps) >= 0.9e9
    recorder.write_raw(tmp_path / "raw.txt")
    assert "/sys/class/thermal/" in (tmp_path / "raw.txt").read_text()


def test_a_held_temperature_is_seen_in_its_zone_and_in_no_other(device: AdbDevice, virtual: VirtualPhone) -> None:
    zone = next(n.name for n in record(device, 0.3).nodes if n.domain == "npu")
    virtual.set_temperature(zone, 61.5)
    try:
        recorder = record(device, 2.0)
    finally:
        virtual.set_temperature(zone, None)
    clock = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
    hot = {s.name for s in recorder.series(start=clock, end=clock) if s.unit == "celsius" and 61.5 in s.values}
    assert hot == {zone}


def test_the_memory_of_the_runner_is_read_by_its_pid(device: AdbDevice) -> None:
    folder = ROOT / "runs/memory"
    start = 'mkdir -p "$1" && cd "$1" && { sleep 30 >/dev/null 2>&1 < /dev/null & echo $! > pid; }'
    device.script(start, folder, what="start something")
    recorder = SensorRecorder(device, max_samples=60, run_folder=folder)
    recorder.start()
    time.sleep(2.5)
    recorder.stop()
    device.script('read -r p < "$1/pid"; kill -9 $p; rm -r "$1"', folder, what="end it")
    clock = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
    found = {s.name: s for s in recorder.series(start=clock, end=clock) if s.domain == "memory"}
    assert {name: (s.state, len(s.values)) for name, s in found.items()} == dict.fromkeys(
        ("runner rss", "runner swap", "runner pss", "runner dma-buf", "phone available"), ("ok", 1)
    )
    assert 100_000 < (found["runner pss"].values[0] or 0) <= (found["runner rss"].values[0] or 0) < 1e9
    assert (found["phone available"].values[0] or 0) > 50e6
    assert (found["runner swap"].values[0], found["runner dma-buf"].values[0]) == (0, 0)


def test_the_loop_leaves_no_process_behind(device: AdbDevice) -> None:
    recorder = record(device, 1.5)
    assert recorder.ended_with == 137
    time.sleep(1.2)
    found = device.script(
        'for p in /proc/[0-9]*/cmdline; do grep -q "snapgate-[s]ensors" "$p" 2>/dev/null && echo "$p"; done',
        what="look for the loop",
    )
    assert found.text == ""


def test_a_phone_that_loses_power_ends_the_recording_with_what_there_is(
    device: AdbDevice, virtual: VirtualPhone
) -> None:
    recorder = SensorRecorder(device, max_samples=60)
    recorder.start()
    time.sleep(1.5)
    virtual.kill()
    try:
        recorder.stop()
        clock = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
        assert len(recorder.series(start=clock, end=clock)[0].values) >= 1
    finally:
        virtual.reboot()


def test_conditions_follow_the_phone(device: AdbDevice, virtual: VirtualPhone) -> None:
    virtual.set_battery(percent=12, charging=False)
    try:
        conditions = read_conditions(device)
    finally:
        virtual.set_battery(percent=85, charging=True)
    assert (conditions.battery_percent, conditions.charging) == (12, False)
    assert "battery 12 % < 20 %" in conditions.violations
    assert "charging" in read_conditions(device).violations
