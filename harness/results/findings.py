"""What stands out in a journal, as findings: what was seen, the evidence for it, and what to do next.

A finding explains; it never changes a verdict. Rules look at records only, so the same journal gives the same findings.
An empty list means that every rule was looked at and none applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.journal import Journal
from harness.record.comparison import Leg, LogitsComparison
from harness.record.run import Cell, RunRecord
from harness.record.verdict import Measurement
from harness.record.vocabulary import Status
from harness.results.phones import phone_health
from harness.results.refute import is_emulated
from harness.results.speed import steadiness_of

CLEAR_MARGIN: Final = 0.1
"""fp32 logits: below this the model itself is undecided between its two best tokens."""
PHONE_GAP_DB: Final = 1.0
"""The phone is this much further from fp32 than its own graph on a CPU."""
BUSY_LOAD: Final = 1.0
"""Runnable processes per CPU of the host"""


class Weight(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    rule: str
    weight: Weight
    what: str
    where: str
    """Cell and phone"""
    evidence: tuple[str, ...]
    next_step: str
    run_ids: tuple[str, ...]


def find(journal: Journal, measurements: Sequence[Measurement]) -> tuple[Finding, ...]:
    """Every finding, errors first; otherwise in the order of the rules and of the journal."""
    found = [finding for rule in RULES for finding in rule(journal, measurements)]
    return tuple(sorted(found, key=lambda finding: list(Weight).index(finding.weight)))


def _where(run: RunRecord) -> str:
    return f"{run.cell} on {run.device.serial}"


def _failed_runs(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        if run.error is None:
            continue
        fault = run.log.fault
        evidence = [f"{run.error.kind}: {run.error.message}"]
        if fault is not None:
            evidence.append(f"runner: {fault.error} in {fault.where}: {fault.what}")
            evidence.append(f"found {fault.found}, expected {fault.expected}")
            if fault.qnn_name is not None:
                evidence.append(f"QNN: {fault.qnn_name} ({fault.qnn_code})")
        if run.log.phases and run.log.end is None:
            evidence.append(f"last load phase that ended: {run.log.phases[-1].name}")
        lab = run.error.status is Status.INFRA
        yield Finding(
            rule="run_failed",
            weight=Weight.ERROR,
            what="the run ended by a fault of the lab" if lab else "the run failed",
            where=_where(run),
            evidence=tuple(evidence),
            next_step=(fault.next_step if fault is not None and fault.next_step else "")
            or ("look at the phone and its cable, then run again" if lab else "look at records and logcat of the run"),
            run_ids=(run.run_id,),
        )


def _retried(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        if run.retried_because is not None:
            yield Finding(
                rule="retried",
                weight=Weight.NOTE,
                what="the run needed a second try",
                where=_where(run),
                evidence=(run.retried_because,),
                next_step="look for a pattern over sessions: snapgate report --history",
                run_ids=(run.run_id,),
            )


def _self_checks(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    phones = {run.run_id: run.device.serial for run in journal.runs}
    for check in journal.self_checks:
        if check.passed is False:
            yield Finding(
                rule="self_check",
                weight=Weight.ERROR,
                what=f"the self-check {check.name} does not hold",
                where=f"{check.cell} on {phones.get(check.run_id, 'a phone not recorded')}",
                evidence=(check.detail,),
                next_step="lint the artifact (snapgate lint), then compare with another precision",
                run_ids=(check.run_id,),
            )


def _phone_against_graph(_: Journal, measurements: Sequence[Measurement]) -> Iterator[Finding]:
    for m in measurements:
        if m.metric == "three_way_snr_gap_db" and m.value is not None and m.value >= PHONE_GAP_DB:
            yield Finding(
                rule="phone_further_than_graph",
                weight=Weight.WARNING,
                what="the phone is further from fp32 than its own graph on a CPU",
                where=f"{m.cell} on {m.serial}",
                evidence=(
                    f"{m.value:.1f} dB, median over {len(m.samples)} positions of the worse phase",
                    "the graph's own arithmetic would give 0 dB: the rest is the compiler's or the kernels'",
                ),
                next_step="compare the precisions, and another version of the QNN libraries",
                run_ids=m.run_ids,
            )


def first_divergence(item: LogitsComparison) -> int | None:
    """Index of the first position whose best token is not that of fp32; None: all agree."""
    pairs = zip(item.argmax, item.reference_argmax, strict=True)
    return next((index for index, (found, wanted) in enumerate(pairs) if found != wanted), None)


def _diverged(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    """Where fp32 was sure of its token and the phone chose another, first step of each generation."""
    phones = {run.run_id: run.device.serial for run in journal.runs}
    groups: dict[tuple[Cell, str], list[tuple[LogitsComparison, int]]] = {}
    for item in journal.logits:
        at = first_divergence(item) if item.leg is Leg.PHONE and item.phase == "decode" else None
        if at is not None and item.run_id is not None and item.reference_margin[at] >= CLEAR_MARGIN:
            groups.setdefault((item.cell, phones.get(item.run_id, "a phone not recorded")), []).append((item, at))
    for (cell, serial), found in groups.items():
        yield Finding(
            rule="diverged",
            weight=Weight.WARNING,
            what="greedy decoding leaves fp32's text where fp32 is sure of its token",
            where=f"{cell} on {serial}",
            evidence=tuple(
                f"prompt {item.prompt_id}: step {at + 1} of {len(item.positions)}, fp32 margin "
                f"{item.reference_margin[at]:.3f} logits"
                for item, at in found[:4]
            ),
            next_step="look at the per-layer SNR of the artifact; keep the worst layer at a wider precision",
            run_ids=tuple(dict.fromkeys(item.run_id for item, _ in found if item.run_id is not None)),
        )


def _conditions(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        evidence = list(run.conditions.violations)
        platform, host = run.log.platform, run.host
        if platform is not None and not platform.performance_accepted:
            evidence.append(f"the device refused performance mode {platform.performance_mode}")
        if evidence and not is_emulated(run):
            yield Finding(
                rule="conditions",
                weight=Weight.WARNING,
                what="the phone was not in a condition for a fair speed run",
                where=_where(run),
                evidence=tuple(evidence),
                next_step="let the phone cool, charge it and unplug it, then measure again",
                run_ids=(run.run_id,),
            )
        if (
            host is not None
            and not is_emulated(run)
            and (host.heavy_processes or host.load_1min_after > BUSY_LOAD * host.n_cpus)
        ):
            busy = f"; busy: {', '.join(host.heavy_processes)}" if host.heavy_processes else ""
            yield Finding(
                rule="host_busy",
                weight=Weight.NOTE,
                what="the lab host was busy during the run",
                where=_where(run),
                evidence=(f"load {host.load_1min_after:.1f} on {host.n_cpus} CPUs{busy}",),
                next_step="nothing, unless figures of this host matter: the phone's own clock measures the speed",
                run_ids=(run.run_id,),
            )


def _throttled(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        states = [(g, steadiness_of(run, g)) for g in run.log.generations if not g.warmup and g.mode == "generate"]
        evidence = [
            f"prompt {g.prompt_id}, repetition {g.repetition}: after {state.tokens_to_throttle} tokens and "
            f"{state.seconds_to_throttle or 0:.1f} s; peak {state.peak_tps:.2f} tok/s"
            for g, state in states
            if state is not None and state.tokens_to_throttle is not None
        ]
        if evidence:
            yield Finding(
                rule="throttled",
                weight=Weight.WARNING,
                what="the phone throttled while generating",
                where=_where(run),
                evidence=tuple(evidence[:4]),
                next_step="judge steady_decode_tps rather than the peak",
                run_ids=(run.run_id,),
            )


def _sensors(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        heat = [sensor for sensor in run.sensors if sensor.unit == "celsius"]
        if run.error is None and not any(sensor.state in ("ok", "partial") for sensor in heat):
            states = sorted({sensor.state for sensor in heat})
            yield Finding(
                rule="no_temperature",
                weight=Weight.WARNING,
                what="no temperature of the phone can be trusted",
                where=_where(run),
                evidence=(f"{len(heat)} temperature sensors: {', '.join(states) or 'the phone shows none'}",),
                next_step="speed over time cannot be told from throttling: cool the phone between runs",
                run_ids=(run.run_id,),
            )


def _memory(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        swapped = max((reading.vm_swap_bytes or 0 for reading in run.log.memory), default=0)
        if swapped:
            yield Finding(
                rule="swapped",
                weight=Weight.WARNING,
                what="part of the runner was swapped out",
                where=_where(run),
                evidence=(f"{swapped / 2**20:.1f} MiB of VmSwap",),
                next_step="close other apps, or take a smaller model or context",
                run_ids=(run.run_id,),
            )


def _foreign_lines(journal: Journal, _: Sequence[Measurement]) -> Iterator[Finding]:
    for run in journal.runs:
        if run.log.unknown_lines:
            yield Finding(
                rule="foreign_output",
                weight=Weight.NOTE,
                what="something else wrote into the runner's output",
                where=_where(run),
                evidence=tuple(run.log.unknown_lines[:2]),
                next_step="look which library prints: the records themselves are complete",
                run_ids=(run.run_id,),
            )


def _sick_phones(journal: Journal, measurements: Sequence[Measurement]) -> Iterator[Finding]:
    for phone in phone_health(journal, measurements):
        if not phone.is_sick:
            continue
        evidence = [f"{phone.metric} {phone.value:.4g}"]
        if phone.others_median is not None:
            evidence.append(
                f"other phones with {phone.part}: median {phone.others_median:.4g}, spread "
                f"{phone.others_spread_percent:.1f} %; this one {phone.below_others_percent:+.1f} % below it"
            )
        if phone.own_baseline is not None:
            evidence.append(f"its own baseline: {phone.own_baseline:.4g}, {phone.below_itself_percent:+.1f} % below it")
        yield Finding(
            rule="sick_phone",
            weight=Weight.WARNING,
            what="a phone is slower than others of its SoC, or than itself before, whatever the model",
            where=phone.serial,
            evidence=tuple(evidence),
            next_step="take it out of the pool, look at its heat, battery, storage and build, and measure elsewhere",
            run_ids=phone.run_ids,
        )


RULES: Final[tuple[Callable[[Journal, Sequence[Measurement]], Iterator[Finding]], ...]] = (
    _failed_runs, _self_checks, _phone_against_graph, _diverged, _throttled, _conditions, _sensors, _memory, _retried,
    _foreign_lines, _sick_phones,
)  # fmt: skip
