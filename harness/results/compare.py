"""Two sides beside each other: effect sizes with intervals, and which artifacts nothing beats.

A side is a journal, or one cell or phone of it. A metric of repetitions is compared by the ratio of its medians, with a
95 % percentile bootstrap interval over both sides' samples, and by Cliff's delta (Cliff 1993): the probability that a
sample of the second side exceeds one of the first, minus the probability of the opposite. Exact metrics are compared by
their values, and by their intervals where they have them; perplexities window by window (Student's t interval of the
mean log ratio). A refuted figure is shown and never called better or worse.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from harness.errors import UserError
from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.measure.statistics import CONFIDENCE, mean_interval
from harness.record.comparison import LogitsComparison, WindowScores
from harness.record.run import Cell, RunRecord
from harness.record.verdict import Measurement
from harness.record.vocabulary import Family

MIN_SAMPLES: Final = 5
"""On each side; with fewer the bootstrap says too much."""
_RESAMPLES: Final = 4999
_SEED: Final = 20260101
QUALITY: Final = ("perplexity_over_fp32_percent", "kl_nats_mean", "decode_snr_db")
"""The first that any artifact has is the measure of quality."""
PER_WINDOW: Final = ("perplexity", "perplexity_fp32", "perplexity_graph")
"""One sample per held-out window, in the same order on both sides"""
COSTS: Final = (
    "decode_tps", "prefill_tps", "ttft_ms", "peak_rss_bytes",
    *(name for name, metric in METRICS.items() if metric.family is Family.POWER),
)  # fmt: skip


class Outcome(StrEnum):
    BETTER = "better"
    """The second side is"""
    WORSE = "worse"
    SAME = "same"
    """Equal values of an exact metric"""
    MOVED = "moved"
    """Differs, and no direction is good"""
    UNDECIDED = "undecided"
    """The interval holds no difference, or there are too few samples"""
    REFUTED = "refuted"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    metric: str
    first: Measurement | None
    second: Measurement | None
    outcome: Outcome
    why: str
    relative: float | None
    """(second - first) / |first| of the values; None where first is 0 or one is missing"""
    relative_interval: tuple[float, float] | None
    cliffs_delta: float | None
    delta_interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One artifact on one phone, as a point of the Pareto view."""

    side: str
    artifact_id: str
    cell: Cell
    serial: str
    quality: float
    cost: float
    quality_interval: tuple[float, float] | None
    cost_interval: tuple[float, float] | None
    n_samples: tuple[int, int]
    """Behind quality and cost"""
    refuted_by: tuple[str, ...]
    dominated_by: tuple[str, ...]
    """Artifact ids (with the phone) that are at least as good in both, and better in one; empty: on the front.
    A refuted figure beats no other than refuted ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto:
    quality: str
    cost: str
    candidates: tuple[Candidate, ...]


def pair(
    first: Iterable[Measurement], second: Iterable[Measurement], *, same_cell: bool = True
) -> list[tuple[Measurement | None, Measurement | None]]:
    """Measurements that belong together: same metric, and same cell unless the sides are single cells. Where a side has
    one phone for them the phone may differ, else serials must be equal."""

    def keyed(items: Iterable[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
        found: dict[tuple[str, str], list[Measurement]] = {}
        for item in items:
            found.setdefault((str(item.cell) if same_cell else "", item.metric), []).append(item)
        return found

    left, right = keyed(first), keyed(second)
    order = {name: index for index, name in enumerate(METRICS)}
    pairs: list[tuple[Measurement | None, Measurement | None]] = []
    for key in sorted(set(left) | set(right), key=lambda k: (k[0], order[k[1]])):
        ours, theirs = left.get(key, []), right.get(key, [])
        if len(ours) == 1 and len(theirs) == 1:
            pairs.append((ours[0], theirs[0]))
            continue
        by_serial = {item.serial: item for item in theirs}
        pairs += [(item, by_serial.pop(item.serial, None)) for item in ours]
        pairs += [(None, item) for item in by_serial.values()]
    return pairs


def effect(first: Measurement | None, second: Measurement | None) -> Effect:
    """How the second measurement of a metric differs from the first."""
    one = first or second
    if one is None:
        raise ValueError("an effect needs a measurement")
    a, b = (None if m is None else m.value for m in (first, second))
    relative = None if a is None or b is None or a == 0 or not math.isfinite(a * b) else (b - a) / abs(a)
    relative_interval = delta = delta_interval = None
    if first is not None and second is not None and METRICS[one.metric].sampled:
        relative_interval, delta, delta_interval = _sampled(first, second)
    outcome, why = _outcome(first, second, relative_interval)
    return Effect(
        metric=one.metric,
        first=first,
        second=second,
        outcome=outcome,
        why=why,
        relative=relative,
        relative_interval=relative_interval,
        cliffs_delta=delta,
        delta_interval=delta_interval,
    )


def cliffs_delta(first: Sequence[float], second: Sequence[float]) -> float:
    """P(second > first) - P(second < first), between -1 and 1."""
    difference = np.subtract.outer(np.asarray(second), np.asarray(first))
    return float(np.sign(difference).mean())


def _sampled(
    first: Measurement, second: Measurement
) -> tuple[tuple[float, float] | None, float | None, tuple[float, float] | None]:
    x, y = np.asarray(first.samples), np.asarray(second.samples)
    if min(len(x), len(y)) < MIN_SAMPLES or not (np.isfinite(x).all() and np.isfinite(y).all()) or np.median(x) <= 0:
        return None, None, None
    seed = int.from_bytes(hashlib.sha256(repr((_SEED, first.samples, second.samples)).encode()).digest()[:8])
    rng = np.random.default_rng(seed)
    xs = x[rng.integers(0, len(x), (_RESAMPLES, len(x)))]
    ys = y[rng.integers(0, len(y), (_RESAMPLES, len(y)))]
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    ratios = np.median(ys, axis=1) / np.median(xs, axis=1) - 1
    low, high = (float(q) for q in np.quantile(ratios, tails))
    delta = cliffs_delta(first.samples, second.samples)
    return (low, high), delta, _delta_interval(x, y, delta)


def _delta_interval(x: NDArray[np.float64], y: NDArray[np.float64], delta: float) -> tuple[float, float]:
    """Cliff's own asymmetric interval, from the unbiased variance of the dominance matrix; kept within -1 and 1."""
    n, m = len(x), len(y)
    matrix = np.sign(np.subtract.outer(y, x))
    rows = ((matrix.mean(axis=1) - delta) ** 2).sum()
    columns = ((matrix.mean(axis=0) - delta) ** 2).sum()
    cells = ((matrix - delta) ** 2).sum()
    variance = (n * n * rows + m * m * columns - cells) / (n * m * (n - 1) * (m - 1))
    variance = max(float(variance), (1 - delta**2) / (n * m - 1))
    t = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    if abs(delta) == 1.0:  # Feng and Cliff 2004: the variance estimate vanishes; bounded by the rule of the sample size
        edge = (min(n, m) - t * t) / (min(n, m) + t * t)
        return (edge, 1.0) if delta > 0 else (-1.0, -edge)
    spread = t * math.sqrt(variance) * math.sqrt((1 - delta**2) ** 2 + t * t * variance)
    centre, scale = delta - delta**3, 1 - delta**2 + t * t * variance
    return max(-1.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def _outcome(
    first: Measurement | None, second: Measurement | None, interval: tuple[float, float] | None
) -> tuple[Outcome, str]:
    for side, item in (("first", first), ("second", second)):
        if item is None:
            return Outcome.MISSING, f"not measured on the {side} side"
        if item.value is None or not math.isfinite(item.value):
            return Outcome.MISSING, f"not measured on the {side} side: {item.reason or 'no reason recorded'}"
    if first is None or second is None or first.value is None or second.value is None:
        return Outcome.MISSING, "not measured"
    refuted = tuple(dict.fromkeys((*first.refuted_by, *second.refuted_by)))
    if refuted:
        return Outcome.REFUTED, "; ".join(refuted)
    better = METRICS[first.metric].better
    up = Outcome.MOVED if better == "equal" else Outcome.BETTER if better == "higher" else Outcome.WORSE
    down = Outcome.MOVED if better == "equal" else Outcome.WORSE if better == "higher" else Outcome.BETTER
    if METRICS[first.metric].sampled:
        if interval is None:
            return Outcome.UNDECIDED, f"{MIN_SAMPLES} samples on each side are needed"
        if interval[0] > 0 or interval[1] < 0:
            return (up if interval[0] > 0 else down), "the 95 % interval of the ratio leaves out no change"
        return Outcome.UNDECIDED, "the 95 % interval of the ratio holds no change"
    if first.value == second.value:
        return Outcome.SAME, "equal"
    wanted = up if second.value > first.value else down
    if first.metric in PER_WINDOW and len(first.samples) == len(second.samples) >= MIN_SAMPLES:
        ratio = mean_interval([math.log(b / a) for a, b in zip(first.samples, second.samples, strict=True)])
        if ratio is not None:
            outside = ratio[0] > 0 or ratio[1] < 0
            what = f"paired over {len(first.samples)} windows, the 95 % interval of the ratio"
            return (
                (wanted, f"{what} leaves out no change") if outside else (Outcome.UNDECIDED, f"{what} holds no change")
            )
    if first.interval is not None and second.interval is not None:
        if first.interval[1] < second.interval[0] or second.interval[1] < first.interval[0]:
            return wanted, "the 95 % intervals are apart"
        return Outcome.UNDECIDED, "the 95 % intervals overlap"
    return wanted, "exact figures"


def pareto_views(
    sides: Sequence[tuple[str, Sequence[Measurement], Sequence[RunRecord]]],
) -> tuple[Pareto, ...]:
    """Quality against each cost that is measured, over all artifacts and phones of both sides."""
    values: dict[tuple[str, str, Cell, str], dict[str, Measurement]] = {}
    for side, measurements, runs in sides:
        artifacts = {run.run_id: run.artifact_id for run in runs}
        for item in measurements:
            if item.value is None or not math.isfinite(item.value):
                continue
            for artifact_id in sorted({artifacts[i] for i in item.run_ids if i in artifacts}):
                values.setdefault((side, artifact_id, item.cell, item.serial or ""), {})[item.metric] = item
    quality = next((name for name in QUALITY if any(name in found for found in values.values())), None)
    if quality is None:
        return ()
    views = []
    for cost in COSTS:
        points = {key: found for key, found in values.items() if quality in found and cost in found}
        if points:
            views.append(Pareto(quality=quality, cost=cost, candidates=_candidates(points, quality, cost)))
    return tuple(views)


def _candidates(
    points: dict[tuple[str, str, Cell, str], dict[str, Measurement]], quality: str, cost: str
) -> tuple[Candidate, ...]:
    signs = {name: 1.0 if METRICS[name].better == "higher" else -1.0 for name in (quality, cost)}
    figures: dict[tuple[str, str, Cell, str], tuple[float, float]] = {}
    for key, found in points.items():
        pair_of = [found[name].value for name in (quality, cost)]
        if pair_of[0] is not None and pair_of[1] is not None:
            figures[key] = (pair_of[0], pair_of[1])
    refuted = {
        key: tuple(dict.fromkeys((*points[key][quality].refuted_by, *points[key][cost].refuted_by))) for key in figures
    }

    def beats(other: tuple[str, str, Cell, str], key: tuple[str, str, Cell, str]) -> bool:
        (oq, oc), (q, c) = figures[other], figures[key]
        if refuted[other] and not refuted[key]:
            return False
        return signs[quality] * oq >= signs[quality] * q and signs[cost] * oc >= signs[cost] * c and (oq, oc) != (q, c)

    return tuple(
        Candidate(
            side=key[0],
            artifact_id=key[1],
            cell=key[2],
            serial=key[3],
            quality=q,
            cost=c,
            quality_interval=points[key][quality].interval,
            cost_interval=points[key][cost].interval,
            n_samples=(len(points[key][quality].samples), len(points[key][cost].samples)),
            refuted_by=refuted[key],
            dominated_by=tuple(f"{other[1]} on {other[3]}" for other in figures if beats(other, key)),
        )
        for key, (q, c) in figures.items()
    )


def narrowed(
    journal: Journal,
    *,
    cell: str | None = None,
    serial: str | None = None,
    artifact: str | None = None,
    runtime: str | None = None,
) -> Journal:
    """The journal with the runs of one cell, phone, artifact or runtime, or all of these, and what belongs to them.
    ``artifact``: the beginning of an artifact id."""
    wanted = {"cell": cell, "phone": serial, "artifact": artifact, "runtime": runtime}
    for what, value in wanted.items():
        have = {_side(run)[what] for run in journal.runs}
        if value is not None and not any(_is(what, found, value) for found in have):
            raise UserError(f"the journal has no {what} {value}", expected=", ".join(sorted(have)) or "a run")
    runs = tuple(
        run
        for run in journal.runs
        if all(value is None or _is(what, _side(run)[what], value) for what, value in wanted.items())
    )
    kept = {run.run_id for run in runs}
    cells = {str(run.cell) for run in runs}

    def belongs(item: LogitsComparison | WindowScores) -> bool:
        return str(item.cell) in cells and (item.run_id is None or item.run_id in kept)

    return dataclasses.replace(
        journal,
        plans=(),
        runs=runs,
        logits=tuple(item for item in journal.logits if belongs(item)),
        windows=tuple(item for item in journal.windows if belongs(item)),
        self_checks=tuple(item for item in journal.self_checks if item.run_id in kept),
        not_covered=tuple(item for item in journal.not_covered if cell is None or str(item.cell) == cell),
    )


def _side(run: RunRecord) -> dict[str, str]:
    return {
        "cell": str(run.cell),
        "phone": run.device.serial,
        "artifact": run.artifact_id,
        "runtime": run.runtime,
    }


def _is(what: str, found: str, wanted: str) -> bool:
    return found.startswith(wanted) if what == "artifact" and len(wanted) >= 4 else found == wanted
