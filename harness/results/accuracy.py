"""Accuracy figures from comparisons with the reference. Values only: what refutes them is decided elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.measure.quality import perplexity
from harness.measure.statistics import perplexity_ratio_interval
from harness.record.comparison import EDGE_PREFIX, Leg, LogitsComparison, WindowScores
from harness.results.figure import Figure

_LOGITS: Final = (
    "prefill_snr_db", "decode_snr_db", "worst_decode_snr_db", "relative_l2", "kl_nats_mean", "top1_agreement",
    "greedy_exact_fraction", "greedy_mismatch_max_margin", "three_way_snr_gap_db",
)  # fmt: skip


def logits_figures(items: Sequence[LogitsComparison]) -> dict[str, Figure]:
    """From the comparisons of one cell on one phone: the phone's, and those of the graph leg."""
    items = [item for item in items if not item.prompt_id.startswith(EDGE_PREFIX)]
    phone = [item for item in items if item.leg is Leg.PHONE and item.positions]
    if not phone:
        return {}
    run_ids = _run_ids(phone)
    if len({item.reference_id for item in phone}) > 1:
        reason = "compared with references of several hosts: make the reference again, in a session of one host"
        return {name: Figure(value=None, run_ids=run_ids, reason=reason) for name in _LOGITS}

    def figure(value: float | None, samples: Iterable[float], reason: str | None = None) -> Figure:
        return Figure(value=value, samples=tuple(samples), run_ids=run_ids, reason=reason)

    found: dict[str, Figure] = {}
    for phase in ("prefill", "decode"):
        snr = [value for item in phone if item.phase == phase for value in item.snr_db]
        if snr:
            found[f"{phase}_snr_db"] = figure(_median(snr), snr)
            if phase == "decode":
                found["worst_decode_snr_db"] = figure(_smallest(snr), snr)
    l2 = [value for item in phone for value in item.relative_l2]
    kl = [value for item in phone for value in item.kl_nats]
    agrees = [float(_agrees(item, i)) for item in phone for i in range(len(item.positions))]
    found["relative_l2"] = figure(_median(l2), l2)
    found["kl_nats_mean"] = figure(float(np.mean(kl)), kl)
    found["top1_agreement"] = figure(float(np.mean(agrees)), agrees)
    greedy = [(item, i) for item in phone for i in _greedy_positions(item, phone)]
    if greedy:
        exact = [float(_agrees(item, i)) for item, i in greedy]
        margins = [0.0 if _agrees(item, i) else item.reference_margin[i] for item, i in greedy]
        found["greedy_exact_fraction"] = figure(float(np.mean(exact)), exact)
        found["greedy_mismatch_max_margin"] = figure(float(np.max(margins)), margins)
    gaps = _three_way_gaps(phone, [item for item in items if item.leg is Leg.GRAPH])
    if gaps:
        worse = max(gaps, key=lambda values: (math.isnan(_median(values)), _median(values)))
        found["three_way_snr_gap_db"] = figure(_median(worse), worse)
    return found


def _run_ids(items: Iterable[LogitsComparison | WindowScores]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.run_id for item in items if item.run_id is not None))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _smallest(values: Sequence[float]) -> float:
    """NaN if any is NaN."""
    return float(np.min(values))


def _agrees(item: LogitsComparison, i: int) -> bool:
    """A row without an argmax (negative) agrees with nothing."""
    return item.argmax[i] == item.reference_argmax[i] and item.argmax[i] >= 0


def _greedy_positions(item: LogitsComparison, all_items: Iterable[LogitsComparison]) -> range | tuple[int, ...]:
    """Indices into ``item`` whose argmax is a generated token: all of decode; of prefill the last position, if the same
    run also decoded that prompt."""
    if item.phase == "decode":
        return range(len(item.positions))
    decoded = any(
        other.phase == "decode" and (other.run_id, other.prompt_id) == (item.run_id, item.prompt_id)
        for other in all_items
    )
    return (int(np.argmax(item.positions)),) if decoded else ()


def _three_way_gaps(phone: Sequence[LogitsComparison], graph: Sequence[LogitsComparison]) -> list[list[float]]:
    """Graph SNR - phone SNR at every position that both have, one list per phase."""
    by_place = {
        (item.reference_id, item.prompt_id, item.phase, position): snr
        for item in graph
        for position, snr in zip(item.positions, item.snr_db, strict=False)
    }
    gaps: dict[str, list[float]] = {}
    for item in phone:
        for position, snr in zip(item.positions, item.snr_db, strict=False):
            reference = by_place.get((item.reference_id, item.prompt_id, item.phase, position))
            if reference is not None:
                gaps.setdefault(item.phase, []).append(reference - snr)
    return list(gaps.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    nll: Mapping[int, float]
    n_scored: Mapping[int, int]


def window_figures(items: Sequence[WindowScores]) -> dict[str, Figure]:
    """Perplexities of one cell on one phone, all legs on the windows that every leg scored."""
    phone = [item for item in items if item.leg is Leg.PHONE and item.window_ids]
    if not phone:
        return {}
    run_ids = _run_ids(phone)
    kinds = {(item.reference_id, item.corpus_sha256, item.context_length) for item in phone}
    if len(kinds) > 1:
        return {
            "perplexity": Figure(
                value=None, run_ids=run_ids, reason="windows of several corpora, contexts or references in one cell"
            )
        }
    same = [i for i in items if (i.reference_id, i.corpus_sha256, i.context_length) in kinds]
    legs = {leg: _scores([item for item in same if item.leg is leg]) for leg in Leg}
    present = [scores for scores in legs.values() if scores.nll]
    windows = sorted(set.intersection(*(set(scores.nll) for scores in present)))
    if not windows:
        return {"perplexity": Figure(value=None, run_ids=run_ids, reason="no window was scored by every leg")}
    counts = [legs[Leg.PHONE].n_scored[w] for w in windows]
    for leg, scores in legs.items():
        differing = [w for w in windows if scores.nll and scores.n_scored[w] != legs[Leg.PHONE].n_scored[w]]
        if differing:
            w = differing[0]
            reason = f"window {w}: {leg} scored {scores.n_scored[w]} tokens, the phone {legs[Leg.PHONE].n_scored[w]}"
            return {"perplexity": Figure(value=None, run_ids=run_ids, reason=reason)}
    found: dict[str, Figure] = {}
    nll = {leg: [scores.nll[w] for w in windows] for leg, scores in legs.items() if scores.nll}
    for leg, name in (
        (Leg.PHONE, "perplexity"),
        (Leg.FP32, "perplexity_fp32"),
        (Leg.GRAPH, "perplexity_graph"),
    ):
        if leg in nll:
            per_window = tuple(_ppl(value, n) for value, n in zip(nll[leg], counts, strict=True))
            found[name] = Figure(value=_ppl(sum(nll[leg]), sum(counts)), samples=per_window, run_ids=run_ids)
    for leg, name in ((Leg.FP32, "perplexity_over_fp32_percent"), (Leg.GRAPH, "perplexity_over_graph_percent")):
        if leg in nll:
            found[name] = _gap_percent(nll[Leg.PHONE], nll[leg], counts, run_ids)
    return found


def _ppl(nll_sum: float, n_scored: int) -> float:
    value = perplexity(nll_sum, n_scored)
    return float("nan") if value is None else value


def _gap_percent(
    nll: Sequence[float], reference: Sequence[float], counts: Sequence[int], run_ids: tuple[str, ...]
) -> Figure:
    ratio = _ppl(sum(nll) - sum(reference), sum(counts))
    interval = perplexity_ratio_interval(nll, reference, counts)
    return Figure(
        value=100.0 * (ratio - 1.0),
        samples=tuple(100.0 * (_ppl(a - b, n) - 1.0) for a, b, n in zip(nll, reference, counts, strict=True)),
        interval=(100.0 * (interval[0] - 1.0), 100.0 * (interval[1] - 1.0)) if interval else None,
        run_ids=run_ids,
    )


def _scores(items: Iterable[WindowScores]) -> _Scores:
    """Merged over records. A window that was scored twice counts with its larger NLL: the worse of the two."""
    nll: dict[int, float] = {}
    n_scored: dict[int, int] = {}
    for item in items:
        for window, value, n in zip(item.window_ids, item.nll_sum, item.n_scored, strict=False):
            if window not in nll or not value <= nll[window]:
                nll[window] = value
                n_scored[window] = n
    return _Scores(nll=nll, n_scored=n_scored)
