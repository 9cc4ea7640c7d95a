"""The start-up timeline: load phases as bars on one axis of milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reports.chart import BOTTOM, TOP, WIDTH
from reports.drawing import Tick
from reports.scale import compact, nice_ticks, tick_label
from reports.text import number


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


def _numbered(bars: tuple[Bar, ...], row: int) -> str:
    """The phase's name, with its number where there are several of that name: one for each file or graph."""
    name = bars[row].name
    n = sum(bar.name == name for bar in bars)
    return name if n == 1 else f"{name} {sum(bar.name == name for bar in bars[: row + 1])} of {n}"


_ROW: Final = 22.0
_NAME_WIDTH: Final = 150.0


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
                name=_numbered(bars, row)[:26],
                y=TOP + row * _ROW,
                x=round(x, 1),
                width=round(width, 1),
                text=f"{took} ms",
                text_x=round(x + width + 5, 1),
                text_anchor="start",
                hover=f"{bar.name} {bar.detail}: {took} ms, from {number(bar.start_ms, 'ms')} ms".replace(" :", ":"),
            )
        )
    bottom = TOP + len(bars) * _ROW
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
        height=bottom + BOTTOM,
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
                    "start_ms": compact(bar.start_ms),
                    "end_ms": compact(bar.end_ms),
                }
                for bar in bars
            ],
            "emulated": emulated,
        },
    )
