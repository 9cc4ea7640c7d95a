"""What goes on around a run on the phone: screen, radios, other programs' load, clocks, and how fast it warms.

Like all parsers of conditions these are total: any text gives a value or None.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Final

from harness.device.sensors import domain_of
from harness.device.text import printable

TREND_DOMAINS: Final = ("skin", "battery")
"""Slow enough that a few seconds tell a direction. A core's temperature only tells what it did a moment ago."""

_CHARGERS: Final = (("ac", "ac"), ("usb", "usb"), ("wireless", "wireless"), ("dock", "dock"))
_STEP_MILLIDEGREES: Final = 150
"""A smaller change may be one step of the sensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    governors: tuple[str, ...]
    limits: tuple[str, ...]


def parse_charger(battery: dict[str, str]) -> str | None:
    """From the lines ``AC powered: true`` of ``dumpsys battery``, keys in small letters."""
    said = {name: battery.get(f"{key} powered") for key, name in _CHARGERS}
    on = [name for name, value in said.items() if value == "true"]
    if on:
        return "+".join(on)
    return "none" if any(value == "false" for value in said.values()) else None


def parse_screen_on(power: str) -> bool | None:
    """``dumpsys power``: awake and dreaming (a screen saver) light the screen; dozing and asleep do not."""
    match = re.search(r"^\s*mWakefulness=(\w{1,20})", power, re.MULTILINE)
    if match is not None:
        return {"Awake": True, "Dreaming": True, "Dozing": False, "Asleep": False}.get(match[1])
    match = re.search(r"Display Power: state=(\w{1,20})", power)
    return {"ON": True, "OFF": False, "DOZE": False}.get(match[1]) if match is not None else None


def parse_switch(text: str) -> bool | None:
    """``settings get``: 1, 0, or ``null`` where it was never set."""
    return {"1": True, "0": False}.get(text.strip())


def parse_refresh_hz(display: str) -> float | None:
    """``dumpsys display``: the rate that frames are drawn at, else the mode's."""
    for pattern in (r"renderFrameRate[ =](\d{1,3}(?:\.\d{1,9})?)", r"\bfps=(\d{1,3}(?:\.\d{1,9})?)"):
        match = re.search(pattern, display)
        if match is not None and 1 <= float(match[1]) <= 500:
            return round(float(match[1]), 1)
    return None


def parse_clocks(text: str) -> Clocks:
    """Lines ``path governor min max hardware_min hardware_max`` in kHz, one a cluster; ``-`` for what is unreadable."""
    governors: list[str] = []
    limits: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 6:
            continue
        name = printable(words[0].removesuffix("/cpufreq").rsplit("/", 1)[-1], 20)
        if words[1] != "-":
            governors.append(printable(words[1], 30))
        if words[3].isascii() and words[5].isascii() and words[3].isdigit() and words[5].isdigit():
            highest, possible = int(words[3][:9]), int(words[5][:9])
            if 0 < highest < possible:
                limits.append(f"{name} at most {highest / 1000:.0f} of {possible / 1000:.0f} MHz")
    return Clocks(governors=tuple(governors), limits=tuple(limits))


def parse_load(first: str, second: str) -> float | None:
    """Busy share of all CPUs between two first lines of ``/proc/stat``."""
    before, after = _ticks(first), _ticks(second)
    if before is None or after is None:
        return None
    total, idle = after[0] - before[0], after[1] - before[1]
    return round(min(1.0, max(0.0, 1 - idle / total)), 3) if total > 0 and idle >= 0 else None


def _ticks(line: str) -> tuple[int, int] | None:
    match = re.match(r"cpu\s+((?:\d{1,18}\s*){5,10})", line.strip() + " ")
    if match is None:
        return None
    values = [int(word) for word in match[1].split()]
    return sum(values[:8]), values[3] + values[4]


def parse_trend(first: str, second: str) -> float | None:
    """Degrees per minute between two readings of all zones, ``uptime`` in front and then ``type millidegrees``.

    The median over the skin's zones, or the battery's where there is no skin zone. A change of less than a sensor's
    step is 0.
    """
    began, before = _zones(first)
    ended, after = _zones(second)
    if began is None or ended is None or ended <= began:
        return None
    for domain in TREND_DOMAINS:
        moved = [
            after[name] - before[name] for name in before.keys() & after.keys() if domain_of(name.split()[0]) == domain
        ]
        if moved:
            change = statistics.median(moved)
            return round(change / 1000 / (ended - began) * 60, 2) if abs(change) >= _STEP_MILLIDEGREES else 0.0
    return None


def _zones(text: str) -> tuple[float | None, dict[str, int]]:
    lines = text.splitlines()
    uptime = re.match(r"\s*(\d{1,12}\.\d{1,3})\b", lines[0]) if lines else None
    zones: dict[str, int] = {}
    for number, line in enumerate(lines[1:]):
        match = re.fullmatch(r"(\S{1,60}) (-?\d{1,9})", line.strip())
        # 0, 125 °C and what no phone survives are placeholders, and smaller numbers are in another unit.
        if match is not None and 1000 < abs(int(match[2])) < 120_000:
            zones[f"{match[1]} {number}"] = int(match[2])
    return (float(uptime[1]) if uptime is not None else None), zones
