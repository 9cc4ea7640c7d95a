"""Speed as a function of something: of the prompt's length, of the depth in the context; and how gaps are distributed.

Each chart is of one cell on one phone and pools its runs. Only repetitions that speed may be taken from are used: no
warm-ups, nothing that wrote logits or was held back, no run that failed. What could not be drawn is said, from what the
journal holds.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.journal import Journal
from harness.measure.statistics import median_interval
from harness.measure.timing import timing_of
from harness.record.run import RunRecord
from harness.record.runner import Generation
from harness.record.vocabulary import Source, Suite
from reports.chart import Panel, Rule, Series, draw
from reports.drawing import Chart
from reports.overview import cell_label
from reports.scale import nice_ticks, thinned
from reports.text import clean, counted, number

_MAX_BINS: Final = 16
_CURVE_POINTS: Final = 100
INTERVAL: Final = "bars: 95 % interval of the median, BCa bootstrap over repetitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Charts, and why those that are missing could not be drawn."""

    charts: tuple[Chart, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    label: str
    emulated: bool
    synthetic: bool
    pairs: tuple[tuple[RunRecord, Generation], ...]

    @property
    def run_id(self) -> str | None:
        ids = {clean(run.run_id) for run, _ in self.pairs}
        return ids.pop() if len(ids) == 1 else None


def _places(journal: Journal) -> tuple[_Place, ...]:
    """One per cell, artifact, phone and source that has any run without an error; the toy graph is another model."""
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for run in journal.runs:
        if run.error is None and run.workload != Suite.TOY:
            groups.setdefault((run.cell, run.artifact_id, run.device.serial, run.source), []).append(run)
    alike = Counter((runs[0].cell, runs[0].device.serial) for runs in groups.values())
    return tuple(
        _Place(
            label=clean(
                f"{cell_label(runs[0].cell)} on {runs[0].device.serial}"
                + (f", artifact {runs[0].artifact_id}" if alike[runs[0].cell, runs[0].device.serial] > 1 else "")
            ),
            emulated=runs[0].source is Source.VIRTUAL,
            synthetic=runs[0].source is Source.SYNTHETIC,
            pairs=tuple((run, g) for run in runs for g in run.log.generations if _counts(g)),
        )
        for runs in groups.values()
    )


def _counts(generation: Generation) -> bool:
    return (
        generation.mode == "generate"
        and not generation.warmup
        and generation.step_with == "chunk"
        and generation.logits is None
        and not generation.pace_ns
        and bool(generation.token_ns)
    )


def _curve(name: str, groups: dict[float, list[float]], run_id: str | None, *, style: int) -> Series:
    """The median of each group over its key, with interval and number of samples."""
    keys = sorted(groups)
    return Series(
        name=name,
        x=tuple(keys),
        y=tuple(statistics.median(groups[key]) for key in keys),
        run_id=run_id,
        style=style,
        intervals=tuple(median_interval(groups[key]) for key in keys),
        counts=tuple(len(groups[key]) for key in keys),
    )


def _drawn(journal: Journal, what: str, one: Sequence[tuple[_Place, Chart | None, str]]) -> Drawn:
    charts = tuple(chart for _, chart, _ in one if chart is not None)
    missing = tuple(f"{place.label}: {why}" for place, chart, why in one if chart is None)
    if not one:
        failed = sum(run.error is not None for run in journal.runs)
        missing = (
            f"no run without an error ({counted(failed, 'failed run')})" if failed else f"nothing ran: no {what}",
        )
    return Drawn(charts=charts, missing=missing)


def prompt_charts(journal: Journal, *, hover_points: int) -> Drawn:
    """Time to first token and prefill speed over the length of a prompt that begins a text: none of it is cached."""
    found = []
    for index, place in enumerate(_places(journal)):
        ttft: dict[float, list[float]] = {}
        prefill: dict[float, list[float]] = {}
        for _, generation in place.pairs:
            if generation.n_cached:
                continue
            timing = timing_of(generation)
            if timing.ttft_ms is not None:
                ttft.setdefault(float(generation.n_prompt), []).append(timing.ttft_ms)
            if timing.prefill_tps is not None:
                prefill.setdefault(float(generation.n_prompt), []).append(timing.prefill_tps)
        chart = None
        if len(ttft) > 1:
            lengths = sorted(ttft)
            ends = (
                f"{counted(round(length), 'token')}: {number(statistics.median(ttft[length]), 'ms')} ms"
                for length in (lengths[0], lengths[-1])
            )
            chart = draw(
                chart_id=f"prompt-{index}",
                title="Time to first token and prefill over prompt length",
                subtitle=place.label,
                summary=(
                    f"n = {counted(sum(map(len, ttft.values())), 'repetition')} of {len(lengths)} prompt lengths; "
                    f"{', '.join(ends)} "
                    f"to the first token (medians; {INTERVAL})."
                ),
                x_label="prompt length",
                x_unit="tokens",
                panels=(
                    Panel(
                        label="time to first token",
                        unit="ms",
                        series=(_curve("time to first token", ttft, place.run_id, style=0),),
                        height=130.0,
                        from_zero=True,
                    ),
                    Panel(
                        label="prefill",
                        unit="tok/s",
                        series=(_curve("prefill", prefill, place.run_id, style=1),) if prefill else (),
                        height=130.0,
                        from_zero=True,
                    ),
                ),
                hover_points=hover_points,
                emulated=place.emulated,
                synthetic=place.synthetic,
            )
        found.append((place, chart, _one_length(ttft)))
    return _drawn(journal, "prompt was timed", found)


def _one_length(groups: dict[float, list[float]]) -> str:
    if not groups:
        return "no repetition that speed may be taken from: all are warm-ups, wrote logits, were paced or made no token"
    (length, samples), *_ = groups.items()
    return f"all {counted(len(samples), 'repetition')} have one prompt length, {length:.0f} tokens, and two are needed"


def depth_charts(journal: Journal, *, hover_points: int) -> Drawn:
    """Decode speed over the number of tokens that are in the context already, in steps of equal width."""
    found = []
    for index, place in enumerate(_places(journal)):
        gaps = [
            (number_, generation.n_cached + generation.n_prompt + k, gap)
            for number_, (_, generation) in enumerate(place.pairs)
            for k, gap in enumerate(timing_of(generation).itl_ms, start=1)
            if gap > 0
        ]
        depths = [depth for _, depth, _ in gaps]
        groups = _by_depth(gaps) if depths and max(depths) > min(depths) else {}
        chart = None
        if len(groups) > 1:
            ends = (
                f"{number(statistics.median(groups[depth]), 'tok/s')} tok/s around {depth:.0f} tokens"
                for depth in (min(groups), max(groups))
            )
            chart = draw(
                chart_id=f"depth-{index}",
                title="Decode over depth",
                subtitle=place.label,
                summary=(
                    f"n = {counted(len(gaps), 'gap')} of {counted(len(place.pairs), 'repetition')}, in {len(groups)} "
                    f"steps of depth; {', '.join(ends)} ({INTERVAL})."
                ),
                x_label="tokens in the context",
                x_unit="",
                panels=(
                    Panel(
                        label="decode",
                        unit="tok/s",
                        series=(_curve("decode", groups, place.run_id, style=0),),
                        from_zero=True,
                    ),
                ),
                hover_points=hover_points,
                emulated=place.emulated,
                synthetic=place.synthetic,
            )
        why = (
            "no repetition made two tokens"
            if not gaps
            else f"{counted(len(gaps), 'gap')} from {min(depths)} to {max(depths)} tokens of depth: one step only"
        )
        found.append((place, chart, why))
    return _drawn(journal, "token was timed", found)


def _by_depth(gaps: Iterable[tuple[int, int, float]]) -> dict[float, list[float]]:
    """Middle of a step of depth to one speed per repetition: its tokens in the step over their time."""
    gaps = list(gaps)
    low, high = min(depth for _, depth, _ in gaps), max(depth for _, depth, _ in gaps)
    ticks = nice_ticks(0.0, float(high - low), _MAX_BINS, whole=True)
    width = max(1, int(ticks[1] - ticks[0]) if len(ticks) > 1 else high - low + 1)
    spent: dict[tuple[int, int], list[float]] = {}
    for repetition, depth, gap in gaps:
        spent.setdefault(((depth - low) // width, repetition), []).append(gap)
    found: dict[float, list[float]] = {}
    for (step, _), times in sorted(spent.items()):
        middle = low + step * width + (width - 1) / 2
        found.setdefault(middle, []).append(1000 * len(times) / math.fsum(times))
    return found


def distribution_charts(journal: Journal, *, hover_points: int) -> Drawn:
    """Share of the gaps between tokens that are no longer than a time, all repetitions together."""
    found = []
    for index, place in enumerate(_places(journal)):
        gaps = sorted(gap for _, generation in place.pairs for gap in timing_of(generation).itl_ms)
        chart = None
        if len(gaps) > 1:
            kept = thinned(len(gaps), _CURVE_POINTS)
            p50, p90, p99 = (float(np.quantile(gaps, share)) for share in (0.5, 0.9, 0.99))
            chart = draw(
                chart_id=f"gaps-{index}",
                title="Distribution of the gaps between tokens",
                subtitle=place.label,
                summary=(
                    f"n = {counted(len(gaps), 'gap')} of {counted(len(place.pairs), 'repetition')}; "
                    f"p50 {number(p50, 'ms')}, p90 {number(p90, 'ms')}, p99 {number(p99, 'ms')}, "
                    f"largest {number(gaps[-1], 'ms')} ms. No interval: gaps of one repetition are not independent."
                ),
                x_label="gap between tokens",
                x_unit="ms",
                panels=(
                    Panel(
                        label="share of gaps no longer than this",
                        unit="%",
                        series=(
                            Series(
                                name="gaps",
                                x=tuple(gaps[i] for i in kept),
                                y=tuple(100 * (i + 1) / len(gaps) for i in kept),
                                run_id=place.run_id,
                                style=0,
                            ),
                        ),
                        from_zero=True,
                        rules=(Rule(y=50.0, label=f"p50 {number(p50, 'ms')} ms"),),
                    ),
                ),
                hover_points=hover_points,
                emulated=place.emulated,
                synthetic=place.synthetic,
            )
        found.append((place, chart, f"{counted(len(gaps), 'gap')}, and two are needed"))
    return _drawn(journal, "token was timed", found)
