"""The first screen: the verdict and why, what was tested on what, what it is worth, and the numbers that decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.record.run import Cell, RunRecord
from harness.record.verdict import Limit, RunVerdict, Verdict
from harness.record.vocabulary import EMULATION_VOIDS, EXIT_CODES, SEVERITY, Source, Status, Suite
from harness.soc import BY_PART
from reports.text import NOT_MEASURED, clean, counted, listing, moment, number, unit_name

STATUS_MEANING: Final = {
    Status.PASS: "Every required metric is within its limit.",
    Status.FAIL: "A required metric is outside its limit, or a self-check of the output failed.",
    Status.INFRA: "The lab failed, not the model: what was required could not be measured.",
    Status.INVALID: "What was required was measured, but a condition or self-check refutes the figures.",
    Status.INCONCLUSIVE: "The evidence does not suffice for a decision.",
    Status.NOT_COVERED: "What was required was not measured, or has no limit to be judged by.",
}

SOURCE_NAMES: Final = {
    Source.PHONE: "real phone",
    Source.VIRTUAL: "virtual phone (emulated HTP)",
    Source.SYNTHETIC: "synthetic journal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number as it is shown. ``text`` is "not measured" exactly when ``value`` is None; then ``why`` is filled."""

    value: float | None
    text: str
    unit: str
    run_ids: tuple[str, ...] = ()
    why: str = ""
    emulated: bool = False
    interval: str = ""


def figure(
    value: float | None,
    unit: str,
    *,
    run_ids: tuple[str, ...] = (),
    why: str = "",
    emulated: bool = False,
    decimals: int | None = None,
    interval: tuple[float, float] | None = None,
) -> Figure:
    """A number, scaled and rounded for reading. The unit of bytes is MiB throughout, so that columns agree."""
    if value is None:
        reason = clean(why or "no reason recorded")
        return Figure(value=None, text=NOT_MEASURED, unit=unit_name(unit), run_ids=run_ids, why=reason)
    factor = 1 / 2**20 if unit == "bytes" else 1.0
    shown_unit = unit_name(unit)
    text = number(value * factor, shown_unit, decimals=decimals)
    if unit == "yes=1" and value in (0.0, 1.0):
        text = "yes" if value else "no"
    elif unit == "fraction" and value in (0.0, 1.0):
        text = f"{value:.0f}"
    return Figure(
        value=value,
        text=text,
        unit=shown_unit,
        run_ids=run_ids,
        emulated=emulated,
        interval=""
        if interval is None
        else f"{number(interval[0] * factor, shown_unit, decimals=decimals)} … "
        f"{number(interval[1] * factor, shown_unit, decimals=decimals)}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    kind: str
    """``synthetic``, ``emulated``, ``invalid``, ``infra`` or ``damaged``"""
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One model on one kind of phone: alike but for the serial."""

    model: str
    precision: str
    soc: str
    phone: str
    serial: str
    android: str
    source: str
    source_kind: str
    artifact: str
    n_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """One of the numbers that decided the verdict of the whole run."""

    metric: str
    cell: str
    status: str
    figure: Figure
    limit: str
    distance: str
    """How far from the limit, in words."""
    n: str
    """Samples behind the number"""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCount:
    status: str
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    status: str
    meaning: str
    why: tuple[str, ...]
    notes: tuple[str, ...]
    exit_code: int
    synthetic: bool
    counts: tuple[StatusCount, ...]
    n_required: int
    banners: tuple[Banner, ...]
    tested: tuple[Tested, ...]
    deciders: tuple[Decider, ...]
    started_at: str
    sessions: tuple[str, ...]
    command: str
    versions: tuple[tuple[str, str], ...]
    required: str


_WORDS: Final = {
    "snr": "SNR",
    "kl": "KL divergence",
    "ttft": "time to first token",
    "tpot": "mean gap between tokens",
    "itl": "gap between tokens",
    "rss": "RSS",
    "cpu": "CPU",
    "gpu": "GPU",
    "npu": "NPU",
    "ddr": "DDR",
    "kv": "KV",
    "l2": "L2",
    "dsp": "DSP",
    "top1": "top-1",
    "tps": "rate",
    "epcontext": "EPContext",
}
_UNIT_WORDS: Final = frozenset({"ms", "db", "percent", "bytes", "celsius", "nats"})


def metric_label(metric: str) -> str:
    """``worst_decode_snr_db`` as ``worst decode SNR``: the unit is shown beside the value."""
    return " ".join(_WORDS.get(word, word) for word in clean(metric).split("_") if word not in _UNIT_WORDS)


def emulated_figure(metric: str, source: Source) -> bool:
    """Whether a figure of ``metric`` means nothing because an emulator made it. Accuracy is real on a virtual phone."""
    known = METRICS.get(metric)
    return source is Source.VIRTUAL and known is not None and known.family in EMULATION_VOIDS


def cell_label(cell: Cell) -> str:
    return clean(f"{cell.model} · {cell.precision} · {cell.kv} · {cell.part}")


def soc_label(part: str) -> str:
    soc = BY_PART.get(part)
    return clean(part) if soc is None else f"{soc.marketing_name} ({soc.part})"


def limit_text(limit: Limit | None, unit: str) -> str:
    """``≤ 2.5 ms``; several bounds joined; "no limit" when there is none to judge by."""
    if limit is None:
        return "no limit"

    if limit.slack_percent is not None:
        return f"≤\u00a0{number(limit.slack_percent, '%')} % worse than the baseline"

    def shown(bound: float) -> str:
        return figure(bound, unit).text

    if limit.minimum is not None and limit.minimum == limit.maximum:
        return f"=\u00a0{shown(limit.minimum)}"
    bounds = (("≥", limit.minimum), ("≤", limit.maximum))
    return " and ".join(f"{sign}\u00a0{shown(bound)}" for sign, bound in bounds if bound is not None) or "no limit"


def headroom(verdict: Verdict) -> float | None:
    """Distance from the nearest bound as a fraction of it (of 1 when it is 0); below 0 outside. None: no bound.

    1 where the value cannot be further inside: the only one allowed, 0 of at most 0, or a whole fraction.
    """
    if verdict.value is None or verdict.limit is None:
        return None
    best = 1.0 if verdict.unit == "fraction" else None
    if verdict.value == verdict.limit.minimum == verdict.limit.maximum or verdict.value == verdict.limit.maximum == 0:
        return 1.0
    if verdict.value == best and verdict.limit.maximum is None:
        return 1.0
    rooms = []
    if verdict.limit.minimum is not None:
        rooms.append((verdict.value - verdict.limit.minimum) / (abs(verdict.limit.minimum) or 1.0))
    if verdict.limit.maximum is not None:
        rooms.append((verdict.limit.maximum - verdict.value) / (abs(verdict.limit.maximum) or 1.0))
    return min(rooms) if rooms else None


def _distance(verdict: Verdict) -> str:
    room = headroom(verdict)
    if room is None:
        return ""
    if room == 0:
        return "exactly at the limit"
    if room == 1:
        return "as it must be"
    percent = number(abs(room) * 100, "%", decimals=0 if abs(room) >= 0.1 else 1)
    return f"{percent} % inside the limit" if room > 0 else f"{percent} % outside the limit"


def deciders(run_verdict: RunVerdict, *, keep: int = 3) -> tuple[Decider, ...]:
    """The numbers that decided: required metrics with the verdict's own status first (furthest outside first), then
    those nearest to their limits; each metric once while others are left."""
    required = [v for v in run_verdict.verdicts if v.required]

    def rank(verdict: Verdict) -> tuple[int, int, float]:
        room = headroom(verdict)
        return (
            0 if verdict.status is run_verdict.status else 1 + SEVERITY.index(verdict.status),
            0 if verdict.value is not None else 1,
            room if room is not None else float("inf"),
        )

    ranked = sorted(required, key=rank)
    chosen: list[Verdict] = []
    for verdict in ranked:
        if verdict.metric not in {v.metric for v in chosen}:
            chosen.append(verdict)
    chosen += [v for v in ranked if v not in chosen]
    return tuple(
        Decider(
            metric=metric_label(v.metric),
            cell=cell_label(v.cell),
            status=v.status,
            figure=figure(
                v.value,
                v.unit,
                run_ids=tuple(clean(r) for r in v.run_ids),
                why=v.reason,
                emulated=emulated_figure(v.metric, v.source),
                interval=v.interval,
            ),
            limit=limit_text(v.limit, v.unit),
            distance=_distance(v),
            n=f"n = {v.n_samples}" if v.value is not None else "",
            reason=clean(v.reason),
        )
        for v in chosen[:keep]
    )


def sources(journal: Journal, run_verdict: RunVerdict) -> frozenset[Source]:
    found = {run.source for run in journal.runs} | {v.source for v in run_verdict.verdicts}
    return frozenset(found | {s.source for s in journal.sessions if s.source is not None})


def _banners(journal: Journal, run_verdict: RunVerdict) -> Iterable[Banner]:
    found = sources(journal, run_verdict)
    if Source.SYNTHETIC in found:
        yield Banner(
            kind="synthetic",
            title="Synthetic",
            text="Figures in this report were written by hand or by a simulation. This is never a release verdict.",
        )
    if Source.VIRTUAL in found:
        yield Banner(
            kind="emulated",
            title="Emulated",
            text=(
                "A virtual phone ran the real QNN libraries on the x86 emulator of the HTP. Outputs and accuracy are "
                "real; speed, memory, heat and power are the emulator's, are labelled emulated and are never judged."
            ),
        )
    refuted = [v for v in run_verdict.verdicts if v.status is Status.INVALID and v.source is not Source.VIRTUAL]
    if refuted:
        families = dict.fromkeys(v.family.value for v in refuted)
        first = clean(refuted[0].reason)
        yield Banner(
            kind="invalid",
            title="Invalid",
            text=f"{counted(len(refuted), 'figure')} ({listing(families)}) must not be used. "
            f"The first of the reasons: {first if len(first) <= 200 else first[:200] + '…'}",
        )
    lost = [r for r in journal.runs if r.error is not None and r.error.status is Status.INFRA]
    if lost:
        yield Banner(
            kind="infra",
            title="Lab faults",
            text=f"{counted(len(lost), 'run')} ended by a fault of the lab, not of the model: "
            + listing(dict.fromkeys(clean(r.error.kind) for r in lost if r.error is not None), limit=3)
            + ".",
        )
    if journal.damaged:
        yield Banner(
            kind="damaged",
            title="Damaged journal",
            text=f"{counted(len(journal.damaged), 'line')} could not be read: "
            + listing((clean(d) for d in journal.damaged), limit=3),
        )


def _tested(runs: tuple[RunRecord, ...]) -> tuple[Tested, ...]:
    """The toy graph of the smoke ladder is not what was tested, unless nothing else ran."""
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for run in [run for run in runs if run.workload != Suite.TOY] or runs:
        phone = (run.device.part, run.device.model, run.device.android_release, run.source)
        groups.setdefault((run.cell, run.artifact_id, *phone), []).append(run)
    rows = []
    for group in groups.values():
        run = group[0]
        level = "" if run.device.sdk_level is None else f" (API {run.device.sdk_level})"
        rows.append(
            Tested(
                model=clean(run.cell.model),
                precision=clean(f"{run.cell.precision}, {run.cell.kv}"),
                soc=soc_label(run.device.part),
                phone=clean(run.device.model),
                serial=listing(dict.fromkeys(clean(r.device.serial) for r in group), limit=4),
                android=clean(f"Android {run.device.android_release}{level}"),
                source=SOURCE_NAMES[run.source],
                source_kind=run.source.value,
                artifact=clean(run.artifact_id),
                n_runs=len(group),
            )
        )
    return tuple(rows)


def _why(run_verdict: RunVerdict, *, keep: int = 5) -> tuple[str, ...]:
    """What decided, each with its reason. The verdict's own words where no single metric decided."""
    deciding = [v for v in run_verdict.verdicts if v.required and v.status is run_verdict.status]
    named = {f"{v.metric} @ {v.cell}" for v in deciding}
    if not named.intersection(run_verdict.decided_by):
        return tuple(clean(line) for line in run_verdict.decided_by)
    grouped: dict[tuple[str, str], list[str]] = {}
    for v in deciding:
        grouped.setdefault((cell_label(v.cell), v.reason), []).append(metric_label(v.metric))
    lines = [clean(f"{listing(metrics)} ({cell}): {reason}") for (cell, reason), metrics in grouped.items()]
    shown = tuple(lines[:keep])
    return shown if len(lines) <= keep else (*shown, f"and {len(lines) - keep} more")


def overview(journal: Journal, run_verdict: RunVerdict) -> Overview:
    session = journal.sessions[0] if journal.sessions else None
    required = dict.fromkeys(family for s in journal.sessions for family in s.required)
    return Overview(
        status=run_verdict.status.value,
        meaning=STATUS_MEANING[run_verdict.status],
        why=_why(run_verdict),
        notes=tuple(clean(n) for n in run_verdict.notes),
        exit_code=EXIT_CODES[run_verdict.status],
        synthetic=Source.SYNTHETIC in sources(journal, run_verdict),
        counts=tuple(
            StatusCount(status=status.value, n=n)
            for status in SEVERITY
            if (n := sum(v.status is status for v in run_verdict.verdicts))
        ),
        n_required=sum(v.required for v in run_verdict.verdicts),
        banners=tuple(_banners(journal, run_verdict)),
        tested=_tested(journal.runs),
        deciders=deciders(run_verdict),
        started_at=moment(min((s.started_at for s in journal.sessions), default="")),
        sessions=tuple(clean(s.session_id) for s in journal.sessions),
        command=clean(" ".join(session.command)) if session else "",
        versions=tuple((clean(k), clean(v)) for k, v in sorted(session.versions.items())) if session else (),
        required=listing(clean(r) for r in required) or "nothing",
    )
