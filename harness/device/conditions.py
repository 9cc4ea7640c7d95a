"""The phone just before a run: battery, heat, memory, screen, clocks, load, and what of it forbids a fair speed figure.

All parsers are total: any text gives a value or None, never an error and never a default that looks measured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.faults import command_fault
from harness.device.identity import split_sections
from harness.device.surroundings import (
    parse_charger,
    parse_clocks,
    parse_load,
    parse_refresh_hz,
    parse_screen_on,
    parse_switch,
    parse_trend,
)
from harness.record.run import Conditions

MIN_BATTERY_PERCENT: Final = 20
MAX_BATTERY_CELSIUS: Final = 40.0
MIN_MEMORY_BYTES: Final = 1024**3
MIN_UPTIME_S: Final = 120.0
MAX_TREND_CELSIUS_PER_MIN: Final = 2.0
MAX_BACKGROUND_LOAD: Final = 0.25
WINDOW_S: Final = 1
LAST_RUN: Final = "/data/local/tmp/snapgate/last-run"
"""Boot id and uptime of the end of SnapGate's last run on the phone."""

_READ: Final = """
zones() {
  read -r u rest < /proc/uptime; echo "$u"
  for z in /sys/class/thermal/thermal_zone*; do
    t=; v=; { read -r t < $z/type; read -r v < $z/temp; } 2>/dev/null
    [ -n "$v" ] && echo "$t $v"
  done
}
stat() { { read -r l < /proc/stat; } 2>/dev/null && echo "$l"; }
echo "--snapgate zones1"; zones
echo "--snapgate stat1"; stat
sleep "$2"
echo "--snapgate stat2"; stat
echo "--snapgate zones2"; zones
echo "--snapgate battery"; dumpsys battery 2>&1
echo "--snapgate thermal"; dumpsys thermalservice 2>&1
echo "--snapgate meminfo"; cat /proc/meminfo
echo "--snapgate df"; df -k "$1"
echo "--snapgate uptime"; cat /proc/uptime
echo "--snapgate boot_id"; cat /proc/sys/kernel/random/boot_id
echo "--snapgate last_run"; [ -f "$3" ] && head -c 200 "$3"
echo "--snapgate power"; dumpsys power 2>/dev/null | grep -E 'mWakefulness=|Display Power: state=' | head -n 4
echo "--snapgate display"; dumpsys display 2>/dev/null | grep -oE 'renderFrameRate[ =][0-9.]+|fps=[0-9.]+' | head -n 2
echo "--snapgate airplane"; settings get global airplane_mode_on 2>/dev/null
echo "--snapgate saver"; settings get global low_power 2>/dev/null
echo "--snapgate clocks"
for c in /sys/devices/system/cpu/cpufreq/policy* /sys/devices/system/cpu/cpu[0-9]*/cpufreq; do
  [ -e $c/scaling_max_freq ] || continue
  line=$c
  for f in scaling_governor scaling_min_freq scaling_max_freq cpuinfo_min_freq cpuinfo_max_freq; do
    v=-; { read -r v rest < $c/$f; } 2>/dev/null; line="$line ${v:--}"
  done
  echo "$line"
done
exit 0
"""
_NOTE: Final = """
read -r b < /proc/sys/kernel/random/boot_id; read -r u rest < /proc/uptime
echo "$b $u" > "$1.new" && mv -f "$1.new" "$1"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    percent: int | None = None
    celsius: float | None = None
    charging: bool | None = None
    charger: str | None = None
    overridden: bool = False
    """Somebody froze the readings with ``dumpsys battery set``: they are not the battery's, and not taken."""


def parse_battery(text: str) -> Battery:
    """``dumpsys battery``: the service's own block only, not a vendor's event log or a second block below it."""
    values: dict[str, str] = {}
    in_block = False
    for line in text.splitlines():
        if "Current Battery Service state" in line:
            in_block = True
            continue
        if not in_block:
            continue
        if line and not line[0].isspace():
            break
        key, colon, value = line.strip().partition(":")
        if colon:
            values.setdefault(key.strip().lower(), value.strip())
    if "UPDATES STOPPED" in text:
        return Battery(overridden=True)
    level, scale = _integer(values.get("level")), _integer(values.get("scale", "100"))
    percent = round(level * 100 / scale) if level is not None and scale else None
    tenths = _integer(values.get("temperature"))
    status = _integer(values.get("status"))
    return Battery(
        percent=percent if percent is not None and 0 <= percent <= 100 else None,
        celsius=tenths / 10 if tenths is not None and -400 < tenths < 1200 and tenths != 0 else None,
        charging={2: True, 3: False, 4: False, 5: False}.get(status) if status is not None else None,
        charger=parse_charger(values),
    )


def parse_thermal_status(text: str) -> tuple[int | None, bool]:
    """``dumpsys thermalservice``: status 0 none .. 6 shutdown, and whether somebody overrode it."""
    match = re.search(r"^[ \t]*Thermal Status:[ \t]*(\d)[ \t\r]*$", text, re.MULTILINE)
    status = int(match[1]) if match else None
    overridden = re.search(r"^[ \t]*IsStatusOverride:[ \t]*true[ \t\r]*$", text, re.MULTILINE) is not None
    return (status if status is not None and status <= 6 else None), overridden


def parse_memory_available(text: str) -> int | None:
    match = re.search(r"^MemAvailable:\s*(\d{1,12})\s*kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def parse_df_available(text: str) -> int | None:
    """Free bytes of ``df -k PATH``: the number before the percentage, also when a long name broke the line."""
    match = re.search(r"\s(\d{1,15})\s+(\d{1,15})\s+(\d{1,15})\s+\d{1,3}%", " ".join(text.splitlines()[1:]))
    return int(match[3]) * 1024 if match else None


def parse_uptime(text: str) -> float | None:
    match = re.match(r"\s*(\d{1,12}\.\d+)\s", text + " ")
    return float(match[1]) if match else None


def parse_last_run(text: str, *, boot_id: str, uptime_s: float | None) -> float | None:
    """Seconds since the end of the last run, if it was in this boot."""
    match = re.fullmatch(r"([0-9a-f-]{36}) (\d{1,12}(?:\.\d{1,3})?)", text.strip())
    if match is None or match[1] != boot_id.strip() or uptime_s is None or uptime_s < float(match[2]):
        return None
    return round(uptime_s - float(match[2]), 2)


def conditions_from(text: str) -> Conditions:
    sections = split_sections(text)
    battery = parse_battery(sections.get("battery", ""))
    thermal_status, thermal_overridden = parse_thermal_status(sections.get("thermal", ""))
    memory = parse_memory_available(sections.get("meminfo", ""))
    uptime = parse_uptime(sections.get("uptime", ""))
    violations = []
    if battery.overridden:
        violations.append("battery readings are frozen by `dumpsys battery set`")
    if battery.percent is not None and battery.percent < MIN_BATTERY_PERCENT:
        violations.append(f"battery {battery.percent} % < {MIN_BATTERY_PERCENT} %")
    if battery.celsius is not None and battery.celsius > MAX_BATTERY_CELSIUS:
        violations.append(f"battery {battery.celsius:.1f} °C > {MAX_BATTERY_CELSIUS:.0f} °C")
    if battery.charging:
        violations.append("charging")
    if thermal_overridden:
        violations.append("thermal status is overridden")
    if thermal_status is not None and thermal_status > 0:
        violations.append(f"thermal status {thermal_status}")
    if memory is not None and memory < MIN_MEMORY_BYTES:
        violations.append(f"free memory {memory / 1e9:.2f} GB < {MIN_MEMORY_BYTES / 1e9:.2f} GB")
    if uptime is not None and uptime < MIN_UPTIME_S:
        violations.append(f"booted {uptime:.0f} s ago, less than {MIN_UPTIME_S:.0f} s")
    screen_on = parse_screen_on(sections.get("power", ""))
    saver = parse_switch(sections.get("saver", ""))
    trend = parse_trend(sections.get("zones1", ""), sections.get("zones2", ""))
    load = parse_load(sections.get("stat1", ""), sections.get("stat2", ""))
    clocks = parse_clocks(sections.get("clocks", ""))
    if trend is not None and abs(trend) > MAX_TREND_CELSIUS_PER_MIN:
        violations.append(f"{'warming' if trend > 0 else 'cooling'} by {abs(trend):.1f} °C a minute")
    if load is not None and load > MAX_BACKGROUND_LOAD:
        violations.append(f"other programs keep {100 * load:.0f} % of the CPUs busy")
    if screen_on:
        violations.append("screen is on")
    if saver:
        violations.append("battery saver is on")
    violations.extend(f"clock is limited: {limit}" for limit in clocks.limits)
    if "powersave" in clocks.governors:
        violations.append("CPU governor is powersave")
    return Conditions(
        battery_percent=battery.percent,
        battery_celsius=battery.celsius,
        charging=battery.charging,
        thermal_status=thermal_status,
        memory_available_bytes=memory,
        storage_available_bytes=parse_df_available(sections.get("df", "")),
        uptime_s=uptime,
        violations=tuple(violations),
        charger=battery.charger,
        trend_celsius_per_min=trend,
        screen_on=screen_on,
        airplane_mode=parse_switch(sections.get("airplane", "")),
        power_saver=saver,
        refresh_hz=parse_refresh_hz(sections.get("display", "")),
        background_load=load,
        governors=clocks.governors,
        clock_limits=clocks.limits,
        since_last_run_s=parse_last_run(
            sections.get("last_run", ""), boot_id=sections.get("boot_id", ""), uptime_s=uptime
        ),
    )


def read_conditions(device: AdbDevice, *, window_s: int = WINDOW_S, timeout_s: float = 30.0) -> Conditions:
    """One call; what the phone does not let its shell read is None.

    ``window_s``: over so long its load and the trend of its temperature are taken.
    """
    what = "read the phone's conditions"
    result = device.script(_READ, "/data/local/tmp", str(window_s), LAST_RUN, timeout_s=timeout_s + window_s, what=what)
    if result.exit_code != 0:
        raise command_fault(result, what=what, phone=device.transport)
    return conditions_from(result.text)


def note_run(device: AdbDevice) -> None:
    """Leave on the phone when this run ended; the next one's conditions say how long ago that was."""
    device.script(_NOTE, LAST_RUN, timeout_s=10, what="note the end of the run")


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else None
