"""Figures without a table of their own elsewhere in the page, by the workload of the runs they come from; and how the
runs of one workload follow each other. A suite that is added later finds its place here by its journal alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.journal import Journal
from harness.measure.memory import peak_rss_bytes
from harness.measure.metrics import METRICS
from harness.measure.thermal import usable_celsius
from harness.measure.timing import load_total_ms, timing_of
from harness.record.run import RunRecord
from harness.record.verdict import Measurement
from harness.record.vocabulary import Family, Source
from reports.chart import Panel, Series, draw
from reports.drawing import Chart
from reports.latency import LATENCY_COLUMNS, LOAD_COLUMNS, MEMORY_COLUMNS, THERMAL_COLUMNS
from reports.overview import Figure, cell_label, emulated_figure, figure
from reports.text import clean, counted, number

MIN_RUNS: Final = 3
"""Runs of one workload, artifact and phone that a line from run to run needs."""

_ELSEWHERE: Final = frozenset(
    {
        *LATENCY_COLUMNS, *LOAD_COLUMNS, *MEMORY_COLUMNS, *THERMAL_COLUMNS,
        *(name for name, metric in METRICS.items() if metric.family is Family.POWER),
        "runs_completed", "prefill_snr_db", "decode_snr_db", "worst_decode_snr_db", "relative_l2", "kl_nats_mean",
        "top1_agreement", "greedy_exact_fraction", "greedy_mismatch_max_margin", "perplexity", "perplexity_fp32",
        "perplexity_graph", "perplexity_over_fp32_percent", "perplexity_over_graph_percent", "three_way_snr_gap_db",
        "prefill_decode_identical", "prompt_sensitive", "non_constant_output",
        "cpu_nodes", "epcontext_nodes_per_graph", "dsp_arch_matches",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRow:
    metric: str
    family: str
    definition: str
    cell: str
    phone: str
    figure: Figure
    n: int
    """Samples behind the figure"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTable:
    workload: str
    """Of the runs, or of several that a figure comes from together"""
    rows: tuple[SuiteRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitesSection:
    tables: tuple[SuiteTable, ...]
    charts: tuple[Chart, ...]


def suites_section(
    journal: Journal, measurements: Sequence[Measurement], phones: dict[str, str], *, hover_points: int
) -> SuitesSection:
    workload_of = {run.run_id: clean(run.workload) for run in journal.runs}
    order = {name: place for place, name in enumerate(METRICS)}
    tables: dict[str, list[SuiteRow]] = {}
    for item in sorted(measurements, key=lambda m: order.get(m.metric, len(order))):
        if item.metric in _ELSEWHERE or item.metric not in METRICS:
            continue
        workloads = dict.fromkeys(workload_of[i] for i in item.run_ids if i in workload_of)
        tables.setdefault(", ".join(workloads) or "no run", []).append(_row(item, phones))
    order_run = {name: place for place, name in enumerate(dict.fromkeys(workload_of.values()))}

    def when(workloads: str) -> tuple[int, ...]:
        """Place of the workloads in the session; last, what no run gave."""
        return tuple(order_run.get(name, len(order_run)) for name in workloads.split(", "))

    return SuitesSection(
        tables=tuple(SuiteTable(workload=name, rows=tuple(tables[name])) for name in sorted(tables, key=when)),
        charts=_charts(journal, hover_points),
    )


def _row(item: Measurement, phones: dict[str, str]) -> SuiteRow:
    metric = METRICS[item.metric]
    return SuiteRow(
        metric=item.metric,
        family=str(metric.family),
        definition=metric.definition,
        cell=cell_label(item.cell),
        phone=clean(f"{phones.get(item.serial or '', '')} {item.serial or ''}".strip()),
        figure=figure(
            item.value,
            metric.unit,
            run_ids=tuple(clean(run_id) for run_id in item.run_ids),
            why=item.reason or ", ".join(item.refuted_by),
            emulated=emulated_figure(item.metric, item.source),
            interval=item.interval,
        ),
        n=len(item.samples),
    )


def _charts(journal: Journal, hover_points: int) -> tuple[Chart, ...]:
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for run in journal.runs:
        if run.error is None:
            key = (run.workload, run.cell, run.artifact_id, run.device.serial, run.source)
            groups.setdefault(key, []).append(run)
    drawn = (
        _rounds(f"rounds-{index}", runs, hover_points)
        for index, runs in enumerate(group for group in groups.values() if len(group) >= MIN_RUNS)
    )
    return tuple(chart for chart in drawn if chart is not None)


def _rounds(chart_id: str, runs: Sequence[RunRecord], hover_points: int) -> Chart | None:
    """Speed, loading, memory and heat of each run, in the order they were made."""
    panels = tuple(
        Panel(
            label=label,
            unit=unit,
            series=(
                Series(
                    name=label,
                    x=tuple(float(place) for place in range(1, len(runs) + 1)),
                    y=values,
                    run_id=None,
                    runs=tuple(clean(run.run_id) for run in runs),
                    style=style,
                ),
            ),
            height=90.0,
        )
        for style, (label, unit, values) in enumerate(
            (
                ("decode, median of its repetitions", "tok/s", tuple(map(_decode_tps, runs))),
                ("whole load", "ms", tuple(load_total_ms(run.log.phases) for run in runs)),
                ("peak of the runner process", "MiB", tuple(map(_peak_mib, runs))),
                ("hottest reading", "°C", tuple(map(_hottest, runs))),
            )
        )
    )
    ends = (
        f"{panel.label} {number(known[0], panel.unit)} to {number(known[-1], panel.unit)} {panel.unit}"
        for panel in panels
        if (known := [y for y in panel.series[0].y if y is not None])
    )
    first = runs[0]
    return draw(
        chart_id=chart_id,
        title="From run to run",
        subtitle=clean(f"{cell_label(first.cell)} · {first.workload} · {first.device.serial}"),
        summary=f"{counted(len(runs), 'run')}, first to last: {'; '.join(ends)}. No run is left out but failed ones.",
        x_label="run",
        x_unit="",
        panels=panels,
        hover_points=hover_points,
        emulated=first.source is Source.VIRTUAL,
        synthetic=first.source is Source.SYNTHETIC,
    )


def _decode_tps(run: RunRecord) -> float | None:
    speeds = [
        speed
        for generation in run.log.generations
        if not generation.warmup and (speed := timing_of(generation).decode_tps) is not None
    ]
    return statistics.median(speeds) if speeds else None


def _peak_mib(run: RunRecord) -> float | None:
    peak = peak_rss_bytes(run.log.memory)
    return None if peak is None else peak / 2**20


def _hottest(run: RunRecord) -> float | None:
    return max(
        (v for s in run.sensors if s.unit == "celsius" for v in s.values if v is not None and usable_celsius(v)),
        default=None,
    )
