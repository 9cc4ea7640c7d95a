"""What a user sets for every run of a session, in place of what suites ask for: ``--runner-option NAME=VALUE``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from harness.errors import UserError
from harness.record.vocabulary import Suite
from harness.run.workload import Workload

PERFORMANCE_MODES: Final = (
    "default",
    "burst",
    "sustained_high_performance",
    "high_performance",
    "balanced",
    "low_balanced",
    "high_power_saver",
    "power_saver",
    "low_power_saver",
    "extreme_power_saver",
)
OF_A_VOTE: Final = ("sleep_latency_us", "rpc_polling_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    read: Callable[[str], Any]
    """Raises ``ValueError``"""
    expected: str


def _one_of(*words: str) -> _Kind:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return _Kind(read=read, expected=", ".join(words))


def _integer(lowest: int, highest: int) -> _Kind:
    return _Kind(read=lambda text: _read_integer(text, lowest, highest), expected=f"{lowest} to {highest}")


def _read_integer(text: str, lowest: int, highest: int) -> int:
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise ValueError(text)
    return int(text)


def _read_cores(text: str) -> tuple[int, ...]:
    cores = tuple(_read_integer(core, 0, 1023) for core in text.split(","))
    if len(set(cores)) < len(cores):
        raise ValueError(text)
    return cores


_ON_OFF: Final = _Kind(read=lambda text: {"on": True, "off": False}[text], expected="on, off")
_KINDS: Final = {
    "performance_mode": _one_of(*PERFORMANCE_MODES),
    "memory": _one_of("auto", "heap"),
    "graph_priority": _one_of("low", "normal", "normal_high", "high"),
    "sleep_latency_us": _integer(1, 65535),
    "rpc_polling_us": _integer(0, 9999),
    "cpu_affinity": _Kind(read=_read_cores, expected="numbers of cores, 0 to 1023, as in 4,5"),
    "prefetch": _ON_OFF,
    "stamps": _ON_OFF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """``options``: fields of ``RunOptions``."""

    performance_mode: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    pace_tps: float | None = None
    """Tokens a second of the suite that shows what a slower pace spares; no other suite's."""

    @property
    def words(self) -> tuple[str, ...]:
        """NAME=VALUE each, sorted: equal for equal settings, however they were typed."""
        found = dict(self.options)
        if self.performance_mode is not None:
            found["performance_mode"] = self.performance_mode
        if self.pace_tps is not None:
            found["pace_tps"] = f"{self.pace_tps:g}"
        return tuple(f"{name}={_word(value)}" for name, value in sorted(found.items()))

    def apply(self, workload: Workload) -> Workload:
        mode = workload.performance_mode if self.performance_mode is None else self.performance_mode
        options = dict(self.options)
        if self.pace_tps is not None and workload.name == Suite.PACED:
            options["pace_tps"] = self.pace_tps
        return replace(workload, performance_mode=mode, options=replace(workload.options, **options))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


AS_THE_SUITE: Final = Tuning()


def read_tuning(settings: Iterable[str], pace_tps: float | None = None) -> Tuning:
    """``NAME=VALUE`` each. Raises ``UserError``: an unknown name, a value out of range, a name given twice."""
    if pace_tps is not None and not 0 < pace_tps < math.inf:
        raise UserError("--pace-tps out of range", found=f"{pace_tps:g}", expected="tokens a second, more than 0")
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        kind = _KINDS.get(name)
        if kind is None or not separator:
            raise UserError(
                "--runner-option names nothing that can be set",
                found=repr(setting),
                expected=f"NAME=VALUE; names: {', '.join(_KINDS)}",
            )
        if name in found:
            raise UserError(f"--runner-option sets {name} twice", found=repr(setting), expected="each name once")
        try:
            found[name] = kind.read(text)
        except (ValueError, KeyError):
            raise UserError(
                f"--runner-option {name} has a wrong value", found=repr(text), expected=kind.expected
            ) from None
    mode = found.pop("performance_mode", None)
    votes = [name for name in OF_A_VOTE if name in found]
    if mode == "default" and votes:
        raise UserError(
            f"--runner-option sets {votes[0]} where there is no power vote",
            found="performance_mode=default",
            expected="another mode, or none of " + ", ".join(OF_A_VOTE),
        )
    return Tuning(performance_mode=mode, options=tuple(found.items()), pace_tps=pace_tps)
