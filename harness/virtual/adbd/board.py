"""The phone's sensors: temperatures, clocks and battery as files, and the small model that moves them.

Every zone approaches ``idle + rise * load`` exponentially with its own time constant; load is 1 while a process with a
declared name runs on the phone, else 0. The same sequence of ticks therefore gives the same temperatures. None of it
is a measurement of anything.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import dumpsys

_MILLI = 1000
_THROTTLE = (1.0, 1.0, 0.85, 0.7, 0.55, 0.4, 0.4)
"""Share of the highest clock that is left at each thermal status"""


@dataclass(slots=True, kw_only=True)
class Zone:
    type: str
    path: Path
    idle: float
    """Celsius, as are ``rise`` and ``celsius``."""
    rise: float
    tau_s: float
    fixed: bool
    """Not a live sensor: keeps its first value for ever."""
    hal_type: int | None
    """Android's temperature type, if the thermal HAL reports this zone."""
    hal_name: str
    celsius: float
    pinned: bool = False

    def advance(self, seconds: float, load: float) -> None:
        if self.fixed or self.pinned:
            return
        target = self.idle + self.rise * load
        self.celsius = target + (self.celsius - target) * math.exp(-seconds / self.tau_s)


@dataclass(slots=True, kw_only=True)
class Battery:
    """In uV, uA and uAh, as the kernel's files have them; current is negative on discharge."""

    full_uah: int
    charge_uah: float
    charging: bool
    idle_ua: int
    load_ua: int
    charger_ua: int

    @property
    def percent(self) -> int:
        return max(0, min(100, round(self.charge_uah / self.full_uah * 100)))

    @property
    def is_full(self) -> bool:
        return self.charge_uah >= self.full_uah

    @property
    def status(self) -> str:
        if not self.charging:
            return "Discharging"
        return "Full" if self.is_full else "Charging"

    @property
    def voltage_uv(self) -> int:
        return 3_500_000 + round(850_000 * self.charge_uah / self.full_uah)

    def current_ua(self, load: float) -> int:
        drawn = round(self.idle_ua + self.load_ua * load)
        if not self.charging:
            return -drawn
        return 0 if self.is_full else max(0, self.charger_ua - drawn)

    def advance(self, seconds: float, load: float) -> None:
        self.charge_uah += self.current_ua(load) * seconds / 3600
        self.charge_uah = max(0.0, min(float(self.full_uah), self.charge_uah))


@dataclass(slots=True, kw_only=True)
class Memory:
    """``taken_bytes``: by the system and its apps; ``pressed_bytes``: more of them, as a test has it."""

    total_bytes: int
    taken_bytes: int
    pressed_bytes: int = 0

    def meminfo(self, resident_bytes: int) -> str:
        """``/proc/meminfo``; ``resident_bytes``: of the programs that heat the phone."""
        used = self.taken_bytes + self.pressed_bytes + resident_bytes
        available = max(0, self.total_bytes - used)
        lines = {
            "MemTotal": self.total_bytes,
            "MemFree": available // 4,
            "MemAvailable": available,
            "Buffers": 0,
            "Cached": available - available // 4,
            "SwapTotal": 0,
            "SwapFree": 0,
        }
        return "".join(f"{f'{name}:':16}{n_bytes // 1024:8} kB\n" for name, n_bytes in lines.items())


class Board:
    """Reads ``board.json`` and the sensor files of ``root`` (so a reboot continues where the last boot stopped)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sys = root / "sys"
        described: dict[str, Any] = json.loads((root / "board.json").read_text(encoding="utf-8"))
        self.load_processes = frozenset(name[:15] for name in described["load_processes"])
        self.skin_thresholds = tuple(described["skin_thresholds"])
        self._clusters: list[dict[str, Any]] = described["clusters"]
        self.zones = [
            _zone(self._sys / "class/thermal" / f"thermal_zone{n}", zone) for n, zone in enumerate(described["zones"])
        ]
        self.memory = Memory(**described["memory"])
        battery = described["battery"]
        supply = self._sys / "class/power_supply/battery"
        self.battery = Battery(
            full_uah=battery["full_uah"],
            charge_uah=float(_read_number(supply / "charge_counter")),
            charging=_read_number(self._sys / "class/power_supply/usb/online") == 1,
            idle_ua=battery["idle_ua"],
            load_ua=battery["load_ua"],
            charger_ua=battery["charger_ua"],
        )
        self._load = 0.0
        self._resident_bytes = 0
        self._cached = self._hal_zones()
        self._cached_status = self.thermal_status()

    def thermal_status(self) -> int:
        """Android's status 0 (none) to 6 (shutdown), from the hottest skin zone against the thresholds."""
        skin = [zone.celsius for zone in self.zones if zone.hal_type == dumpsys.SKIN]
        if not skin:
            return 0
        reached = [
            level for level, limit in enumerate(self.skin_thresholds) if limit is not None and max(skin) >= limit
        ]
        return max(reached, default=0)

    def tick(self, seconds: float, *, loaded: bool, resident_bytes: int = 0) -> None:
        """``loaded``: a program that heats the phone runs; ``resident_bytes``: of all of them."""
        self._load = 1.0 if loaded else 0.0
        self._resident_bytes = resident_bytes
        for zone in self.zones:
            zone.advance(seconds, self._load)
        self.battery.advance(seconds, self._load)
        self.publish()

    def advance(self, seconds: float, load: float) -> None:
        """Let so much time pass at once, under a load of 0 to 1: the same steps always give the same state."""
        self._load = load
        for zone in self.zones:
            zone.advance(seconds, load)
        self.battery.advance(seconds, load)
        self.publish()

    def set_temperature(self, zone_type: str, celsius: float | None) -> None:
        """Hold a zone at a temperature, or (None) give it back to the model. Raises ValueError for an unknown zone."""
        matching = [zone for zone in self.zones if zone.type == zone_type]
        if not matching:
            raise ValueError(f"no thermal zone {zone_type!r}; there are {', '.join(zone.type for zone in self.zones)}")
        for zone in matching:
            zone.pinned = celsius is not None
            if celsius is not None:
                zone.celsius = float(celsius)
        self.publish()

    def press_memory(self, n_bytes: int) -> None:
        """Other apps hold so much more; 0 ends it."""
        if not 0 <= n_bytes <= self.memory.total_bytes:
            raise ValueError(f"{n_bytes} bytes are not between 0 and the phone's {self.memory.total_bytes}")
        self.memory.pressed_bytes = n_bytes
        self.publish()

    def set_battery(self, percent: float | None, charging: bool | None) -> None:
        if percent is not None:
            if not 0 <= percent <= 100:
                raise ValueError(f"battery level {percent} is not between 0 and 100")
            self.battery.charge_uah = self.battery.full_uah * percent / 100
        if charging is not None:
            self.battery.charging = charging
        self.publish()

    def publish(self) -> None:
        """Bring every file up to date with the state."""
        for zone in self.zones:
            if not zone.fixed or zone.pinned:
                _store(zone.path / "temp", str(round(zone.celsius * _MILLI)))
        status = self.thermal_status()
        for cluster in self._clusters:
            highest = max(cluster["min_khz"], round(cluster["max_khz"] * _THROTTLE[status]))
            now = highest if self._load else cluster["min_khz"]
            for cpu in cluster["cpus"]:
                _store(self._sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_max_freq", str(highest))
                _store(self._sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", str(now))
        supply = self._sys / "class/power_supply/battery"
        battery = self.battery
        _store(supply / "capacity", str(battery.percent))
        _store(supply / "status", battery.status)
        _store(supply / "charge_counter", str(round(battery.charge_uah)))
        _store(supply / "voltage_now", str(battery.voltage_uv))
        _store(supply / "current_now", str(battery.current_ua(self._load)))
        _store(supply / "temp", str(round(self._battery_celsius() * 10)))
        _store(self._sys / "class/power_supply/usb/online", "1" if battery.charging else "0")
        _store(self._root / "meminfo", self.memory.meminfo(self._resident_bytes).rstrip("\n"))
        if status != self._cached_status:
            self._cached, self._cached_status = self._hal_zones(), status
        dumps = self._root / "dumpsys"
        _replace(dumps / "battery", dumpsys.battery_text(battery, self._battery_celsius()))
        _replace(dumps / "thermalservice", self._thermal_text(status))

    def _thermal_text(self, status: int) -> str:
        return dumpsys.thermal_text(
            status, self._cached, self._hal_zones(), self.skin_thresholds, self.battery.voltage_uv
        )

    def _hal_zones(self) -> list[dumpsys.Temperature]:
        return [
            dumpsys.Temperature(
                type=zone.hal_type,
                name=zone.hal_name,
                celsius=zone.celsius,
                status=self.thermal_status() if zone.hal_type == dumpsys.SKIN else 0,
            )
            for zone in self.zones
            if zone.hal_type is not None
        ]

    def _battery_celsius(self) -> float:
        for zone in self.zones:
            if zone.type == "battery":
                return zone.celsius
        raise ValueError("the board has no battery zone")


def _zone(path: Path, described: dict[str, Any]) -> Zone:
    now = _read_number(path / "temp") / _MILLI
    fixed = "fixed_millidegrees" in described
    return Zone(
        type=described["type"],
        path=path,
        idle=now if fixed else described["idle"],
        rise=0.0 if fixed else described["rise"],
        tau_s=1.0 if fixed else described["tau_s"],
        fixed=fixed,
        hal_type=described.get("hal_type"),
        hal_name=described.get("hal_name", ""),
        celsius=now,
    )


def _read_number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


def _store(path: Path, text: str) -> None:
    """Write in place: a reader that keeps a sensor file open sees new values, as it would in sysfs."""
    data = text.encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        os.pwrite(fd, data, 0)
        if len(data) < size:
            os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="ascii")
    temporary.replace(path)
