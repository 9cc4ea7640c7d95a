"""Temperatures per domain. Domains are never mixed: a phone has no such thing as *the* temperature."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from harness.record.run import SensorSeries

USABLE_STATES: Final = frozenset({"ok", "partial"})
_LOWEST_CELSIUS: Final = -40.0
_HIGHEST_CELSIUS: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTemperature:
    domain: str
    start_celsius: float
    """First usable reading; of several sensors the hottest"""
    peak_celsius: float
    n_sensors: int
    n_readings: int


def usable_celsius(value: float | None) -> bool:
    """False for missing readings, sentinels (-273, 3200) and exactly 0, which some zones report between readings."""
    return value is not None and value != 0.0 and math.isfinite(value) and _LOWEST_CELSIUS <= value <= _HIGHEST_CELSIUS


def temperatures(sensors: Iterable[SensorSeries]) -> dict[str, DomainTemperature]:
    """Start and peak per domain, from sensors in celsius whose state is ``ok`` or ``partial``."""
    by_domain: dict[str, list[list[float]]] = {}
    for series in sensors:
        if series.unit != "celsius" or series.state not in USABLE_STATES:
            continue
        readings = [value for value in series.values if value is not None and usable_celsius(value)]
        if readings:
            by_domain.setdefault(series.domain, []).append(readings)
    return {
        domain: DomainTemperature(
            domain=domain,
            start_celsius=max(readings[0] for readings in all_readings),
            peak_celsius=max(max(readings) for readings in all_readings),
            n_sensors=len(all_readings),
            n_readings=sum(len(readings) for readings in all_readings),
        )
        for domain, all_readings in by_domain.items()
    }
