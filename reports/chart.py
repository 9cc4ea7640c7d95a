"""Geometry of the charts: numbers in, coordinates and SVG path strings out. The template only draws.

A chart has one x axis and one or more panels above each other that share it. Coordinates are CSS pixels of the SVG's
own view box; every text beside a point is made here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from reports.drawing import BandView, Chart, MarkView, PanelView, PointView, RuleView, SeriesView, SpanView, Tick
from reports.paths import dots_path, line_path
from reports.scale import compact, nice_ticks, padded_range, thinned, tick_label
from reports.text import number

WIDTH: Final = 600.0
_LEFT: Final = 50.0
_RIGHT: Final = 14.0
TOP: Final = 22.0
_PANEL_GAP: Final = 34.0
_STRIP: Final = 22.0
"""Height that labelled spans take above the first panel"""
BOTTOM: Final = 40.0
Place = Callable[[float], float]
"""A value to its pixel"""
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
    embedded: bool = True
    """False: the values are in the data block already, in another form."""
    stamps: tuple[str, int] | None = None
    """Run id and place in its embedded stamps whose gaps, in ms, are the values."""
    intervals: tuple[tuple[float, float] | None, ...] = ()
    """95 % interval of each value, drawn as a bar; empty: the values have none."""
    counts: tuple[int, ...] = ()
    """Samples behind each value; empty: a value is one reading."""
    runs: tuple[str, ...] = ()
    """Run of each value, where they are not all of ``run_id``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A span of the x axis that means something, e.g. a prefill."""

    start: float
    end: float
    kind: str
    """Class in the style sheet: ``prefill``, ``decode`` or ``warmup``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A labelled stretch of the x axis, drawn in a strip above the panels."""

    start: float
    end: float
    label: str
    kind: str
    """Class in the style sheet, e.g. ``steady``"""
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A vertical line through all panels."""

    at: float
    label: str


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
    spans: tuple[Span, ...] = (),
    marks: tuple[Mark, ...] = (),
    hover_points: int = 60,
    emulated: bool = False,
    synthetic: bool = False,
) -> Chart | None:
    """Lay a chart out; None when no panel has a single value. ``hover_points`` bounds the points that carry a title."""
    used = [panel for panel in panels if any(_values(series) for series in panel.series)]
    if not used:
        return None
    xs = [x for panel in used for series in panel.series for x in series.x]
    edges = [edge for band in bands for edge in (band.start, band.end)]
    edges += [edge for span in spans for edge in (span.start, span.end)] + [mark.at for mark in marks]
    x_low, x_high = min(xs + edges), max(xs + edges)
    if all(series.dots for panel in used for series in panel.series):  # a dot on the edge is half a dot
        air = 0.04 * (x_high - x_low)
        x_low, x_high = x_low - air, x_high + air
    if x_high <= x_low:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    right = WIDTH - _RIGHT

    def place_x(value: float) -> float:
        return _LEFT + (value - x_low) / (x_high - x_low) * (right - _LEFT)

    views = []
    top = first_top = TOP + (_STRIP if spans else 0.0)
    per_series = -(-hover_points // sum(len(panel.series) for panel in used))
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
        height=round(top - _PANEL_GAP + BOTTOM, 1),
        left=_LEFT,
        right=right,
        x_ticks=tuple(Tick(at=round(place_x(t), 1), label=tick_label(t, step)) for t in ticks),
        bands=tuple(_bands(bands, place_x, first_top, views[-1].bottom)),
        spans=tuple(_span(span, place_x) for span in spans),
        marks=tuple(_mark(mark, place_x) for mark in marks),
        panels=tuple(views),
        run_id=run_ids.pop() if len(run_ids) == 1 else None,
        emulated=emulated,
        synthetic=synthetic,
        x_low=x_low,
        x_high=x_high,
        data={
            "title": title,
            "x": {"label": x_label, "unit": x_unit},
            "panels": [
                {"label": panel.label, "unit": panel.unit, "series": list(_series_data(panel.series))} for panel in used
            ],
            "emulated": emulated,
            **({"spans": [[s.kind, compact(s.start), compact(s.end)] for s in spans]} if spans else {}),
            **({"marks": [[m.label, compact(m.at)] for m in marks]} if marks else {}),
        },
    )


def _span(span: Span, place_x: Place) -> SpanView:
    x = round(place_x(span.start), 1)
    width = round(max(0.6, place_x(span.end) - x), 1)
    text = span.label if width > 6.6 * len(span.label) + 6 else ""
    return SpanView(x=x, width=width, text=text, kind=span.kind, hover=span.hover)


def _mark(mark: Mark, place_x: Place) -> MarkView:
    x = round(place_x(mark.at), 1)
    before = x > WIDTH * 0.66
    anchor = "end" if before else "start"
    return MarkView(x=x, text_x=x - 4 if before else x + 4, anchor=anchor, label=mark.label)


def _bands(bands: tuple[Band, ...], place_x: Place, top: float, bottom: float) -> Iterable[BandView]:
    for kind in dict.fromkeys(band.kind for band in bands):
        parts = []
        for band in bands:
            if band.kind == kind:
                left, right = round(place_x(band.start), 1), round(place_x(band.end), 1)
                width = round(max(0.6, right - left), 1)
                parts.append(f"M{left:g} {top:g}h{width:g}V{bottom:g}h{-width:g}z")
        yield BandView(kind=kind, path="".join(parts))


def _series_data(all_series: tuple[Series, ...]) -> Iterable[dict[str, Any]]:
    """The values of a panel. ``x`` is a list of numbers, ``[first, last]`` of consecutive whole numbers under
    ``x_range``, or under ``x_of`` the number of an earlier series that has the same ones. ``y`` is left out where
    ``stamps`` says which embedded stamps hold it."""
    seen: dict[tuple[float, ...], int] = {}
    for index, series in enumerate(all_series):
        body: dict[str, Any] = {"name": series.name, "run_id": series.run_id, "n": len(_values(series))}
        whole = range(int(series.x[0]), int(series.x[0]) + len(series.x)) if series.x else range(0)
        if series.embedded:
            if series.x in seen:
                body["x_of"] = seen[series.x]
            elif series.x == tuple(whole) and series.x:
                body["x_range"] = [whole[0], whole[-1]]
            else:
                seen[series.x] = index
                body["x"] = [compact(x) for x in series.x]
            if series.stamps is None:
                body["y"] = [None if y is None else compact(y) for y in series.y]
            else:
                body["stamps"] = list(series.stamps)
            if series.intervals:
                body["low"] = [None if pair is None else compact(pair[0]) for pair in series.intervals]
                body["high"] = [None if pair is None else compact(pair[1]) for pair in series.intervals]
            if series.counts:
                body["n_each"] = list(series.counts)
            if series.runs:
                body["run_ids"] = list(series.runs)
        yield body


def _values(series: Series) -> list[float]:
    return [y for y in series.y if y is not None and math.isfinite(y)]


def _panel(panel: Panel, top: float, place_x: Place, x_label: str, x_unit: str, per_series: int) -> PanelView:
    values = [y for series in panel.series for y in _values(series)] + [rule.y for rule in panel.rules]
    values += [
        end for series in panel.series for pair in series.intervals if pair for end in pair if math.isfinite(end)
    ]
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
    series: Series, panel: Panel, place_x: Place, place_y: Place, x_label: str, x_unit: str, per_series: int
) -> SeriesView:
    strokes: list[list[tuple[int, int]]] = []
    points: list[tuple[int, int, float, float, str]] = []
    bars = []
    pen_down = False
    for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if y is None or not math.isfinite(y):
            pen_down = False
            continue
        at = (round(place_x(x) * 10), round(place_y(y) * 10))
        if pen_down:
            strokes[-1].append(at)
        else:
            strokes.append([at])
        pen_down = not series.dots
        interval = series.intervals[index] if series.intervals else None
        if interval is not None:
            low, high = (round(place_y(end), 1) for end in interval)
            bars.append(f"M{at[0] / 10:g} {low:g}V{high:g}m-3 0h6M{at[0] / 10 - 3:g} {low:g}h6")
        more = _behind(interval, series.counts[index] if series.counts else None, panel.unit)
        points.append((*at, x, y, f"{more}, run {series.runs[index]}" if series.runs else more))
    return SeriesView(
        name=series.name,
        run_id=series.run_id,
        style=series.style % N_STYLES,
        n=len(points),
        behind=_samples(series.counts),
        dots=series.dots,
        path=dots_path(stroke[0] for stroke in strokes) if series.dots else line_path(strokes),
        bars="".join(bars),
        points=tuple(
            PointView(x=at_x / 10, y=at_y / 10, hover=_hover(series.name, panel.unit, y, x, x_label, x_unit) + more)
            for at_x, at_y, x, y, more in (points[i] for i in thinned(len(points), per_series))
        ),
    )


def _samples(counts: tuple[int, ...]) -> str:
    if not counts:
        return "1"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _behind(interval: tuple[float, float] | None, n: int | None, unit: str) -> str:
    text = "" if interval is None else f", 95 % {number(interval[0], unit)} … {number(interval[1], unit)}"
    return text + ("" if n is None else f", n = {n}")


def _hover(name: str, unit: str, y: float, x: float, x_label: str, x_unit: str) -> str:
    where = f"{number(x, decimals=_places(x))} {x_unit}" if x_unit else f"{x_label} {number(x, decimals=_places(x))}"
    return f"{name}: {number(y, unit)} {unit} at {where}"


def _places(value: float) -> int:
    return 0 if float(value).is_integer() else 2
