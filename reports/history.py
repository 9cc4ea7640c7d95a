"""Rows of the history page: one chart per series that has at least two sessions, and every change of level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.record.vocabulary import Source
from harness.results.history import MIN_POINTS, MIN_SEGMENT, LevelChange, Point, Series
from reports.chart import Band, Mark, Panel, draw
from reports.chart import Series as Line
from reports.drawing import Chart
from reports.overview import emulated_figure, figure
from reports.render import environment, script_json, write_page
from reports.text import clean, clean_tree, counted, moment, number, short_hash, signed, unit_name

HISTORY_SCHEMA: Final = "snapgate.history/1"
MAX_CHARTS: Final = 120
_FACTOR: Final = {"bytes": 1 / 2**20}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    metric: str
    cell: str
    phone: str
    kind: str
    """better, worse or moved"""
    before: str
    after: str
    unit: str
    relative: str
    levels: str
    first_run: str
    since: str
    artifact: str
    known: tuple[str, ...]
    chart_id: str
    """Empty when the series is not drawn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    number: int
    session_id: str
    started_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    charts: tuple[Chart, ...]
    changes: tuple[ChangeRow, ...]
    sessions: tuple[SessionRow, ...]
    n_series: int
    n_short: int
    """Series of a single session"""
    n_undrawn: int
    emulated: bool
    synthetic: bool


def history_view(all_series: Sequence[Series]) -> HistoryView:
    """Series with changes are drawn first, those that became worse before the others."""
    stamps = {p.session_id: p.started_at for series in all_series for p in series.points}
    ordered = sorted(stamps, key=lambda session: (stamps[session], session))
    numbers = {session: index for index, session in enumerate(ordered, start=1)}
    long = [series for series in all_series if len(series.points) > 1]
    long.sort(key=lambda series: (-sum(_kind(series, c) == "worse" for c in series.changes), -len(series.changes)))
    charts, rows = [], []
    for index, series in enumerate(long):
        chart = _chart(series, f"trend-{index}", numbers) if index < MAX_CHARTS else None
        if chart is not None:
            charts.append(chart)
        rows += [_change(series, change, chart.chart_id if chart else "") for change in series.changes]
    return HistoryView(
        charts=tuple(charts),
        changes=tuple(sorted(rows, key=lambda row: (row.kind != "worse", row.since), reverse=False)),
        sessions=tuple(
            SessionRow(number=numbers[s], session_id=clean(s), started_at=moment(stamps[s])) for s in ordered
        ),
        n_series=len(all_series),
        n_short=len(all_series) - len(long),
        n_undrawn=len(long) - len(charts),
        emulated=any(series.source == str(Source.VIRTUAL) for series in all_series),
        synthetic=any(series.source == str(Source.SYNTHETIC) for series in all_series),
    )


def _chart(series: Series, chart_id: str, numbers: dict[str, int]) -> Chart | None:
    factor = _FACTOR.get(series.unit, 1.0)
    unit = unit_name(series.unit)
    x = tuple(float(numbers[point.session_id]) for point in series.points)

    def values(low: bool) -> tuple[float | None, ...]:
        ends = (point.ci_low if low else point.ci_high for point in series.points)
        return tuple(None if end is None else end * factor for end in ends)

    lines = [
        Line(name=series.metric, x=x, y=tuple(p.value * factor for p in series.points), run_id=None, style=0),
    ]
    if any(point.ci_low is not None for point in series.points):
        lines += [
            Line(name="95 % interval, low", x=x, y=values(True), run_id=None, style=6),
            Line(name="95 % interval, high", x=x, y=values(False), run_id=None, style=6),
        ]
    refuted = [point for point in series.points if point.refuted_by]
    if refuted and series.n_left_out:
        lines.append(
            Line(
                name="refuted, not looked at",
                x=tuple(float(numbers[point.session_id]) for point in refuted),
                y=tuple(point.value * factor for point in refuted),
                run_id=None,
                style=1,
                dots=True,
            )
        )
    moved = [numbers[change.first.session_id] - 0.5 for change in series.changes]
    other = [
        numbers[b.session_id] - 0.5
        for a, b in zip(series.points, series.points[1:], strict=False)
        if a.artifact_id != b.artifact_id
    ]
    first, last = series.points[0], series.points[-1]
    summary = (
        f"{counted(len(series.points), 'session')} from {moment(first.started_at)} to {moment(last.started_at)}; "
        f"last {number(last.value * factor, unit)} {unit}; {counted(len(series.changes), 'change')} of level"
        + "".join(
            f"; from {_amount(c.before, series)} to {_amount(c.after, series)} at run {clean(c.first_run)}"
            for c in series.changes
        )
        + (f"; {counted(series.n_left_out, 'refuted session')} not looked at" if series.n_left_out else "")
        + (
            ""
            if len(series.points) - series.n_left_out >= MIN_POINTS
            else f"; too few for changes: {MIN_POINTS} are needed"
        )
        + "."
    )
    return draw(
        chart_id=chart_id,
        title=series.metric,
        subtitle=f"{clean(series.cell)} · {_phone(series)}",
        summary=summary,
        x_label="session",
        x_unit="",
        panels=(Panel(label=series.metric, unit=unit, series=tuple(lines)),),
        bands=(
            *(Band(start=at, end=at + 0.04, kind="change") for at in moved),
            *(Band(start=at, end=at + 0.02, kind="artifact") for at in other),
        ),
        marks=tuple(
            Mark(at=numbers[change.first.session_id] - 0.5, label=clean(note)[:28])
            for change in series.changes
            for note in change.known[:1]
        ),
        hover_points=60,
        emulated=series.source == str(Source.VIRTUAL),
        synthetic=series.source == str(Source.SYNTHETIC),
    )


def _amount(value: float, series: Series) -> str:
    return f"{figure(value, series.unit).text} {unit_name(series.unit)}"


def _phone(series: Series) -> str:
    if not series.serial:
        return "no phone"
    return clean(f"{series.phone} {series.serial}".strip())


def _change(series: Series, change: LevelChange, chart_id: str) -> ChangeRow:
    relative = change.relative
    return ChangeRow(
        metric=series.metric,
        cell=clean(series.cell),
        phone=_phone(series),
        kind=_kind(series, change),
        before=figure(change.before, series.unit).text,
        after=figure(change.after, series.unit).text,
        unit=unit_name(series.unit),
        relative="from zero" if relative is None else f"{signed(100 * relative, decimals=1)} %",
        levels=f"{change.n_before} before, {change.n_after} after",
        first_run=clean(change.first_run),
        since=moment(change.first.started_at),
        artifact=_artifact(change.last, change.first),
        known=tuple(clean(note) for note in change.known),
        chart_id=chart_id,
    )


def _kind(series: Series, change: LevelChange) -> str:
    """An emulator's speed, memory and heat are neither better nor worse."""
    if change.better is None or emulated_figure(series.metric, Source(series.source)):
        return "moved"
    return "better" if change.better else "worse"


def _artifact(last: Point, first: Point) -> str:
    if last.artifact_id == first.artifact_id:
        return f"the same, {short_hash(first.artifact_id)}"
    return f"{short_hash(last.artifact_id)} → {short_hash(first.artifact_id)}"


def history_data(all_series: Sequence[Series]) -> dict[str, Any]:
    """What the page embeds: every point of every series, and the changes."""
    body: dict[str, Any] = clean_tree(
        {
            "schema": HISTORY_SCHEMA,
            "series": [
                {
                    "metric": series.metric,
                    "unit": series.unit,
                    "cell": series.cell,
                    "serial": series.serial,
                    "source": series.source,
                    "sessions": [point.session_id for point in series.points],
                    "values": [point.value for point in series.points],
                    "changes": [
                        {
                            "first_run": change.first_run,
                            "session": change.first.session_id,
                            "before": change.before,
                            "after": change.after,
                            "known": list(change.known),
                        }
                        for change in series.changes
                    ],
                }
                for series in all_series
            ],
        }
    )
    return body


def write_history(path: Path, all_series: Sequence[Series], *, title: str = "History") -> Path:
    """The page, all or nothing."""
    view = history_view(all_series)
    page = (
        environment()
        .get_template("history.html.j2")
        .render(
            view=view,
            anchors={},
            short={},
            title=title,
            version=__version__,
            schema=HISTORY_SCHEMA,
            min_points=MIN_POINTS,
            min_segment=MIN_SEGMENT,
            data=script_json({**history_data(all_series), "charts": {c.chart_id: c.data for c in view.charts}}),
        )
    )
    write_page(path, page)
    return path
