"""Latency and memory rows, start-up timelines and the per-token charts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.journal import Journal
from harness.measure.metrics import LOAD_PHASES, METRICS, THERMAL_DOMAINS
from harness.measure.timing import comparable_repetitions, timing_of
from harness.record.run import Cell, RunRecord
from harness.record.runner import Generation
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source
from reports.chart import Panel, Rule, Series, draw
from reports.drawing import Chart
from reports.overview import Figure, cell_label, emulated_figure, figure
from reports.text import clean, counted, number, unit_name
from reports.timeline import Bar, Timeline, timeline

MAX_LINES = 6
"""Repetitions drawn in one chart; the rest is in the data block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    metric: str
    label: str
    unit: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    cell: str
    phone: str
    source_kind: str
    figures: tuple[Figure, ...]
    n_samples: int
    """The fewest samples behind any figure of the row that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """Metrics as columns, cell and phone as rows."""

    table_id: str
    caption: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[MetricRow, ...]


LATENCY_COLUMNS = {
    "ttft_ms": "time to first token",
    "prefill_tps": "prefill",
    "decode_tps": "decode",
    "tpot_ms": "mean gap",
    "itl_p50_ms": "gap p50",
    "itl_p90_ms": "gap p90",
    "itl_p99_ms": "gap p99",
    "itl_max_ms": "gap max",
}
LOAD_COLUMNS = {"load_ms": "whole load"} | {f"load_{phase}_ms": phase.replace("_", " ") for phase in LOAD_PHASES}
MEMORY_COLUMNS = {
    "peak_rss_bytes": "peak of the runner process",
    "steady_rss_bytes": "runner process at the end",
    "of_free_ram_percent": "peak and dma-buf over free RAM",
    "lowest_available_bytes": "least free RAM of the phone",
    "phone_peak_bytes": "peak of the whole phone",
    "phone_steady_bytes": "whole phone at the end",
    "kv_pool_bytes": "KV pool",
    "heap_allocations": "allocations while generating",
}
THERMAL_COLUMNS = {
    f"{moment}_{domain}_celsius": f"{domain} {moment}" for domain in THERMAL_DOMAINS for moment in ("start", "peak")
}


def metric_table(
    table_id: str,
    caption: str,
    labels: dict[str, str],
    measurements: Iterable[Measurement],
    phones: dict[str, str],
    *,
    note: str,
    drop_empty: bool = False,
) -> MetricTable:
    """One row per cell, phone and source. ``drop_empty`` leaves out columns that no row has a value or a reason for."""
    rows: dict[tuple[str, str | None, Source], dict[str, Measurement]] = {}
    cells: dict[tuple[str, str | None, Source], Cell] = {}
    for item in measurements:
        if item.metric in labels and item.serial is not None:
            key = (str(item.cell), item.serial, item.source)
            rows.setdefault(key, {})[item.metric] = item
            cells[key] = item.cell
    names = [
        name
        for name in labels
        if not drop_empty
        or any(name in row and (row[name].value is not None or row[name].reason) for row in rows.values())
    ]
    return MetricTable(
        table_id=table_id,
        caption=caption,
        note=note,
        columns=tuple(
            Column(
                metric=name,
                label=labels[name],
                unit=unit_name(METRICS[name].unit) if name in METRICS else "",
                definition=METRICS[name].definition if name in METRICS else "",
            )
            for name in names
        ),
        rows=tuple(
            MetricRow(
                cell=cell_label(cells[key]),
                phone=clean(f"{phones.get(key[1] or '', '')} {key[1]}".strip()),
                source_kind=key[2].value,
                figures=tuple(_figure(row.get(name), name) for name in names),
                n_samples=min((len(m.samples) for m in row.values() if m.value is not None and m.samples), default=0),
            )
            for key, row in rows.items()
        ),
    )


def _figure(item: Measurement | None, name: str) -> Figure:
    metric = METRICS.get(name)
    unit = metric.unit if metric else ""
    if item is None:
        return figure(None, unit, why="no run of this cell measures it")
    return figure(
        item.value,
        unit,
        run_ids=tuple(clean(run_id) for run_id in item.run_ids),
        why=item.reason or ", ".join(item.refuted_by),
        emulated=emulated_figure(name, item.source),
        interval=item.interval,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRow:
    run_id: str
    prompt: str
    repetition: str
    n_prompt: int
    n_gen: int
    stop: str
    ttft: Figure
    prefill: Figure
    decode: Figure
    p50: Figure
    p99: Figure
    longest: Figure
    emulated: bool


def generation_rows(journal: Journal) -> tuple[GenerationRow, ...]:
    """Every generation that made tokens, warm-ups included and named so."""
    rows = []
    for run in journal.runs:
        for generation in run.log.generations:
            if generation.mode != "generate":
                continue
            timing = timing_of(generation)
            ids = (clean(run.run_id),)
            few = "fewer than two tokens"

            def shown(value: float | None, unit: str, why: str, ids: tuple[str, ...] = ids) -> Figure:
                return figure(value, unit, run_ids=ids, why=why)

            rows.append(
                GenerationRow(
                    run_id=clean(run.run_id),
                    prompt=clean(generation.prompt_id),
                    repetition="warm-up" if generation.warmup else str(generation.repetition),
                    n_prompt=generation.n_prompt,
                    n_gen=len(generation.token_ids),
                    stop=clean(generation.stop),
                    ttft=shown(timing.ttft_ms, "ms", "no token was generated"),
                    prefill=shown(timing.prefill_tps, "tokens/s", "no prefill by chunks"),
                    decode=shown(timing.decode_tps, "tokens/s", few),
                    p50=shown(timing.itl_quantile_ms(0.5), "ms", few),
                    p99=shown(timing.itl_quantile_ms(0.99), "ms", few),
                    longest=shown(timing.itl_quantile_ms(1.0), "ms", few),
                    emulated=run.source is Source.VIRTUAL,
                )
            )
    return tuple(rows)


def run_subtitle(run: RunRecord) -> str:
    return clean(f"{run.cell} · {run.workload} · {run.device.serial}")


def speed_first(journal: Journal) -> list[RunRecord]:
    """Runs that speed is taken from before runs that also wrote logits, which takes time."""
    return sorted(journal.runs, key=lambda run: not comparable_repetitions(run.log.generations))


def timelines(journal: Journal) -> tuple[Timeline, ...]:
    """The load phases of every run that left any."""
    charts = []
    for index, run in enumerate(speed_first(journal)):
        phases = sorted(run.log.phases, key=lambda phase: (phase.start_ns, phase.end_ns))
        origin = phases[0].start_ns if phases else 0
        chart = timeline(
            chart_id=f"startup-{index}",
            title="Start-up",
            subtitle=run_subtitle(run),
            run_id=clean(run.run_id),
            bars=tuple(
                Bar(
                    name=clean(phase.name.replace("_", " "))[:24],
                    detail=clean(phase.detail),
                    start_ms=(phase.start_ns - origin) / 1e6,
                    end_ms=(phase.end_ns - origin) / 1e6,
                )
                for phase in phases
            ),
            emulated=run.source is Source.VIRTUAL,
            synthetic=run.source is Source.SYNTHETIC,
        )
        if chart is not None:
            charts.append(chart)
    return tuple(charts)


def _generated(run: RunRecord) -> list[Generation]:
    return [g for g in run.log.generations if g.mode == "generate" and not g.warmup and len(g.token_ns) >= 2]


def token_charts(journal: Journal, kept: Stamps, *, hover_points: int) -> tuple[Chart, ...]:
    """Gap between tokens over the token's number, one line per repetition. Warm-ups are left out and counted."""
    charts = []
    for index, run in enumerate(speed_first(journal)):
        generations = _generated(run)
        gaps = [timing_of(g).itl_ms for g in generations]
        every_gap = [gap for line in gaps for gap in line]
        if not every_gap:
            continue
        median = statistics.median(every_gap)
        n_warmups = sum(g.warmup and g.mode == "generate" for g in run.log.generations)
        chart = draw(
            chart_id=f"tokens-{index}",
            title="Gap between tokens",
            subtitle=run_subtitle(run),
            summary=(
                f"n = {len(every_gap)} gaps of {counted(len(generations), 'repetition')}; "
                f"median {number(median, 'ms')} ms, smallest {number(min(every_gap), 'ms')} ms, "
                f"largest {number(max(every_gap), 'ms')} ms"
                + (f"; {counted(n_warmups, 'warm-up')} not drawn" if n_warmups else "")
                + (f"; {len(gaps) - MAX_LINES} more repetitions not drawn" if len(gaps) > MAX_LINES else "")
                + "."
            ),
            x_label="token",
            x_unit="",
            panels=(
                Panel(
                    label="gap to the token before",
                    unit="ms",
                    series=tuple(
                        Series(
                            name=clean(f"{g.prompt_id} · {g.repetition}"),
                            x=tuple(float(n) for n in range(2, len(line) + 2)),
                            y=line,
                            run_id=clean(run.run_id),
                            style=style,
                            stamps=_stamps_of(kept, run, g),
                        )
                        for style, (g, line) in enumerate(zip(generations[:MAX_LINES], gaps[:MAX_LINES], strict=True))
                    ),
                    from_zero=True,
                    rules=(Rule(y=median, label=f"median {number(median, 'ms')} ms"),),
                    height=190.0,
                ),
            ),
            hover_points=hover_points,
            emulated=run.source is Source.VIRTUAL,
            synthetic=run.source is Source.SYNTHETIC,
        )
        if chart is not None:
            charts.append(chart)
    return tuple(charts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Per-token stamps of the generations that fit into a budget of values."""

    by_run: dict[str, list[dict[str, Any]]]
    """``token_us``: microseconds; the first counts from the start of the generation, every other one from the token
    before, so that the running sum gives the stamps back to the microsecond."""
    places: dict[tuple[str, str, int, bool], int]
    """Run id, prompt, repetition and whether warm-up, to the place in the run's list"""
    left_out: int
    """Generations that did not fit"""


def stamps(journal: Journal, *, budget: int) -> Stamps:
    by_run: dict[str, list[dict[str, Any]]] = {}
    places: dict[tuple[str, str, int, bool], int] = {}
    left_out = 0
    for run in journal.runs:
        for generation in run.log.generations:
            if not generation.token_ns:
                continue
            if len(generation.token_ns) > budget:
                left_out += 1
                continue
            budget -= len(generation.token_ns)
            whole = [(ns - generation.start_ns) // 1000 for ns in generation.token_ns]
            kept = by_run.setdefault(clean(run.run_id), [])
            places[_place(run, generation)] = len(kept)
            kept.append(
                {
                    "prompt_id": generation.prompt_id,
                    "repetition": generation.repetition,
                    "warmup": generation.warmup,
                    "token_us": [b - a for a, b in zip([0, *whole[:-1]], whole, strict=True)],
                }
            )
    return Stamps(by_run=by_run, places=places, left_out=left_out)


def _place(run: RunRecord, generation: Generation) -> tuple[str, str, int, bool]:
    return clean(run.run_id), generation.prompt_id, generation.repetition, generation.warmup


def _stamps_of(kept: Stamps, run: RunRecord, generation: Generation) -> tuple[str, int] | None:
    place = kept.places.get(_place(run, generation))
    return None if place is None else (clean(run.run_id), place)
