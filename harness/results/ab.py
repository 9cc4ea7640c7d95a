"""Verdict of an A/B comparison in a journal: is B (the candidate) worse than A (the baseline)?

One comparison is one phone and one workload. A pair counts when both of its runs ended well and nothing refutes their
speed; a pair that does not is left out with its reason. Then, per comparison:

==============  ======================================================================================================
FAIL            for some metric the corrected interval excludes 0 and the estimate reaches the smallest effect; or a
                run of B failed by its own fault, or gave wrong output
INFRA           no pair is left, because runs were lost
INVALID         no pair is left, because the speed of every pair is refuted (emulated, hot, ...); or the phone booted
                between two runs, which leaves it in another state than it was in
INCONCLUSIVE    neither is shown yet: more pairs are needed, up to the budget
PASS            every metric is shown to be less than the smallest effect worse
==============  ======================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.journal import Journal
from harness.measure import paired, selfcheck
from harness.measure.metrics import METRICS
from harness.record.ab import ArmRun, Comparison
from harness.record.comparison import SelfCheck
from harness.record.run import RunRecord
from harness.record.verdict import RunVerdict, Verdict
from harness.record.vocabulary import SEVERITY, Family, Source, Status, worst
from harness.results import refute
from harness.results.derive import session_source
from harness.results.judge import SYNTHETIC_NOTE, not_measured
from harness.results.speed import load_figures, speed_figures

AB_METRICS: Final = ("ttft_ms", "prefill_tps", "decode_tps", "itl_p50_ms", "itl_p90_ms", "load_ms")
"""What is compared. ``tpot_ms`` says the same as ``decode_tps``; extremes of one run (p99, max) are too noisy."""
UNIT: Final = "% worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    number: int
    a: RunRecord
    b: RunRecord


def judge_ab(
    journal: Journal,
    *,
    smallest: float | None = None,
    metrics: Sequence[str] = AB_METRICS,
    release: bool = False,
    notes: Sequence[str] = (),
) -> RunVerdict:
    """All comparisons of one session. ``smallest``: relative harm that matters; None: what the comparison was planned
    with, else ``SMALLEST_EFFECT``. Raises ``UserError`` without any comparison."""
    if not journal.arms and not journal.comparisons:
        raise UserError(
            "the journal holds no A/B comparison",
            found="no entry of the kind `arm`",
            expected="interleaved runs of two artifacts",
            next_step="judge it without --ab",
        )
    planned = {plan.comparison: plan for plan in journal.comparisons}
    if smallest is not None and not 0 < smallest < 1:
        raise UserError("smallest effect out of range", found=f"{smallest:g}", expected="more than 0 and less than 1")
    for name in metrics:
        if name not in METRICS or METRICS[name].family is not Family.PERFORMANCE or METRICS[name].better == "equal":
            raise UserError(f"{name} cannot be compared between arms", expected="one of " + ", ".join(AB_METRICS))
    verdicts: list[Verdict] = []
    said: list[str] = list(notes)
    ends = {end.comparison: end for end in journal.comparison_ends}
    for name in dict.fromkeys((*planned, *(arm.comparison for arm in journal.arms))):
        arms = sorted((arm for arm in journal.arms if arm.comparison == name), key=lambda arm: arm.position)
        if not arms:
            verdicts.append(not_measured(metrics[0], planned[name].cell, Status.NOT_COVERED, "no run of either arm"))
            continue
        if smallest is not None:
            effect = smallest
        else:
            effect = planned[name].smallest_effect if name in planned else paired.SMALLEST_EFFECT
        found, remarks = _judge_comparison(journal, name, arms, effect, tuple(metrics))
        verdicts.extend(found)
        said.extend(remarks)
        if name in planned:
            said.append(_described(planned[name]))
        if name in ends:
            said.append(f"{name}: ended after {ends[name].n_pairs} pairs: {ends[name].reason}")
    verdicts.extend(_not_run(journal))
    status = worst(v.status for v in verdicts)
    decided_by = [f"{v.metric} @ {v.cell}" for v in verdicts if v.status is status]
    synthetic = session_source(journal) is Source.SYNTHETIC
    missing = (*journal.damaged, *journal.gaps)
    if missing and worst((status, Status.INFRA)) is not status:
        status, decided_by = Status.INFRA, [f"journal: {text}" for text in missing]
    if release and synthetic:
        status, decided_by = Status.INVALID, ["synthetic data"]
    return RunVerdict(
        status=status,
        decided_by=tuple(decided_by[:5]),
        n_by_status={str(s): sum(v.status is s for v in verdicts) for s in SEVERITY},
        verdicts=tuple(verdicts),
        notes=tuple(dict.fromkeys([*([SYNTHETIC_NOTE] if synthetic else []), *said, *missing])),
    )


def _described(plan: Comparison) -> str:
    same = " (the same)" if len(set(plan.artifacts.values())) == 1 else ""
    return (
        f"{plan.comparison}: A is {plan.artifacts['A']}, B is {plan.artifacts['B']}{same}; order {plan.order}; "
        f"{plan.warm_up_runs} warm-up run of each, {plan.warm_ups} warm-up and {plan.repetitions} repetitions a run"
    )


def _not_run(journal: Journal) -> list[Verdict]:
    """Cells that were planned and of which there is no comparison."""
    met = {plan.cell for plan in journal.comparisons} | {run.cell for run in journal.runs}
    left_out = {entry.cell: entry for entry in journal.not_covered}
    found = [not_measured("runs_completed", cell, e.status, e.reason) for cell, e in left_out.items()]
    for cell in dict.fromkeys(cell for plan in journal.plans for cell in plan.cells):
        if cell not in met and cell not in left_out:
            found.append(not_measured("runs_completed", cell, Status.NOT_COVERED, "planned, but never ran"))
    return found


def rebooted(runs: Sequence[RunRecord]) -> str | None:
    """The phone booted between the first run and the last: what was warm is cold, and clocks begin anew."""
    boots = list(dict.fromkeys(run.device.boot_id for run in runs if run.device.boot_id))
    if len(boots) < 2:
        return None
    first = next(run for run in runs if run.device.boot_id == boots[1])
    return f"reboot: phone {first.device.serial} booted before run {first.run_id}"


def _judge_comparison(
    journal: Journal, name: str, arms: Sequence[ArmRun], smallest: float, metrics: tuple[str, ...]
) -> tuple[list[Verdict], list[str]]:
    pairs, remarks = _pairs(journal, name, arms)
    checks = {p.b.run_id: _checks(journal, p.b) for p in pairs} | {p.a.run_id: _checks(journal, p.a) for p in pairs}
    good: list[_Pair] = []
    lost, refuted = [], []
    left_out: dict[str, list[int]] = {}
    for pair in pairs:
        errors = [f"{r.error.kind}: {r.error.message}" for r in (pair.a, pair.b) if r.error is not None]
        doubts = [
            text
            for run in (pair.a, pair.b)
            for text in (
                *refute.refutations(Family.PERFORMANCE, run, checks[run.run_id]),
                *refute.wrong_output(checks[run.run_id]),
            )
        ]
        lost += errors
        refuted += doubts if not errors else []
        if errors or doubts:
            left_out.setdefault((errors or doubts)[0].partition(":")[0], []).append(pair.number)
        else:
            good.append(pair)
    for why, numbers in left_out.items():
        remarks.append(f"{name}: {len(numbers)} of {len(pairs)} pairs are left out, the first is {numbers[0]}: {why}")
    broken = [p.b for p in pairs if p.b.error is not None and p.b.error.status is Status.FAIL]
    wrong = [text for p in pairs for text in refute.wrong_output(checks[p.b.run_id])]
    if broken or wrong:
        reason = wrong[0] if wrong else f"B failed: {'; '.join(r.error.message for r in broken if r.error)}"
        return [_verdict(m, pairs, Status.FAIL, reason, journal) for m in metrics], remarks
    reboot = rebooted([run for pair in pairs for run in (pair.a, pair.b)])
    if reboot is not None:
        return [_verdict(m, pairs, Status.INVALID, reboot, journal) for m in metrics], remarks
    if not good:
        status = Status.INFRA if lost and not refuted else Status.INVALID if refuted else Status.INCONCLUSIVE
        reason = (refuted or lost or ["no whole pair"])[0]
        return [_verdict(m, pairs, status, reason, journal) for m in metrics], remarks
    harms = _harms(good, metrics)
    missing = [m for m in metrics if m not in harms]
    found = [_verdict(m, good, Status.NOT_COVERED, "not measured in every pair", journal) for m in missing]
    return [*_decided(name, harms, good, smallest, journal, remarks), *found], remarks


def _pairs(journal: Journal, name: str, arms: Sequence[ArmRun]) -> tuple[list[_Pair], list[str]]:
    """Whole pairs in their order; a pair whose second run was never made is left out."""
    runs = {run.run_id: run for run in journal.runs}
    by_position: dict[int, ArmRun] = {}
    for arm in arms:
        if arm.arm not in ("A", "B") or arm.position in by_position or arm.run_id not in runs:
            raise UserError(
                f"comparison {name} is not well formed",
                found=f"arm {arm.arm!r} at position {arm.position}, run {arm.run_id}",
                expected="A or B, each position once, and the run in the journal",
            )
        by_position[arm.position] = arm
    serials = sorted({runs[arm.run_id].device.serial for arm in arms})
    if len(serials) > 1:
        raise UserError(f"comparison {name} mixes phones", found=", ".join(serials), expected="one phone")
    workloads = sorted({runs[arm.run_id].workload for arm in arms})
    if len(workloads) > 1:
        raise UserError(f"comparison {name} mixes workloads", found=", ".join(workloads), expected="one workload")
    order = paired.arm_order(max(by_position) // 2 + 1)
    pairs, remarks = [], []
    for number in range(max(by_position) // 2 + 1):
        two = [by_position.get(2 * number), by_position.get(2 * number + 1)]
        whole = [arm for arm in two if arm is not None]
        if len(whole) < 2:
            remarks.append(f"{name}: pair {number} is not whole")
            continue
        if "".join(arm.arm for arm in whole) != order[2 * number : 2 * number + 2]:
            raise UserError(
                f"comparison {name} is not in balanced order",
                found=f"pair {number}: {whole[0].arm}{whole[1].arm}",
                expected=f"{order[2 * number : 2 * number + 2]} (the order is {order[:8]}...)",
            )
        by_arm = {arm.arm: runs[arm.run_id] for arm in whole}
        pairs.append(_Pair(number=number, a=by_arm["A"], b=by_arm["B"]))
    for letter in "AB":
        ids = sorted({runs[arm.run_id].artifact_id for arm in arms if arm.arm == letter})
        if len(ids) > 1:
            raise UserError(f"arm {letter} of {name} has several artifacts", found=", ".join(ids), expected="one")
    return pairs, remarks


def _checks(journal: Journal, run: RunRecord) -> list[SelfCheck]:
    return [*(c for c in journal.self_checks if c.run_id == run.run_id), *selfcheck.record_checks(run)]


def _harms(pairs: Sequence[_Pair], metrics: Sequence[str]) -> dict[str, list[float]]:
    """Metric to ln(B / A), positive is worse; without metrics that a run lacks."""
    figures = {run.run_id: _figures(run) for pair in pairs for run in (pair.a, pair.b)}
    found: dict[str, list[float]] = {}
    for metric in metrics:
        sign = -1.0 if METRICS[metric].better == "higher" else 1.0
        values = [(figures[p.a.run_id].get(metric), figures[p.b.run_id].get(metric)) for p in pairs]
        good = [(a, b) for a, b in values if a is not None and b is not None and a > 0 and b > 0]
        if len(good) == len(values) and all(math.isfinite(x) for both in good for x in both):
            found[metric] = [sign * math.log(b / a) for a, b in good]
    return found


def _figures(run: RunRecord) -> dict[str, float | None]:
    return {name: figure.value for name, figure in {**load_figures([run]), **speed_figures([run])}.items()}


def _decided(
    name: str,
    harms: Mapping[str, Sequence[float]],
    pairs: Sequence[_Pair],
    smallest: float,
    journal: Journal,
    remarks: list[str],
) -> list[Verdict]:
    """By the sequential rule; where it has no look yet, by nothing."""
    if not harms:
        return []
    first = np.array([paired.a_comes_first(pair.number + 1)[-1] for pair in pairs])
    balanced = _balanced(first)
    data = np.array([[values[i] for i in balanced] for values in harms.values()])
    look = paired.decide(paired.looks(data, first[balanced], smallest=smallest))
    if look is None:
        reason = f"{len(pairs)} pairs, {paired.LOOKS[0]} are needed"
        return [_verdict(m, pairs, Status.INCONCLUSIVE, reason, journal) for m in harms]
    unused = len(pairs) - look.n_pairs
    if unused and (look.worse.any() or look.fine.all() or look.n_pairs == paired.LOOKS[-1]):
        remarks.append(f"{name}: decided after {look.n_pairs} pairs; {unused} more were not looked at")
    following = next((n for n in paired.LOOKS if n > look.n_pairs), None)
    ask = f"; look again after {following} pairs" if following else "; the budget of pairs is used up"
    found = []
    for i, metric in enumerate(harms):
        low, high, upper = (_percent(float(values[i])) for values in (look.low, look.high, look.upper))
        interval = f"{low:+.2f} to {high:+.2f} % worse"
        if look.worse[i]:
            status, reason = Status.FAIL, f"interval {interval} excludes 0, smallest effect {100 * smallest:g} %"
        elif look.fine[i]:
            status, reason = Status.PASS, f"at most {upper:+.2f} % worse, smallest effect {100 * smallest:g} %"
        else:
            reason = f"interval {interval}, smallest effect {100 * smallest:g} %{ask}"
            status = Status.INCONCLUSIVE
        shown = (low, upper) if status is Status.PASS else (low, high)
        found.append(
            _verdict(
                metric,
                pairs[: look.n_pairs],
                status,
                reason,
                journal,
                value=_percent(float(look.harm[i])),
                interval=shown,
            )
        )
    return found


def _balanced(first: NDArray[np.bool_]) -> list[int]:
    """Indices of pairs such that each order occurs equally often among the first 2k: lost pairs may unbalance it."""
    waiting: dict[bool, list[int]] = {True: [], False: []}
    found: list[int] = []
    for i, is_a in enumerate(first.tolist()):
        waiting[is_a].append(i)
        if waiting[True] and waiting[False]:
            found += sorted((waiting[True].pop(0), waiting[False].pop(0)))
    return found


def _percent(harm: float) -> float:
    return 100.0 * math.expm1(harm)


def _verdict(
    metric: str,
    pairs: Sequence[_Pair],
    status: Status,
    reason: str,
    journal: Journal,
    *,
    value: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Verdict:
    run = pairs[0].b if pairs else journal.runs[0]
    emulated = Source.VIRTUAL if refute.is_emulated(run) else run.source
    return Verdict(
        metric=metric,
        family=METRICS[metric].family,
        unit=UNIT,
        cell=run.cell,
        serial=run.device.serial,
        source=session_source(journal) or emulated,
        status=status,
        required=True,
        value=value,
        interval=interval,
        n_samples=len(pairs),
        limit=None,
        reason=reason,
        run_ids=tuple(run_id for pair in pairs for run_id in (pair.a.run_id, pair.b.run_id)),
    )
