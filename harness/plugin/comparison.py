"""Runs the pairs of an A/B comparison: interleaved, extended until it is decided or the budget ends.

Nothing here judges: after every block of two pairs the journal so far is given to ``harness.results.ab``, which looks
at it only after the numbers of pairs that the rule allows. So the verdict is the same when it is judged again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.journal import Entry, Journal
from harness.measure import paired
from harness.record.ab import ArmRun, Comparison, ComparisonEnd
from harness.record.artifact import Artifact
from harness.record.job import Prompt
from harness.record.run import Cell, RunRecord
from harness.record.vocabulary import Status, worst
from harness.results.ab import judge_ab, rebooted
from harness.run.workload import Workload

ORDER: Final = "ABBA BAAB ...: the Thue-Morse sequence, in blocks of two pairs"
WORKLOAD: Final = "ab"
WARM_UP_RUNS: Final = 1
WARM_UPS: Final = 1
SETTLE_S: Final = 300.0
_BLOCK: Final = 2
"""Pairs: each order of the arms occurs once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What one run generates."""

    repetitions: int
    n_gen: int
    n_gen_short: int


PHONE: Final = Size(repetitions=3, n_gen=32, n_gen_short=8)
EMULATED: Final = Size(repetitions=1, n_gen=8, n_gen_short=4)
"""An emulated pair is never judged: it shows that the comparison runs."""


def ab_workload(prompts: Sequence[tuple[int, ...]], size: Size) -> Workload:
    """The longest prompt for the figures, and the shortest so that each run shows that its output depends on it."""
    longest, shortest = max(prompts, key=len), min(prompts, key=len)
    asked = [
        Prompt(
            prompt_id="ab",
            mode="generate",
            tokens=longest,
            n_gen=size.n_gen,
            ignore_eos=True,
            warmups=WARM_UPS,
            repetitions=size.repetitions,
        )
    ]
    if shortest != longest:
        asked.append(
            Prompt(prompt_id="ab-short", mode="generate", tokens=shortest, n_gen=size.n_gen_short, ignore_eos=True)
        )
    return Workload(name=WORKLOAD, prompts=tuple(asked), performance_mode="burst", deadline_s=600, stall_s=120)


def comparison_of(
    baseline: Artifact,
    candidate: Artifact,
    size: Size,
    *,
    session_id: str,
    cell: Cell,
    serial: str,
    budget_pairs: int,
    budget_s: float,
    smallest_effect: float,
) -> Comparison:
    return Comparison(
        session_id=session_id,
        comparison=f"{cell} on {serial}",
        cell=cell,
        serial=serial,
        workload=WORKLOAD,
        artifacts={"A": baseline.manifest.artifact_id, "B": candidate.manifest.artifact_id},
        order=ORDER,
        warm_up_runs=WARM_UP_RUNS,
        warm_ups=WARM_UPS,
        repetitions=size.repetitions,
        looks=paired.LOOKS,
        budget_pairs=budget_pairs,
        budget_s=budget_s,
        settle_s=SETTLE_S,
        smallest_effect=smallest_effect,
    )


def run_comparison(
    plan: Comparison,
    *,
    run_arm: Callable[[str], RunRecord],
    settle: Callable[[], None],
    append: Callable[[Entry], None],
    done: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda _: None,
) -> Journal:
    """All pairs of ``plan``, and what is in the journal of them.

    ``run_arm("A")`` makes one run and journals it; ``append`` journals everything else. ``done``: what an earlier part
    of the same session left, whose whole pairs are not run again.
    """
    journal = done if done is not None and done.comparisons else Journal(comparisons=(plan,))
    if done is None or not done.comparisons:
        append(plan)
    began = clock()
    for arm in "AB" * plan.warm_up_runs:
        say(f"{plan.comparison}: warm-up of {arm}")
        run_arm(arm)
    first = (max((arm.position for arm in journal.arms), default=-1) + 2) // 2
    reason = _reason_to_stop(plan, journal) if journal.arms else None
    for pair in range(first, plan.budget_pairs):
        if reason is None and clock() - began >= plan.budget_s:
            reason = f"the budget of {plan.budget_s:.0f} s is used up"
        if reason is not None:
            break
        if pair % _BLOCK == 0:
            settle()
        say(f"{plan.comparison}: pair {pair + 1} of at most {plan.budget_pairs}")
        for position, arm in enumerate(paired.arm_order(pair + 1)[2 * pair :], start=2 * pair):
            record = run_arm(arm)
            entry = ArmRun(
                session_id=plan.session_id,
                comparison=plan.comparison,
                position=position,
                arm=arm,
                run_id=record.run_id,
            )
            append(entry)
            journal = _with(journal, record, entry)
        looked = pair + 1 == _BLOCK or pair + 1 >= plan.looks[0]
        if (looked and pair % _BLOCK == _BLOCK - 1) or rebooted(journal.runs) is not None:
            reason = _reason_to_stop(plan, journal)
    reason = reason or f"the budget of {plan.budget_pairs} pairs is used up"
    end = ComparisonEnd(
        session_id=plan.session_id, comparison=plan.comparison, n_pairs=len(journal.arms) // 2, reason=reason
    )
    append(end)
    say(f"{plan.comparison}: {end.n_pairs} pairs: {reason}")
    return Journal(comparisons=(plan,), runs=journal.runs, arms=journal.arms, comparison_ends=(end,))


def _with(journal: Journal, record: RunRecord, arm: ArmRun) -> Journal:
    return Journal(comparisons=journal.comparisons, runs=(*journal.runs, record), arms=(*journal.arms, arm))


def _reason_to_stop(plan: Comparison, journal: Journal) -> str | None:
    """None: only more pairs can tell."""
    reboot = rebooted(journal.runs)
    if reboot is not None:
        return reboot
    verdicts = judge_ab(journal, smallest=plan.smallest_effect).verdicts
    status = worst(v.status for v in verdicts if v.status is not Status.NOT_COVERED)
    if status in (Status.FAIL, Status.PASS):
        return f"decided: {status}"
    if status in (Status.INVALID, Status.INFRA):
        return f"no pair can be judged: {next(v.reason for v in verdicts if v.status is status)}"
    return None
