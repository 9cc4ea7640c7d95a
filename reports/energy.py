"""Energy: the figures of the catalogue's power metrics, the battery's readings over time, or why there are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.record.run import RunRecord, SensorSeries
from harness.record.verdict import Measurement
from harness.record.vocabulary import Family, Source
from reports.chart import Panel, Series, draw
from reports.drawing import Chart
from reports.latency import MetricTable, metric_table, run_subtitle, speed_first
from reports.text import clean, counted, number
from reports.thermal import bands_of

_READABLE: Final = ("ok", "partial")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyRow:
    phone: str
    run_ids: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySection:
    table: MetricTable
    charts: tuple[Chart, ...]
    why: tuple[WhyRow, ...]
    """Runs that the table says nothing of, together where phone and reasons are the same"""


def energy_section(
    journal: Journal, measurements: Sequence[Measurement], phones: dict[str, str], *, hover_points: int
) -> EnergySection:
    columns = {name: _label(name) for name, metric in METRICS.items() if metric.family is Family.POWER}
    table = metric_table(
        "energy-table",
        "Energy per cell and phone",
        columns,
        measurements,
        phones,
        note="medians; below them the 95 % interval, where there are samples for one",
        drop_empty=True,
    )
    told = {run_id for m in measurements if m.metric in columns for run_id in m.run_ids}
    return EnergySection(
        table=table,
        charts=tuple(chart for run in speed_first(journal) if (chart := _chart(run, hover_points)) is not None),
        why=_why(run for run in journal.runs if run.run_id not in told),
    )


def _label(metric: str) -> str:
    """The unit at the end of a metric's name stands below it already."""
    return re.sub(r"_(mj|mw|s|j|w|percent)$", "", metric).replace("_", " ")


def _why(runs: Iterable[RunRecord]) -> tuple[WhyRow, ...]:
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for run in runs:
        groups.setdefault((clean(run.device.serial), not_measurable(run)), []).append(clean(run.run_id))
    return tuple(WhyRow(phone=phone, run_ids=tuple(ids), reasons=why) for (phone, why), ids in groups.items())


def not_measurable(run: RunRecord) -> tuple[str, ...]:
    """Why no energy can be computed from a run, from its own record; the last reason is always true of it."""
    reasons = []
    if run.error is not None:
        reasons.append(f"the run failed: {run.error.kind}")
    if run.source is Source.VIRTUAL:
        reasons.append("a virtual phone has no battery: its current and voltage are made up")
    if run.conditions.charging:
        reasons.append("on external power: the battery's current is not what the phone uses")
    for what, unit in (("current", "ua"), ("voltage", "uv")):
        sensors = [s for s in run.sensors if s.domain == "battery" and s.unit == unit]
        states = sorted({s.state for s in sensors})
        if not sensors:
            reasons.append(f"the phone shows no battery {what} to its shell")
        elif not any(state in _READABLE for state in states):
            reasons.append(f"battery {what}: sensor {', '.join(states)}")
    if not reasons:
        n = max(sum(v is not None for v in s.values) for s in run.sensors if s.unit == "ua")
        reasons.append(f"{counted(n, 'reading')} of the current, and no idle block before or after to subtract")
    return tuple(clean(reason) for reason in reasons)


def _readable(run: RunRecord, unit: str) -> SensorSeries | None:
    fitting = [s for s in run.sensors if s.domain == "battery" and s.unit == unit and s.state in _READABLE]
    return fitting[0] if fitting else None


def battery_watts(run: RunRecord) -> tuple[tuple[int, float | None], ...]:
    """(moment in ns, |current| × voltage in W) of each sample with both; phones differ in the sign of the current."""
    current, voltage = _readable(run, "ua"), _readable(run, "uv")
    if current is None or voltage is None or current.monotonic_ns != voltage.monotonic_ns:
        return ()
    return tuple(
        (at, None if a is None or v is None else abs(a) * v * 1e-12)
        for at, a, v in zip(current.monotonic_ns, current.values, voltage.values, strict=True)
    )


def _chart(run: RunRecord, hover_points: int) -> Chart | None:
    watts = battery_watts(run)
    known = [value for _, value in watts if value is not None]
    if not known:
        return None
    origin = min([at for at, _ in watts] + ([run.log.start.clock.monotonic_ns] if run.log.start else []))
    return draw(
        chart_id=f"power-{run.run_id}".replace(" ", "-"),
        title="Battery power over time",
        subtitle=run_subtitle(run),
        summary=(
            f"n = {counted(len(known), 'reading')}; smallest {number(min(known), decimals=2)} W, "
            f"largest {number(max(known), decimals=2)} W: |current| × voltage at the battery, the whole phone, idle "
            "included" + ("; charging, so not what the phone uses" if run.conditions.charging else "") + "."
        ),
        x_label="time since the start of the runner",
        x_unit="s",
        panels=(
            Panel(
                label="battery power",
                unit="W",
                series=(
                    Series(
                        name="power",
                        x=tuple((at - origin) / 1e9 for at, _ in watts),
                        y=tuple(value for _, value in watts),
                        run_id=clean(run.run_id),
                        style=0,
                    ),
                ),
                from_zero=True,
            ),
        ),
        bands=bands_of(run, origin),
        hover_points=hover_points,
        emulated=run.source is Source.VIRTUAL,
        synthetic=run.source is Source.SYNTHETIC,
    )
