"""The phones beside each other: how far phones of one SoC differ, and which one is sick.

Two figures tell of a phone and not of the model: the speed of the canary (``canary_tps``) and the bandwidth of its
memory (``memory_gb_per_s``). A phone is held against the others of its SoC in the journal, and against its own stored
baseline. Phones of one SoC differ by their silicon and their case, so the logarithms of the others' figures are taken
as spread around a common middle: median, and 1.4826 times the median distance from it (both bear one bad phone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.journal import Journal
from harness.record.baseline import Baseline
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source

HEALTH_METRICS: Final = ("canary_tps", "memory_gb_per_s")
MIN_OTHERS: Final = 2
"""With fewer nobody can say which of the phones is the odd one."""
SICK_PERCENT: Final = 10.0
"""Slower than the others' median, or than its own baseline, by at least this"""
SICK_SPREADS: Final = 3.5
"""And by at least this many spreads of the others: 1 healthy phone in 4,000 of a normal spread"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneHealth:
    metric: str
    part: str
    serial: str
    value: float
    others_median: float | None
    """None: fewer than two other phones of the SoC"""
    others_spread_percent: float | None
    own_baseline: float | None
    """Median of the newest stored figure of the same phone; None: there is none"""
    run_ids: tuple[str, ...]

    @property
    def below_others_percent(self) -> float | None:
        return None if self.others_median is None else 100 * (1 - self.value / self.others_median)

    @property
    def below_itself_percent(self) -> float | None:
        return None if self.own_baseline is None else 100 * (1 - self.value / self.own_baseline)

    @property
    def is_sick(self) -> bool:
        others, itself = self.below_others_percent, self.below_itself_percent
        if others is not None and self.others_spread_percent is not None:
            distance = -np.log(1 - others / 100) if others < 100 else np.inf
            if others >= SICK_PERCENT and distance >= SICK_SPREADS * np.log1p(self.others_spread_percent / 100):
                return True
        return itself is not None and itself >= SICK_PERCENT


def phone_health(journal: Journal, measurements: Sequence[Measurement]) -> tuple[PhoneHealth, ...]:
    """Of every phone with a figure that nothing refutes, by metric, SoC and serial. Never of an emulated one."""
    figures: dict[tuple[str, str], dict[str, list[Measurement]]] = {}
    for m in measurements:
        if m.metric in HEALTH_METRICS and m.value and m.serial and not m.refuted_by and m.source is not Source.VIRTUAL:
            figures.setdefault((m.metric, m.cell.part), {}).setdefault(m.serial, []).append(m)
    found = []
    for (metric, part), phones in sorted(figures.items()):
        values = {
            serial: float(np.median([m.value for m in of_phone if m.value])) for serial, of_phone in phones.items()
        }
        for serial, value in sorted(values.items()):
            middle, spread = _middle([other for name, other in values.items() if name != serial])
            found.append(
                PhoneHealth(
                    metric=metric,
                    part=part,
                    serial=serial,
                    value=value,
                    others_median=middle,
                    others_spread_percent=spread,
                    own_baseline=_stored(journal.baselines, metric, part, serial),
                    run_ids=tuple(dict.fromkeys(run_id for m in phones[serial] for run_id in m.run_ids)),
                )
            )
    return tuple(found)


def _middle(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Median, and the spread in percent."""
    if len(values) < MIN_OTHERS:
        return None, None
    logs = np.log(values)
    middle = float(np.median(logs))
    spread = 1.4826 * float(np.median(np.abs(logs - middle)))
    return float(np.exp(middle)), 100 * float(np.expm1(spread))


def _stored(baselines: Sequence[Baseline], metric: str, part: str, serial: str) -> float | None:
    for baseline in sorted(baselines, key=lambda b: b.measured_at, reverse=True):
        samples = [
            float(np.median(figure.samples))
            for figure in baseline.figures
            if (figure.metric, figure.cell.part, figure.serial) == (metric, part, serial)
            and figure.source is not Source.VIRTUAL
        ]
        if samples:
            return float(np.median(samples))
    return None
