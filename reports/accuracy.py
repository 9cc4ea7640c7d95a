"""Accuracy rows: the triangle of fp32, compiled graph and phone, and the charts of the signal-to-noise ratio."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.journal import Journal
from harness.measure.quality import NO_TOKEN, SNR_CAP_DB, perplexity
from harness.record.comparison import Leg, LogitsComparison, WindowScores
from harness.record.run import Cell
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source
from reports.chart import Band, Panel, Series, draw
from reports.drawing import Chart
from reports.overview import Figure, cell_label, figure
from reports.text import clean, counted, number

LEG_NAMES = {Leg.FP32: "fp32", Leg.GRAPH: "graph, host", Leg.PHONE: "phone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityRow:
    """One phone beside the host legs on the windows that all of them scored; or the host legs alone."""

    cell: str
    what: str
    run_ids: tuple[str, ...]
    """Empty for a row of the host alone."""
    n_windows: int
    n_tokens: int
    context: int
    corpus: str
    fp32: Figure
    graph: Figure
    phone: Figure
    graph_gap: Figure
    """Percent above fp32, of the compiled graph on the host"""
    phone_gap: Figure
    """Percent above fp32, of the phone"""
    phone_over_graph: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsRow:
    cell: str
    phase: str
    leg: str
    run_ids: tuple[str, ...]
    n: int
    n_prompts: int
    snr_median: Figure
    snr_worst: Figure
    relative_l2: Figure
    top1: Figure
    top1_count: str
    kl_mean: Figure
    kl_max: Figure
    n_clear_mismatches: int
    """Positions where the argmax differs although fp32's own top-2 margin is 0.1 or more"""
    widest_mismatch: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchRow:
    cell: str
    leg: str
    run_id: str
    prompt: str
    phase: str
    position: int
    expected: int
    found: str
    margin: Figure


_PHONE_STYLES = (0, 2, 3, 4, 5)
CLEAR_MARGIN = 0.1
"""fp32 logits: below this the model itself is undecided between its two best tokens."""


def perplexity_rows(journal: Journal, measurements: Sequence[Measurement]) -> tuple[PerplexityRow, ...]:
    """Per cell and phone the judged figures, all legs on the windows that all of them scored; then per cell the host
    legs on all windows they scored."""
    places: dict[tuple[Cell, str], dict[str, Measurement]] = {}
    for item in measurements:
        if item.serial is not None and item.metric.startswith("perplexity"):
            places.setdefault((item.cell, item.serial), {})[item.metric] = item
    rows = [_phone_row(journal, cell, measured) for (cell, _), measured in places.items() if "perplexity" in measured]
    for cell in dict.fromkeys(scores.cell for scores in journal.windows):
        rows += _host_rows(journal, cell)
    return tuple(rows)


def _phone_row(journal: Journal, cell: Cell, measured: dict[str, Measurement]) -> PerplexityRow:
    phone = measured["perplexity"]
    ids = tuple(clean(run_id) for run_id in phone.run_ids)
    scored = [s for s in journal.windows if s.run_id in phone.run_ids]

    def shown(metric: str, unit: str, leg: Leg) -> Figure:
        item = measured.get(metric)
        why = phone.reason or f"no {LEG_NAMES[leg]} scores of these windows in the journal"
        if item is None:
            return figure(None, unit, why=why)
        decimals = 3 if unit == "percent" else None
        return figure(item.value, unit, run_ids=ids, why=item.reason or why, interval=item.interval, decimals=decimals)

    fp32, graph = measured.get("perplexity_fp32"), measured.get("perplexity_graph")
    both = fp32 is not None and graph is not None and fp32.value and graph.value is not None
    return PerplexityRow(
        cell=cell_label(cell),
        what="the windows all three scored",
        run_ids=ids,
        n_windows=len(phone.samples),
        n_tokens=sum(n for s in scored for n in s.n_scored),
        context=scored[0].context_length if scored else 0,
        corpus=clean(scored[0].corpus_sha256[:12]) if scored else "",
        fp32=shown("perplexity_fp32", "ppl", Leg.FP32),
        graph=shown("perplexity_graph", "ppl", Leg.GRAPH),
        phone=shown("perplexity", "ppl", Leg.PHONE),
        graph_gap=gap_figure(graph.value if both and graph else None, fp32.value if both and fp32 else None),
        phone_gap=shown("perplexity_over_fp32_percent", "percent", Leg.FP32),
        phone_over_graph=shown("perplexity_over_graph_percent", "percent", Leg.GRAPH),
    )


def _host_rows(journal: Journal, cell: Cell) -> list[PerplexityRow]:
    """One row per corpus and context length that the host scored more windows of than the phone did."""
    rows = []
    on_host = [s for s in journal.windows if s.cell == cell and s.leg is not Leg.PHONE]
    for corpus, context in dict.fromkeys((s.corpus_sha256, s.context_length) for s in on_host):
        legs: dict[Leg, WindowScores] = {}
        for scores in on_host:
            if (scores.corpus_sha256, scores.context_length) == (corpus, context):
                best = legs.get(scores.leg)
                if best is None or len(scores.window_ids) > len(best.window_ids):
                    legs[scores.leg] = scores
        windows = frozenset.intersection(*(frozenset(s.window_ids) for s in legs.values()))
        phone = {w for s in journal.windows if s.cell == cell and s.leg is Leg.PHONE for w in s.window_ids}
        if not windows - phone:
            continue
        values = {leg: perplexity_over(scores, windows) for leg, scores in legs.items()}
        fp32, graph = (found[0] if (found := values.get(leg)) else None for leg in (Leg.FP32, Leg.GRAPH))
        rows.append(
            PerplexityRow(
                cell=cell_label(cell),
                what="all windows that the host scored",
                run_ids=(),
                n_windows=len(windows),
                n_tokens=max((found[1] for found in values.values() if found), default=0),
                context=context,
                corpus=clean(corpus[:12]),
                fp32=figure(fp32, "ppl", why="no fp32 scores in the journal"),
                graph=figure(graph, "ppl", why="no scores of the compiled graph in the journal"),
                phone=figure(None, "ppl", why="the phone did not score all of these windows"),
                graph_gap=gap_figure(graph, fp32),
                phone_gap=figure(None, "percent", why="the phone did not score all of these windows"),
                phone_over_graph=figure(None, "percent", why="the phone did not score all of these windows"),
            )
        )
    return rows


def perplexity_over(scores: WindowScores, windows: frozenset[int]) -> tuple[float, int] | None:
    """Perplexity over ``windows`` alone and the number of scored tokens; None when nothing was scored."""
    picked = [
        (nll, n)
        for window, nll, n in zip(scores.window_ids, scores.nll_sum, scores.n_scored, strict=True)
        if window in windows
    ]
    n_scored = sum(n for _, n in picked)
    value = perplexity(_total([nll for nll, _ in picked]), n_scored)
    return None if value is None else (value, n_scored)


def gap_figure(value: float | None, base: float | None) -> Figure:
    if value is None or not base:
        return figure(None, "percent", why="one of the two is not measured")
    return figure(100 * (value / base - 1), "percent", decimals=3)


def unique_comparisons(journal: Journal) -> tuple[LogitsComparison, ...]:
    """Without repeats of a host leg: every run of a cell may have journalled the same one."""
    kept: dict[tuple[object, ...], LogitsComparison] = {}
    for item in journal.logits:
        kept.setdefault((item.cell, item.leg, item.run_id, item.reference_id, item.prompt_id, item.phase), item)
    return tuple(kept.values())


def logits_rows(journal: Journal) -> tuple[LogitsRow, ...]:
    """Per cell, phase and leg, all prompts pooled; the host leg directly above the phone it is to be compared with."""
    groups: dict[tuple[Cell, str, Leg], list[LogitsComparison]] = {}
    for item in unique_comparisons(journal):
        groups.setdefault((item.cell, item.phase, item.leg), []).append(item)
    legs = list(Leg)
    phases = ("prefill", "decode")
    cells = list(dict.fromkeys(item.cell for item in journal.logits))

    def key(group: tuple[Cell, str, Leg]) -> tuple[int, int, int]:
        cell, phase, leg = group
        return (cells.index(cell), phases.index(phase) if phase in phases else len(phases), legs.index(leg))

    return tuple(_logits_row(*group, groups[group]) for group in sorted(groups, key=key))


def _total(values: Sequence[float]) -> float:
    """Exact; NaN where the values have no sum."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan


def _logits_row(cell: Cell, phase: str, leg: Leg, items: list[LogitsComparison]) -> LogitsRow:
    ids = tuple(dict.fromkeys(clean(item.run_id) for item in items if item.run_id is not None))
    snr = [value for item in items for value in item.snr_db]
    relative = [value for item in items for value in item.relative_l2]
    kl = [value for item in items for value in item.kl_nats]
    pairs = [
        (found, expected, margin)
        for item in items
        for found, expected, margin in zip(item.argmax, item.reference_argmax, item.reference_margin, strict=True)
    ]
    wrong = [margin for found, expected, margin in pairs if found != expected or found == NO_TOKEN]
    empty = "no position was compared"

    def shown(values: Sequence[float], pick: Callable[[Sequence[float]], float], unit: str) -> Figure:
        return figure(pick(values) if values else None, unit, run_ids=ids, why=empty)

    return LogitsRow(
        cell=cell_label(cell),
        phase=clean(phase),
        leg=LEG_NAMES[leg],
        run_ids=ids,
        n=len(snr),
        n_prompts=len({item.prompt_id for item in items}),
        snr_median=shown(snr, statistics.median, "dB"),
        snr_worst=shown(snr, min, "dB"),
        relative_l2=shown(relative, statistics.median, "ratio"),
        top1=figure(1 - len(wrong) / len(pairs) if pairs else None, "fraction", run_ids=ids, why=empty),
        top1_count=f"{len(pairs) - len(wrong)}/{len(pairs)}",
        kl_mean=shown(kl, lambda values: _total(values) / len(values), "nats"),
        kl_max=shown(kl, max, "nats"),
        n_clear_mismatches=sum(margin >= CLEAR_MARGIN for margin in wrong),
        widest_mismatch=figure(max(wrong, default=None), "logits", run_ids=ids, why="no position differs"),
    )


def mismatch_rows(journal: Journal, *, keep: int = 12) -> tuple[tuple[MismatchRow, ...], int]:
    """The mismatches with the widest margins, and how many more there are."""
    found = [
        (item, index)
        for item in unique_comparisons(journal)
        if item.leg is not Leg.FP32
        for index, (a, b) in enumerate(zip(item.argmax, item.reference_argmax, strict=True))
        if a != b or a == NO_TOKEN
    ]
    found.sort(key=lambda pair: -pair[0].reference_margin[pair[1]])
    rows = tuple(
        MismatchRow(
            cell=cell_label(item.cell),
            leg=LEG_NAMES[item.leg],
            run_id=clean(item.run_id or ""),
            prompt=clean(item.prompt_id),
            phase=clean(item.phase),
            position=item.positions[index],
            expected=item.reference_argmax[index],
            found="none (not finite)" if item.argmax[index] == NO_TOKEN else str(item.argmax[index]),
            margin=figure(item.reference_margin[index], "logits"),
        )
        for item, index in found[:keep]
    )
    return rows, len(found) - len(rows)


def snr_charts(journal: Journal, *, hover_points: int) -> tuple[Chart, ...]:
    """Per cell and prompt: SNR over the position in the context, phone and host leg, prefill and decode."""
    sources = {run.run_id: run.source for run in journal.runs}
    serials = {run.run_id: clean(run.device.serial) for run in journal.runs}
    groups: dict[tuple[Cell, str], list[LogitsComparison]] = {}
    for item in unique_comparisons(journal):
        if item.leg is not Leg.FP32 and item.positions:
            groups.setdefault((item.cell, item.prompt_id), []).append(item)
    charts = []
    for index, ((cell, prompt), items) in enumerate(groups.items()):
        series = []
        n_phones = 0
        for (leg, run_id), parts in _by_leg(items).items():
            style = 1 if leg is Leg.GRAPH else _PHONE_STYLES[n_phones % len(_PHONE_STYLES)]
            n_phones += leg is Leg.PHONE
            points = sorted(
                (position, snr) for part in parts for position, snr in zip(part.positions, part.snr_db, strict=True)
            )
            series.append(
                Series(
                    name=f"{LEG_NAMES[leg]} {serials.get(run_id or '', '')}".strip(),
                    x=tuple(float(position) for position, _ in points),
                    y=tuple(snr if abs(snr) < SNR_CAP_DB else None for _, snr in points),
                    run_id=None if run_id is None else clean(run_id),
                    style=style,
                )
            )
        found = {sources[item.run_id] for item in items if item.run_id in sources}
        decode = [p for item in items if item.phase == "decode" for p in item.positions]
        chart = draw(
            chart_id=f"snr-{index}",
            title="Logits against fp32",
            subtitle=clean(f"{cell} · prompt {prompt}"),
            summary=_snr_summary(series, items),
            x_label="position in the context",
            x_unit="",
            panels=(Panel(label="signal-to-noise ratio", unit="dB", series=tuple(series[:8]), height=190.0),),
            bands=(Band(start=min(decode), end=max(decode), kind="decode"),) if decode else (),
            hover_points=hover_points,
            emulated=False,
            synthetic=Source.SYNTHETIC in found,
        )
        if chart is not None:
            charts.append(chart)
    return tuple(charts)


def _by_leg(items: list[LogitsComparison]) -> dict[tuple[Leg, str | None], list[LogitsComparison]]:
    groups: dict[tuple[Leg, str | None], list[LogitsComparison]] = {}
    for item in sorted(items, key=lambda i: list(Leg).index(i.leg)):
        groups.setdefault((item.leg, item.run_id), []).append(item)
    return groups


def _snr_summary(series: Sequence[Series], items: list[LogitsComparison]) -> str:
    parts = []
    for line in series:
        known = [y for y in line.y if y is not None]
        if known:
            parts.append(
                f"{line.name}: median {number(statistics.median(known), 'dB')} dB, "
                f"smallest {number(min(known), 'dB')} dB (n = {len(known)})"
            )
    values = [snr for item in items for snr in item.snr_db]
    for n, what in (
        (sum(snr >= SNR_CAP_DB for snr in values), "equal to the bit and not drawn"),
        (sum(snr <= -SNR_CAP_DB for snr in values), "not finite and not drawn"),
    ):
        if n:
            parts.append(f"{counted(n, 'position')} {what}")
    return "; ".join(parts) + "." if parts else ""
