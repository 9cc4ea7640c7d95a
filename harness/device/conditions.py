"""The phone just before a run: battery, heat, memory, storage, uptime, and what of it forbids a fair speed figure.

All parsers are total: any text gives a value or None, never an error and never a default that looks measured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.faults import command_fault
from harness.device.identity import split_sections
from harness.record.run import Conditions

MIN_BATTERY_PERCENT: Final = 20
MAX_BATTERY_CELSIUS: Final = 40.0
MIN_MEMORY_BYTES: Final = 1024**3
MIN_UPTIME_S: Final = 120.0

_READ: Final = """
echo "--snapgate battery"; dumpsys battery 2>&1
echo "--snapgate thermal"; dumpsys thermalservice 2>&1
echo "--snapgate meminfo"; cat /proc/meminfo
echo "--snapgate df"; df -k "$1"
echo "--snapgate uptime"; cat /proc/uptime
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    percent: int | None = None
    celsius: float | None = None
    charging: bool | None = None
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
    return Conditions(
        battery_percent=battery.percent,
        battery_celsius=battery.celsius,
        charging=battery.charging,
        thermal_status=thermal_status,
        memory_available_bytes=memory,
        storage_available_bytes=parse_df_available(sections.get("df", "")),
        uptime_s=uptime,
        violations=tuple(violations),
    )


def read_conditions(device: AdbDevice, *, timeout_s: float = 30.0) -> Conditions:
    """One call; what the phone does not let its shell read is None."""
    what = "read the phone's conditions"
    result = device.script(_READ, "/data/local/tmp", timeout_s=timeout_s, what=what)
    if result.exit_code != 0:
        raise command_fault(result, what=what, phone=device.transport)
    return conditions_from(result.text)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else None
