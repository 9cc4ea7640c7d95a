"""Geometry of the charts: numbers in, coordinates and SVG path strings out. The template only draws.

A chart has one x axis and one or more panels above each other that share it. Coordinates are CSS pixels of the SVG's
own view box; every text beside a point is made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reports.text import number

WIDTH: Final = 600.0
_LEFT: Final = 50.0
_RIGHT: Final = 14.0
_TOP: Final = 22.0
_PANEL_GAP: Final = 34.0
_BOTTOM: Final = 40.0
N_STYLES: Final = 8
"""Distinct line styles in the style sheet; a ninth series looks like the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line. ``y`` may hold None where nothing was read: the line is broken there, never drawn through zero."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    run_id: str | None
    style: int
    dots: bool = False
    """Points only, no line between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A span of the x axis that means something, e.g. a prefill."""

    start: float
    end: float
    label: str
    kind: str
    """Class in the style sheet: ``prefill``, ``decode`` or ``warmup``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A horizontal line at ``y``, e.g. a median."""

    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    label: str
    unit: str
    series: tuple[Series, ...]
    height: float = 170.0
    from_zero: bool = False
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PointView:
    x: float
    y: float
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesView:
    name: str
    run_id: str | None
    style: int
    n: int
    dots: bool
    path: str
    """SVG path data: a line, or a mark of no length for each dot"""
    points: tuple[PointView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelView:
    label: str
    top: float
    bottom: float
    y_ticks: tuple[Tick, ...]
    series: tuple[SeriesView, ...]
    rules: tuple[RuleView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BandView:
    x: float
    width: float
    label: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    chart_id: str
    title: str
    subtitle: str
    summary: str
    """What the picture says, in words: for screen readers and for print."""
    x_label: str
    width: float
    height: float
    left: float
    right: float
    x_ticks: tuple[Tick, ...]
    bands: tuple[BandView, ...]
    band_kinds: tuple[str, ...]
    panels: tuple[PanelView, ...]
    run_id: str | None
    """The one run that every line comes from; None when there are several"""
    emulated: bool
    synthetic: bool
    data: dict[str, Any]
    """The values themselves, for the JSON block."""


def nice_ticks(low: float, high: float, about: int, *, whole: bool = False) -> tuple[float, ...]:
    """Round values (1, 2 or 5 times a power of ten apart) within ``low`` .. ``high``; integers if ``whole``."""
    if high <= low:
        return (low,)
    raw = (high - low) / max(about, 1)
    power: float = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= raw * 0.999)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(index * step for index in range(first, last + 1))


def padded_range(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """A y range that holds all values with some air; a constant gets a range around it, never of zero height."""
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
    span = high - low
    if span <= 0:
        span = abs(high) * 0.1 or 1.0
        return (low if from_zero else low - span / 2), high + span / 2
    return (low if from_zero and low == 0 else low - 0.06 * span), high + 0.08 * span


def tick_label(value: float, step: float) -> str:
    places = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return number(value, decimals=min(places, 6))


def thinned(n: int, keep: int) -> tuple[int, ...]:
    """``keep`` evenly spaced indices of 0 .. n-1, first and last among them; all of them when there are no more."""
    if n <= keep:
        return tuple(range(n))
    if keep < 2:
        return (0,) if keep == 1 else ()
    return tuple(round(index * (n - 1) / (keep - 1)) for index in range(keep))


def draw(
    *,
    chart_id: str,
    title: str,
    subtitle: str,
    summary: str,
    x_label: str,
    x_unit: str,
    panels: tuple[Panel, ...],
    bands: tuple[Band, ...] = (),
    hover_points: int = 60,
    emulated: bool = False,
    synthetic: bool = False,
) -> Chart | None:
    """Lay a chart out; None when no panel has a single value. ``hover_points`` bounds the points that carry a title."""
    used = [panel for panel in panels if any(_values(series) for series in panel.series)]
    if not used:
        return None
    xs = [x for panel in used for series in panel.series for x in series.x]
    xs += [edge for band in bands for edge in (band.start, band.end)]
    x_low, x_high = min(xs), max(xs)
    if x_high <= x_low:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    right = WIDTH - _RIGHT

    def place_x(value: float) -> float:
        return _LEFT + (value - x_low) / (x_high - x_low) * (right - _LEFT)

    views = []
    top = _TOP
    per_series = max(4, hover_points // sum(len(panel.series) for panel in used))
    for panel in used:
        views.append(_panel(panel, top, place_x, x_label, x_unit, per_series))
        top += panel.height + _PANEL_GAP
    run_ids = {series.run_id for panel in used for series in panel.series}
    ticks = nice_ticks(x_low, x_high, 8, whole=all(float(x).is_integer() for x in xs))
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    return Chart(
        chart_id=chart_id,
        title=title,
        subtitle=subtitle,
        summary=summary,
        x_label=f"{x_label} ({x_unit})" if x_unit else x_label,
        width=WIDTH,
        height=round(top - _PANEL_GAP + _BOTTOM, 1),
        left=_LEFT,
        right=right,
        x_ticks=tuple(Tick(at=round(place_x(t), 1), label=tick_label(t, step)) for t in ticks),
        bands=tuple(
            BandView(
                x=round(place_x(band.start), 1),
                width=max(0.6, round(place_x(band.end) - place_x(band.start), 1)),
                label=band.label,
                kind=band.kind,
            )
            for band in bands
        ),
        band_kinds=tuple(kind for kind in ("prefill", "decode", "warmup") if any(b.kind == kind for b in bands)),
        panels=tuple(views),
        run_id=run_ids.pop() if len(run_ids) == 1 else None,
        emulated=emulated,
        synthetic=synthetic,
        data={
            "title": title,
            "x": {"label": x_label, "unit": x_unit},
            "panels": [
                {
                    "label": panel.label,
                    "unit": panel.unit,
                    "series": [
                        {
                            "name": series.name,
                            "run_id": series.run_id,
                            "n": len(_values(series)),
                            "x": [_compact(x) for x in series.x],
                            "y": [None if y is None else _compact(y) for y in series.y],
                        }
                        for series in panel.series
                    ],
                }
                for panel in used
            ],
            "emulated": emulated,
        },
    )


def _values(series: Series) -> list[float]:
    return [y for y in series.y if y is not None and math.isfinite(y)]


def _compact(value: float) -> float | int | None:
    """Six significant digits: far finer than any clock or sensor here, and short in the file."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _panel(panel: Panel, top: float, place_x: Any, x_label: str, x_unit: str, per_series: int) -> PanelView:
    values = [y for series in panel.series for y in _values(series)] + [rule.y for rule in panel.rules]
    low, high = padded_range(values, from_zero=panel.from_zero)
    bottom = top + panel.height

    def place_y(value: float) -> float:
        return bottom - (value - low) / (high - low) * panel.height

    ticks = nice_ticks(low, high, max(3, int(panel.height // 38)))
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    return PanelView(
        label=f"{panel.label} ({panel.unit})" if panel.unit else panel.label,
        top=top,
        bottom=bottom,
        y_ticks=tuple(Tick(at=round(place_y(t), 1), label=tick_label(t, step)) for t in ticks),
        series=tuple(_series(s, panel, place_x, place_y, x_label, x_unit, per_series) for s in panel.series),
        rules=tuple(RuleView(y=round(place_y(rule.y), 1), label=rule.label) for rule in panel.rules),
    )


def _series(
    series: Series, panel: Panel, place_x: Any, place_y: Any, x_label: str, x_unit: str, per_series: int
) -> SeriesView:
    path: list[str] = []
    drawn: list[tuple[float, float, str]] = []
    pen_down = False
    for x, y in zip(series.x, series.y, strict=True):
        if y is None or not math.isfinite(y):
            pen_down = False
            continue
        at_x, at_y = round(place_x(x), 1), round(place_y(y), 1)
        path.append(f"{'L' if pen_down else 'M'}{at_x:g} {at_y:g}{'h0' if series.dots else ''}")
        pen_down = not series.dots
        hover = f"{series.name}: {number(y, panel.unit)} {panel.unit} at {x_label} {number(x, decimals=_places(x))}"
        drawn.append((at_x, at_y, f"{hover} {x_unit}".rstrip()))
    keep = thinned(len(drawn), per_series)
    return SeriesView(
        name=series.name,
        run_id=series.run_id,
        style=series.style % N_STYLES,
        n=len(drawn),
        dots=series.dots,
        path="".join(path),
        points=tuple(PointView(x=drawn[i][0], y=drawn[i][1], hover=drawn[i][2]) for i in keep),
    )


def _places(value: float) -> int:
    return 0 if float(value).is_integer() else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One phase of a timeline, in milliseconds since the first phase began."""

    name: str
    detail: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BarView:
    name: str
    y: float
    x: float
    width: float
    text: str
    text_x: float
    text_anchor: str
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    chart_id: str
    title: str
    subtitle: str
    summary: str
    run_id: str
    width: float
    height: float
    left: float
    right: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    bars: tuple[BarView, ...]
    emulated: bool
    synthetic: bool
    data: dict[str, Any]


def _took(milliseconds: float) -> str:
    if milliseconds < 0.01:
        return "< 0.01"
    return number(milliseconds, decimals=1 if milliseconds >= 1 else 2)


_ROW: Final = 22.0
_NAME_WIDTH: Final = 178.0


def timeline(
    *, chart_id: str, title: str, subtitle: str, run_id: str, bars: tuple[Bar, ...], emulated: bool, synthetic: bool
) -> Timeline | None:
    """Phases as bars on one axis of milliseconds, first at the top; None when there is no phase."""
    if not bars:
        return None
    end = max(bar.end_ms for bar in bars) or 1.0
    right = WIDTH - 70.0

    def place(value: float) -> float:
        return _NAME_WIDTH + value / end * (right - _NAME_WIDTH)

    views = []
    for row, bar in enumerate(bars):
        x, width = place(bar.start_ms), max(1.5, place(bar.end_ms) - place(bar.start_ms))
        took = _took(bar.end_ms - bar.start_ms)
        views.append(
            BarView(
                name=(f"{bar.name} {bar.detail}" if bar.detail else bar.name)[:28],
                y=_TOP + row * _ROW,
                x=round(x, 1),
                width=round(width, 1),
                text=f"{took} ms",
                text_x=round(x + width + 5, 1),
                text_anchor="start",
                hover=f"{bar.name} {bar.detail}: {took} ms, from {number(bar.start_ms, 'ms')} ms".replace(" :", ":"),
            )
        )
    bottom = _TOP + len(bars) * _ROW
    ticks = nice_ticks(0.0, end, 7)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    longest = max(bars, key=lambda bar: bar.end_ms - bar.start_ms)
    return Timeline(
        chart_id=chart_id,
        title=title,
        subtitle=subtitle,
        summary=(
            f"{len(bars)} load phases in {number(end, 'ms')} ms; the longest is {longest.name} with "
            f"{number(longest.end_ms - longest.start_ms, 'ms')} ms."
        ),
        run_id=run_id,
        width=WIDTH,
        height=bottom + _BOTTOM,
        left=_NAME_WIDTH,
        right=right,
        bottom=bottom,
        x_ticks=tuple(Tick(at=round(place(t), 1), label=tick_label(t, step)) for t in ticks),
        bars=tuple(views),
        emulated=emulated,
        synthetic=synthetic,
        data={
            "title": title,
            "x": {"label": "time since the first phase", "unit": "ms"},
            "run_id": run_id,
            "bars": [
                {
                    "name": bar.name,
                    "detail": bar.detail,
                    "start_ms": _compact(bar.start_ms),
                    "end_ms": _compact(bar.end_ms),
                }
                for bar in bars
            ],
            "emulated": emulated,
        },
    )
