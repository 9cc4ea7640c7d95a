"""Temperatures, clocks and tokens of a run on one time axis, and the sensors behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.journal import Journal
from harness.measure.changepoint import MIN_VALUES
from harness.measure.metrics import THERMAL_DOMAINS
from harness.measure.thermal import usable_celsius
from harness.measure.timing import timing_of
from harness.record.run import RunRecord
from harness.record.vocabulary import Source
from harness.results.speed import steadiness_of
from reports.chart import Band, Mark, Panel, Series, Span, draw
from reports.drawing import Chart
from reports.latency import run_subtitle, speed_first
from reports.overview import Figure, figure
from reports.text import clean, counted, number, unit_name

_DOMAIN_STYLE = {domain: style for style, domain in enumerate((*THERMAL_DOMAINS, "other"))}


def thermal_charts(journal: Journal, *, hover_points: int) -> tuple[Chart, ...]:
    """Temperatures by domain, the gaps between tokens and the clocks on one time axis. Of several sensors of a domain
    the one with the highest peak is drawn and the number of the others named."""
    charts = []
    for index, run in enumerate(speed_first(journal)):
        stamps = [ns for series in run.sensors for ns in series.monotonic_ns]
        if not stamps:
            continue
        origin = min(stamps + ([run.log.start.clock.monotonic_ns] if run.log.start else []))
        temperatures = _hottest(run, origin)
        windows = _windows(run, origin)
        chart = draw(
            chart_id=f"thermal-{index}",
            title="Temperature and speed over time",
            subtitle=run_subtitle(run),
            summary=_thermal_summary(temperatures) + windows.summary,
            x_label="time since the start of the runner",
            x_unit="s",
            panels=(
                Panel(label="temperature", unit="°C", series=temperatures),
                Panel(
                    label="gap to the token before",
                    unit="ms",
                    series=_gap_dots(run, origin),
                    height=90.0,
                    from_zero=True,
                ),
                Panel(label="clock", unit="GHz", series=_clocks(run, origin), height=90.0, from_zero=True),
            )
            if temperatures
            else (),
            bands=bands_of(run, origin),
            spans=windows.spans,
            marks=windows.marks,
            hover_points=hover_points,
            emulated=run.source is Source.VIRTUAL,
            synthetic=run.source is Source.SYNTHETIC,
        )
        if chart is not None:
            charts.append(chart)
    return tuple(charts)


def _hottest(run: RunRecord, origin: int) -> tuple[Series, ...]:
    by_domain: dict[str, list[tuple[float, Series]]] = {}
    for sensor in run.sensors:
        values = tuple(value if usable_celsius(value) else None for value in sensor.values)
        known = [value for value in values if value is not None]
        if sensor.unit != "celsius" or not known:
            continue
        name = f"{sensor.domain}: {sensor.name}" + ("" if sensor.state == "ok" else f" ({sensor.state})")
        line = Series(
            name=clean(name),
            x=tuple((ns - origin) / 1e9 for ns in sensor.monotonic_ns),
            y=values,
            run_id=clean(run.run_id),
            style=_DOMAIN_STYLE.get(sensor.domain, len(_DOMAIN_STYLE) - 1),
        )
        by_domain.setdefault(sensor.domain, []).append((max(known), line))
    lines = []
    for domain in sorted(by_domain, key=lambda name: _DOMAIN_STYLE.get(name, len(_DOMAIN_STYLE))):
        hottest = max(by_domain[domain], key=lambda pair: pair[0])[1]
        n = len(by_domain[domain])
        lines.append(
            hottest
            if n == 1
            else Series(
                name=f"{hottest.name} (hottest of {n})",
                x=hottest.x,
                y=hottest.y,
                run_id=hottest.run_id,
                style=hottest.style,
            )
        )
    return tuple(lines)


def _thermal_summary(lines: tuple[Series, ...]) -> str:
    parts = []
    for line in lines:
        known = [y for y in line.y if y is not None]
        first, peak = number(known[0], "°C"), number(max(known), "°C")
        parts.append(f"{line.name.partition(':')[0]} {first} to {peak}")
    return f"First reading and peak in °C: {', '.join(parts)}." if parts else ""


def _gap_dots(run: RunRecord, origin: int) -> tuple[Series, ...]:
    """All gaps of the run, warm-ups included, at the time of the token that ended them."""
    xs: list[float] = []
    ys: list[float] = []
    for generation in run.log.generations:
        gaps = timing_of(generation).itl_ms
        xs += [(ns - origin) / 1e9 for ns in generation.token_ns[1:]]
        ys += list(gaps)
    if not xs:
        return ()
    return (
        Series(name="token", x=tuple(xs), y=tuple(ys), run_id=clean(run.run_id), style=7, dots=True, embedded=False),
    )


def _clocks(run: RunRecord, origin: int) -> tuple[Series, ...]:
    return tuple(
        Series(
            name=clean(f"{sensor.domain}: {sensor.name}"),
            x=tuple((ns - origin) / 1e9 for ns in sensor.monotonic_ns),
            y=tuple(None if value is None else value / 1e9 for value in sensor.values),
            run_id=clean(run.run_id),
            style=style,
        )
        for style, sensor in enumerate(s for s in run.sensors if s.unit == "hz")
        if any(value is not None for value in sensor.values)
    )[:4]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    summary: str


def _windows(run: RunRecord, origin: int) -> _Windows:
    """Cold, warming, steady, throttled or slowed windows of every repetition, and where throttling began."""
    spans: list[Span] = []
    marks: list[Mark] = []
    n_short = 0
    for generation in run.log.generations:
        if generation.mode != "generate" or generation.warmup or not generation.token_ns:
            continue
        state = steadiness_of(run, generation)
        if state is None:
            n_short += 1
            continue
        stamps = generation.token_ns
        for window in state.windows:
            word = str(window.condition)
            spans.append(
                Span(
                    start=(stamps[window.first] - origin) / 1e9,
                    end=(stamps[window.end] - origin) / 1e9,
                    label=word,
                    kind=word,
                    hover=f"{word}: {number(window.tps, 'tok/s')} tok/s, n = {window.end - window.first} gaps",
                )
            )
        if state.tokens_to_throttle is not None:
            at = (stamps[state.tokens_to_throttle - 1] - origin) / 1e9
            marks.append(Mark(at=at, label=f"throttled after {state.tokens_to_throttle} tokens"))
    summary = ""
    if spans:
        shown = dict.fromkeys(f"{span.label} {number(span.end - span.start, decimals=1)} s" for span in spans)
        summary = f" Windows: {', '.join(shown)}; " + (
            f"{counted(len(marks), 'throttle mark')}." if marks else "no throttling."
        )
    if n_short:
        summary += f" {counted(n_short, 'repetition')} too short to label: {MIN_VALUES} gaps are needed."
    return _Windows(spans=tuple(spans), marks=tuple(marks), summary=summary)


def bands_of(run: RunRecord, origin: int) -> tuple[Band, ...]:
    bands = []

    def span(start: int, end: int, kind: str) -> Band:
        return Band(start=(start - origin) / 1e9, end=(end - origin) / 1e9, kind=kind)

    for generation in run.log.generations:
        if generation.warmup:
            bands.append(span(generation.start_ns, generation.end_ns, "warmup"))
            continue
        first = generation.token_ns[0] if generation.token_ns else generation.end_ns
        bands.append(span(generation.start_ns, first, "prefill"))
        if generation.token_ns:
            bands.append(span(first, generation.end_ns, "decode"))
    return tuple(bands)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRow:
    run_id: str
    name: str
    domain: str
    unit: str
    state: str
    n: int
    first: Figure
    peak: Figure
    last: Figure


_READ_AS: Final = {"hz": (1e-9, "GHz"), "ua": (1e-3, "mA"), "uv": (1e-6, "V")}


def sensor_rows(journal: Journal) -> tuple[SensorRow, ...]:
    """Every sensor of every run, those that gave nothing included."""
    rows = []
    for run in journal.runs:
        for sensor in run.sensors:
            known = [value for value in sensor.values if value is not None]
            factor, unit = _READ_AS.get(sensor.unit, (1.0, sensor.unit))

            def shown(
                value: float | None,
                unit: str = unit,
                factor: float = factor,
                why: str = f"sensor {sensor.state}",
                ids: tuple[str, ...] = (clean(run.run_id),),
            ) -> Figure:
                return figure(None if value is None else value * factor, unit, run_ids=ids, why=why)

            rows.append(
                SensorRow(
                    run_id=clean(run.run_id),
                    name=clean(sensor.name),
                    domain=clean(sensor.domain),
                    unit=unit_name(unit),
                    state=clean(sensor.state),
                    n=len(known),
                    first=shown(known[0] if known else None),
                    peak=shown(max(known, default=None)),
                    last=shown(known[-1] if known else None),
                )
            )
    return tuple(rows)
