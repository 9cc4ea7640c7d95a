"""Rows of the comparison page: every metric of two sides, its effect, and quality against cost per artifact."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source
from harness.results.compare import Effect, Outcome, Pareto, effect, pair, pareto_views
from harness.results.refute import EMULATED
from reports.chart import Panel, Series, draw
from reports.drawing import Chart
from reports.overview import Figure, figure, metric_label
from reports.render import environment, script_json, write_page
from reports.text import clean, clean_tree, counted, number, short_hash, signed, unit_name

COMPARISON_SCHEMA: Final = "snapgate.comparison/1"
_ORDER: Final = tuple(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    name: str
    journal: Journal
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    metric: str
    definition: str
    family: str
    unit: str
    cells: str
    phones: str
    first: Figure
    second: Figure
    n: str
    outcome: str
    why: str
    relative: str
    relative_interval: str
    delta: str
    delta_interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    side: str
    artifact: str
    cell: str
    phone: str
    quality: Figure
    cost: Figure
    n: str
    front: str
    """``on the front``, or by what it is beaten"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoView:
    title: str
    quality: str
    cost: str
    rows: tuple[CandidateRow, ...]
    chart: Chart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRow:
    name: str
    sessions: str
    cells: str
    phones: str
    artifacts: str
    runtimes: str
    n_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    sides: tuple[SideRow, SideRow]
    effects: tuple[EffectRow, ...]
    counts: tuple[tuple[str, int], ...]
    paretos: tuple[ParetoView, ...]
    synthetic: bool
    emulated: bool


def comparison_view(first: Side, second: Side, *, same_cell: bool) -> ComparisonView:
    effects = [effect(a, b) for a, b in pair(first.measurements, second.measurements, same_cell=same_cell)]
    effects.sort(key=lambda e: _ORDER.index(e.outcome) if e.outcome is not Outcome.WORSE else -1)
    sides = (first, second)
    views = pareto_views([(side.name, side.measurements, side.journal.runs) for side in sides])
    everything = [m for side in sides for m in side.measurements]
    return ComparisonView(
        sides=(_side(first), _side(second)),
        effects=tuple(_effect(e) for e in effects),
        counts=tuple((str(o), n) for o in Outcome if (n := sum(e.outcome is o for e in effects))),
        paretos=tuple(_pareto(view, f"pareto-{index}") for index, view in enumerate(views)),
        synthetic=any(m.source is Source.SYNTHETIC for m in everything),
        emulated=any(m.source is Source.VIRTUAL for m in everything),
    )


def _side(side: Side) -> SideRow:
    runs = side.journal.runs
    cells = dict.fromkeys(str(m.cell) for m in side.measurements)
    shown = [run for run in runs if str(run.cell) in cells]
    return SideRow(
        name=clean(side.name),
        sessions=clean(", ".join(s.session_id for s in side.journal.sessions) or "not recorded"),
        cells=clean(", ".join(cells) or "none"),
        phones=clean(", ".join(dict.fromkeys(f"{r.device.model} {r.device.serial}" for r in shown)) or "none"),
        artifacts=clean(", ".join(dict.fromkeys(short_hash(r.artifact_id) for r in shown)) or "none"),
        runtimes=clean(", ".join(dict.fromkeys(run.runtime for run in shown)) or "none"),
        n_runs=len(shown),
    )


def _figure(item: Measurement | None, metric: str) -> Figure:
    unit = METRICS[metric].unit
    if item is None:
        return figure(None, unit, why="no such measurement")
    return figure(
        item.value,
        unit,
        run_ids=item.run_ids,
        why=item.reason or "",
        emulated=any(text.startswith(EMULATED) for text in item.refuted_by),
        interval=item.interval,
    )


def _effect(e: Effect) -> EffectRow:
    items = [m for m in (e.first, e.second) if m is not None]
    interval, delta = e.relative_interval, e.delta_interval
    return EffectRow(
        metric=e.metric,
        definition=METRICS[e.metric].definition,
        family=str(METRICS[e.metric].family),
        unit=unit_name(METRICS[e.metric].unit),
        cells=clean(" / ".join(dict.fromkeys(str(m.cell) for m in items))),
        phones=clean(" / ".join(dict.fromkeys(m.serial or "no phone" for m in items))),
        first=_figure(e.first, e.metric),
        second=_figure(e.second, e.metric),
        n=" / ".join(str(len(m.samples)) if m is not None else "0" for m in (e.first, e.second)),
        outcome=str(e.outcome),
        why=clean(e.why),
        relative="" if e.relative is None else f"{_percent(e.relative)} %",
        relative_interval="" if interval is None else f"{_percent(interval[0])} … {_percent(interval[1])}",
        delta="" if e.cliffs_delta is None else signed(e.cliffs_delta, decimals=2),
        delta_interval="" if delta is None else f"{signed(delta[0], decimals=2)} … {signed(delta[1], decimals=2)}",
    )


def _percent(value: float) -> str:
    return signed(100 * value, decimals=1 if abs(value) >= 1e-3 or value == 0 else 3)


def _pareto(view: Pareto, chart_id: str) -> ParetoView:
    rows = tuple(
        CandidateRow(
            side=clean(c.side),
            artifact=short_hash(c.artifact_id),
            cell=clean(str(c.cell)),
            phone=clean(c.serial),
            quality=figure(c.quality, METRICS[view.quality].unit, interval=c.quality_interval),
            cost=figure(
                c.cost,
                METRICS[view.cost].unit,
                emulated=any(text.startswith(EMULATED) for text in c.refuted_by),
                interval=c.cost_interval,
            ),
            n=f"{c.n_samples[0]} / {c.n_samples[1]}",
            front=clean(
                ("on the front" if not c.dominated_by else f"beaten by {', '.join(c.dominated_by[:3])}")
                + (f", but refuted: {'; '.join(c.refuted_by)}" if c.refuted_by else "")
            ),
        )
        for c in view.candidates
    )
    cost_unit, quality_unit = unit_name(METRICS[view.cost].unit), unit_name(METRICS[view.quality].unit)
    quality, cost = metric_label(view.quality), metric_label(view.cost)
    factor = 1 / 2**20 if METRICS[view.cost].unit == "bytes" else 1.0
    lines = tuple(
        Series(
            name=clean(f"{c.cell} {short_hash(c.artifact_id)} on {c.serial}"),
            x=(c.quality,),
            y=(c.cost * factor,),
            run_id=None,
            style=index % 6,
            dots=True,
            intervals=(
                None if c.cost_interval is None else (c.cost_interval[0] * factor, c.cost_interval[1] * factor),
            ),
            counts=(c.n_samples[1],),
        )
        for index, c in enumerate(view.candidates)
    )
    n_front = sum(not c.dominated_by for c in view.candidates)
    good = {name: "more" if METRICS[name].better == "higher" else "less" for name in (view.quality, view.cost)}
    best = max if METRICS[view.quality].better == "higher" else min
    best_quality = best(c.quality for c in view.candidates)
    chart = draw(
        chart_id=chart_id,
        title=f"{cost} over {quality}",
        subtitle=f"{good[view.quality]} {quality} and {good[view.cost]} {cost} are better",
        summary=f"{counted(len(view.candidates), 'artifact')} on a phone, {n_front} that nothing beats in both; "
        f"best {quality} {number(best_quality, quality_unit)} {quality_unit}.",
        x_label=quality,
        x_unit=quality_unit,
        panels=(Panel(label=cost, unit=cost_unit, series=lines),),
        emulated=any(EMULATED in text for c in view.candidates for text in c.refuted_by),
    )
    return ParetoView(
        title=f"{quality.capitalize()} against {cost}", quality=quality, cost=cost, rows=rows, chart=chart
    )


def comparison_data(first: Side, second: Side, view: ComparisonView, *, same_cell: bool) -> dict[str, Any]:
    """What the page embeds: unrounded effects, and the charts' values."""
    effects = [effect(a, b) for a, b in pair(first.measurements, second.measurements, same_cell=same_cell)]
    body: dict[str, Any] = clean_tree(
        {
            "schema": COMPARISON_SCHEMA,
            "sides": [dataclasses.asdict(side) for side in view.sides],
            "effects": [
                {
                    "metric": e.metric,
                    "first": None if e.first is None else e.first.value,
                    "second": None if e.second is None else e.second.value,
                    "outcome": str(e.outcome),
                    "relative": e.relative,
                    "relative_interval": e.relative_interval,
                    "cliffs_delta": e.cliffs_delta,
                    "delta_interval": e.delta_interval,
                    "run_ids": [[] if m is None else list(m.run_ids) for m in (e.first, e.second)],
                }
                for e in effects
            ],
            "charts": {p.chart.chart_id: p.chart.data for p in view.paretos if p.chart is not None},
        }
    )
    return body


def write_comparison(path: Path, first: Side, second: Side, *, same_cell: bool = True) -> Path:
    """The page, all or nothing. ``same_cell=False``: each side is one cell, and they are set beside each other."""
    view = comparison_view(first, second, same_cell=same_cell)
    page = environment().get_template("comparison.html.j2").render(
        view=view,
        anchors={},
        short={},
        title="Comparison",
        version=__version__,
        schema=COMPARISON_SCHEMA,
        data=script_json(comparison_data(first, second, view, same_cell=same_cell)),
    )  # fmt: skip
    write_page(path, page)
    return path
