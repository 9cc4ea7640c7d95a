"""Where a model leaves its fp32 original: the first differing step of each generation, and the noise of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.journal import Journal
from harness.measure.quality import SNR_CAP_DB
from harness.record.artifact import ArtifactManifest
from harness.record.comparison import Leg, LogitsComparison
from harness.record.run import Cell
from harness.results.findings import first_divergence
from reports.accuracy import LEG_NAMES, unique_comparisons
from reports.chart import Panel, Series, draw
from reports.drawing import Chart
from reports.overview import Figure, cell_label, figure
from reports.text import clean, number


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceRow:
    """One leg of one cell: the earliest step at which greedy decoding would have left fp32's text."""

    cell: str
    leg: str
    run_id: str
    n_prompts: int
    n_diverged: int
    n_steps: int
    """Decode steps of all prompts"""
    step: Figure
    """Within its prompt, the first is 1"""
    prompt: str
    position: Figure
    margin: Figure


def divergence_rows(journal: Journal) -> tuple[DivergenceRow, ...]:
    groups: dict[tuple[Cell, Leg, str | None], list[LogitsComparison]] = {}
    for item in unique_comparisons(journal):
        if item.leg is not Leg.FP32 and item.phase == "decode" and item.positions:
            groups.setdefault((item.cell, item.leg, item.run_id), []).append(item)
    order = list(Leg)
    rows = []
    for (cell, leg, run_id), items in sorted(groups.items(), key=lambda g: (str(g[0][0]), order.index(g[0][1]))):
        diverged = [(at, item) for item in items if (at := first_divergence(item)) is not None]
        at, first = min(diverged, key=lambda pair: pair[0], default=(0, items[0]))
        ids = () if run_id is None else (clean(run_id),)

        def shown(value: float, unit: str, ids: tuple[str, ...] = ids, some: bool = bool(diverged)) -> Figure:
            return figure(value if some else None, unit, run_ids=ids, why="no prompt leaves it")

        rows.append(
            DivergenceRow(
                cell=cell_label(cell),
                leg=LEG_NAMES[leg],
                run_id=clean(run_id or ""),
                n_prompts=len(items),
                n_diverged=len(diverged),
                n_steps=sum(len(item.positions) for item in items),
                step=shown(at + 1, "count"),
                prompt=clean(first.prompt_id) if diverged else "none",
                position=shown(first.positions[at], "count"),
                margin=shown(first.reference_margin[at], "logits"),
            )
        )
    return tuple(rows)


def layer_charts(manifests: Sequence[ArtifactManifest], *, hover_points: int) -> tuple[tuple[Chart, ...], str]:
    """SNR behind each layer of the compiled graph, as measured on the host at preparation; and why where it was not."""
    series: list[Series] = []
    missing: list[str] = []
    for manifest in manifests:
        name = clean(f"{manifest.name} {manifest.artifact_id}")
        found = manifest.accuracy
        if found is None or not found.layer_snr_db:
            missing.append(f"{name}: its manifest has no per-layer figures (prepared without held-out text)")
            continue
        series.append(
            Series(
                name=f"{name} ({found.n_positions} positions)",
                x=tuple(float(layer) for layer in range(len(found.layer_snr_db))),
                y=tuple(value if abs(value) < SNR_CAP_DB else None for value in found.layer_snr_db),
                run_id=None,
                style=len(series),
            )
        )
    chart = (
        draw(
            chart_id="layers-0",
            title="Signal-to-noise ratio behind each layer",
            subtitle="compiled graph against fp32, both on the host at preparation",
            summary="; ".join(
                f"{line.name}: worst {number(min(known), 'dB')} dB behind layer {line.y.index(min(known))}"
                for line in series
                if (known := [y for y in line.y if y is not None])
            )
            + ". Not measured on the phone: runs pull logits only.",
            x_label="layer",
            x_unit="",
            panels=(Panel(label="residual stream, signal-to-noise ratio", unit="dB", series=tuple(series[:8])),),
            hover_points=hover_points,
        )
        if series
        else None
    )
    if not manifests:
        missing.append("no manifest of an artifact that ran is at hand")
    return (() if chart is None else (chart,)), "; ".join(missing)
