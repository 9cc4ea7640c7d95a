"""The text of ``dumpsys battery`` and ``dumpsys thermalservice``, laid out as Android 14 and 15 do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SKIN = 3
_BCL_VOLTAGE = 6
_STATUS = {"Charging": 2, "Discharging": 3, "Full": 5}


class BatteryState(Protocol):
    @property
    def charging(self) -> bool: ...
    @property
    def charge_uah(self) -> float: ...
    @property
    def charger_ua(self) -> int: ...
    @property
    def percent(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def voltage_uv(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    type: int
    """android.os.Temperature: 0 CPU, 1 GPU, 2 battery, 3 skin, 6 BCL voltage, 9 NPU, 12 modem."""
    name: str
    celsius: float
    status: int

    def __str__(self) -> str:
        return f"Temperature{{mValue={self.celsius:.1f}, mType={self.type}, mName={self.name}, mStatus={self.status}}}"


def battery_text(battery: BatteryState, celsius: float) -> str:
    fields = (
        ("AC powered", "false"),
        ("USB powered", "true" if battery.charging else "false"),
        ("Wireless powered", "false"),
        ("Dock powered", "false"),
        ("Max charging current", battery.charger_ua if battery.charging else 0),
        ("Max charging voltage", 5_000_000 if battery.charging else 0),
        ("Charge counter", round(battery.charge_uah)),
        ("status", _STATUS[battery.status]),
        ("health", 2),
        ("present", "true"),
        ("level", battery.percent),
        ("scale", 100),
        ("voltage", battery.voltage_uv // 1000),
        ("temperature", round(celsius * 10)),
        ("technology", "Li-ion"),
        ("Charging state", 0),
        ("Charging policy", 0),
    )
    return "Current Battery Service state:\n" + "".join(f"  {name}: {value}\n" for name, value in fields)


def thermal_text(
    status: int,
    cached: Sequence[Temperature],
    current: Sequence[Temperature],
    skin_thresholds: Sequence[float | None],
    voltage_uv: int,
) -> str:
    """``cached`` are the values of the last change of status: older than ``current``, as on real phones."""
    hot = ", ".join("NaN" if limit is None else f"{limit:.1f}" for limit in skin_thresholds)
    cold = ", ".join("NaN" for _ in skin_thresholds)
    lines = [
        "IsStatusOverride: false",
        "ThermalEventListeners:",
        "\tcallbacks: 2",
        "\tkilled: false",
        "\tbroadcasts count: -1",
        "ThermalStatusListeners:",
        "\tcallbacks: 4",
        "\tkilled: false",
        "\tbroadcasts count: -1",
        f"Thermal Status: {status}",
        "Cached temperatures:",
        *(f"\t{temperature}" for temperature in cached),
        "HAL Ready: true",
        "HAL connection:",
        "\tThermalHAL AIDL 2  connected: yes",
        "Current temperatures from HAL:",
        *(f"\t{temperature}" for temperature in current),
        f"\tTemperature{{mValue={voltage_uv / 1e6:.3f}, mType={_BCL_VOLTAGE}, mName=vbat, mStatus=0}}",
        "Current cooling devices from HAL:",
        "\tCoolingDevice{mValue=0, mType=2, mName=cpu-isolate0}",
        "\tCoolingDevice{mValue=0, mType=3, mName=gpu}",
        "Temperature static thresholds from HAL:",
        *(
            f"\tTemperatureThreshold{{mType={SKIN}, mName={temperature.name}, "
            f"mHotThrottlingThresholds=[{hot}], mColdThrottlingThresholds=[{cold}]}}"
            for temperature in current
            if temperature.type == SKIN
        ),
        "Temperature headroom thresholds:",
        "[NaN, NaN, NaN, 1.0, NaN, NaN, NaN]",
    ]
    return "\n".join(lines) + "\n"
