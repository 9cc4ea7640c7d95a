"""Cycles of each operator, from the runs that profile: what takes the time, not how fast the phone is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from harness.record.run import RunRecord
from harness.record.runner import Profile
from harness.record.vocabulary import Suite
from harness.results.figure import Figure, missing, present

OPERATOR_EVENT: Final = 404
_CYCLES: Final = "cycles"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCycles:
    graph: str
    operator: str
    cycles: float
    """Of one execution; median over repetitions"""
    share: float
    """Of all operators of its graph, 0..1"""


def operators_of(profiles: Iterable[Profile]) -> tuple[OperatorCycles, ...]:
    """The dearest operator of each graph first; warm-ups do not count. An operator that a graph lists more than once is
    summed."""
    by_graph: dict[str, list[dict[str, int]]] = {}
    for profile in profiles:
        if profile.warmup:
            continue
        cycles: dict[str, int] = {}
        for event in profile.events:
            if event.type == OPERATOR_EVENT and event.unit == _CYCLES:
                cycles[event.name] = cycles.get(event.name, 0) + event.value
        if cycles:
            by_graph.setdefault(profile.graph, []).append(cycles)
    found = []
    for graph, executions in by_graph.items():
        names = dict.fromkeys(name for cycles in executions for name in cycles)
        middle = {name: float(median([cycles.get(name, 0) for cycles in executions])) for name in names}
        total = sum(middle.values())
        found += [
            OperatorCycles(graph=graph, operator=name, cycles=value, share=value / total if total else 0.0)
            for name, value in sorted(middle.items(), key=lambda item: (-item[1], item[0]))
        ]
    return tuple(found)


def operator_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """Sums over the shards of a prefill chunk, and of a decode step: that begins behind the prompt."""
    runs = [run for run in runs if run.workload == Suite.OPERATORS]
    found: list[tuple[str, Figure | None]] = []
    for phase in ("prefill", "decode"):
        sums = [(run.run_id, total) for run in runs for total in _totals(run, phase)]
        ids = tuple(dict.fromkeys(run_id for run_id, _ in sums))
        if sums:
            values = tuple(value for _, value in sums)
            found.append((f"{phase}_cycles", Figure(value=float(median(values)), samples=values, run_ids=ids)))
        elif runs:
            why = "the library counted no cycles of operators"
            found.append((f"{phase}_cycles", missing([run.run_id for run in runs], why)))
    return present(found)


def _totals(run: RunRecord, phase: str) -> list[float]:
    """One a repetition."""
    n_prompt = {g.repetition: g.n_prompt for g in run.log.generations if not g.warmup}
    totals: dict[int, float] = {}
    for profile in run.log.profiles:
        if profile.warmup or profile.repetition not in n_prompt:
            continue
        is_decode = profile.position >= n_prompt[profile.repetition]
        total = sum(operator.cycles for operator in operators_of([profile]))
        if total and is_decode == (phase == "decode"):
            totals[profile.repetition] = totals.get(profile.repetition, 0.0) + total
    return list(totals.values())
