"""What one SoC's virtual phone looks like: read from ``profiles/<marker>.toml``, checked once, then frozen."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HostError, UserError
from harness.soc import Soc, find_soc

_FOLDER = Path(__file__).with_name("profiles")
HAL_TYPES: Mapping[str, int] = {"cpu": 0, "gpu": 1, "battery": 2, "skin": 3, "npu": 9}
"""Android's temperature types that a zone group may be reported as."""
_HAL_NAMES = {"cpu": "CPU", "gpu": "GPU", "npu": "nsp", "skin": "skin", "battery": "battery"}
_HAL_SINGLE = ("skin", "battery")
_SPREAD_CELSIUS = 0.2
"""Neighbouring sensors of one group idle this far apart, so that no two read alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    cpus: tuple[int, ...]
    min_khz: int
    max_khz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    full_mah: int
    percent: float
    charging: bool
    idle_ma: int
    load_ma: int
    """Drawn on top of ``idle_ma`` while the runner works."""
    charger_ma: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    ram_gib: float
    taken_gib: float
    """By the system and the apps in the background"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """One thermal zone. ``fixed_millidegrees`` zones never move; the others idle at ``idle_celsius``."""

    type: str
    fixed_millidegrees: int | None = None
    idle_celsius: float = 0.0
    rise_celsius: float = 0.0
    tau_s: float = 1.0
    hal_type: int | None = None
    hal_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    soc: Soc
    platform: str
    android_release: str
    android_sdk: int
    security_patch: str
    skin_thresholds: tuple[float | None, ...]
    """Celsius, seven values from "none" (always None) to "shutdown"."""
    memory: Memory
    battery: Battery
    clusters: tuple[Cluster, ...]
    zones: tuple[Zone, ...]


def profile_markers() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_profile(name: str) -> Profile:
    """The profile for a marker or part. Raises UserError for an unknown SoC, or one without a profile."""
    soc = find_soc(name)
    path = _FOLDER / f"{soc.marker}.toml"
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise UserError(
            f"no virtual phone for {soc.marketing_name}",
            found=f"no profile {path.name}",
            expected=f"one of {', '.join(profile_markers())}",
            next_step="start one of these",
        ) from exc
    try:
        return _profile(soc, described)
    except (KeyError, TypeError, ValueError) as exc:
        raise HostError(
            "a virtual phone's profile is damaged",
            found=f"{path}: {exc!r}",
            expected="every key of the profiles beside it",
            next_step="install SnapGate again",
        ) from exc


def _profile(soc: Soc, described: Mapping[str, Any]) -> Profile:
    if described["part"] != soc.part:
        raise ValueError(f"part {described['part']!r} is not {soc.part}")
    limits = tuple(None if math.isnan(limit) else limit for limit in described["skin_thresholds_celsius"])
    if len(limits) != 6:
        raise ValueError(f"6 skin thresholds are needed, not {len(limits)}")
    return Profile(
        soc=soc,
        platform=described["platform"],
        android_release=described["android_release"],
        android_sdk=described["android_sdk"],
        security_patch=described["security_patch"],
        skin_thresholds=(None, *limits),
        memory=Memory(**described["memory"]),
        battery=Battery(**described["battery"]),
        clusters=tuple(
            Cluster(cpus=tuple(cluster["cpus"]), min_khz=cluster["min_khz"], max_khz=cluster["max_khz"])
            for cluster in described["clusters"]
        ),
        zones=tuple(zone for group in described["zones"] for zone in _zones(group)),
    )


def _zones(group: Mapping[str, Any]) -> list[Zone]:
    types: list[str] = group["types"]
    if "fixed_millidegrees" in group:
        return [Zone(type=name, fixed_millidegrees=group["fixed_millidegrees"]) for name in types]
    hal: str | None = group.get("hal")
    return [
        Zone(
            type=name,
            idle_celsius=group["idle_celsius"] + _SPREAD_CELSIUS * index,
            rise_celsius=group["rise_celsius"],
            tau_s=group["tau_s"],
            hal_type=None if hal is None else HAL_TYPES[hal],
            hal_name="" if hal is None else _HAL_NAMES[hal] + ("" if hal in _HAL_SINGLE else str(index)),
        )
        for index, name in enumerate(types)
    ]
