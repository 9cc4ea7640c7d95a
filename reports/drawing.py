"""A chart that is laid out: what the template draws, in pixels of the SVG's own view box, with every text beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
    behind: str
    """How many samples are behind a point; "1" where a point is a reading"""
    dots: bool
    path: str
    """SVG path data: a line, or a mark of no length for each dot"""
    bars: str
    """SVG path data of the intervals"""
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
    """All spans of one kind."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanView:
    x: float
    width: float
    text: str
    """Empty where there is no room for it"""
    kind: str
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkView:
    x: float
    text_x: float
    anchor: str
    label: str


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
    x_low: float
    """Value at ``left``"""
    x_high: float
    x_ticks: tuple[Tick, ...]
    bands: tuple[BandView, ...]
    spans: tuple[SpanView, ...]
    marks: tuple[MarkView, ...]
    panels: tuple[PanelView, ...]
    run_id: str | None
    """The one run that every line comes from; None when there are several"""
    emulated: bool
    synthetic: bool
    data: dict[str, Any]
    """The values themselves, for the JSON block."""
