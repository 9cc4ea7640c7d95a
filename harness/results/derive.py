"""A journal to measurements: one per metric, cell, phone and source. The same journal always gives the same ones.

Runs that ended with an error give no figures. Their failed self-checks count, and their error is the measurement
``runs_completed``, which no limit is needed to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.journal import Journal, NotCovered
from harness.measure import selfcheck
from harness.measure.memory import (
    lowest_available_bytes,
    of_free_ram_percent,
    peak_rss_bytes,
    phone_peak_bytes,
    phone_steady_bytes,
    steady_rss_bytes,
)
from harness.measure.metrics import METRICS, THERMAL_DOMAINS
from harness.measure.thermal import temperatures
from harness.record.comparison import Leg, LogitsComparison, SelfCheck, TaskScore, WindowScores
from harness.record.run import Cell, RunRecord
from harness.record.verdict import Measurement
from harness.record.vocabulary import Family, Source, Status, Suite, worst
from harness.results import refute
from harness.results.accuracy import logits_figures, window_figures
from harness.results.figure import Figure, present
from harness.results.operators import operator_figures
from harness.results.roof import over_the_roof, roof_figures
from harness.results.speed import canary_figures, load_figures, speed_figures
from harness.results.suites import edge_figures, smoke_figures, suite_figures, task_figures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Everything about one cell on one phone."""

    cell: Cell
    source: Source
    serial: str
    runs: tuple[RunRecord, ...]
    checks: tuple[SelfCheck, ...]
    """Journalled ones, and those that the records allow to repeat."""
    logits: tuple[LogitsComparison, ...]
    windows: tuple[WindowScores, ...]
    tasks: tuple[TaskScore, ...]

    @property
    def good(self) -> tuple[RunRecord, ...]:
        """Those of the model itself: the toy graph is another one, and profiling takes time and memory of its own."""
        return tuple(run for run in self.runs if run.error is None and run.workload not in (Suite.TOY, Suite.OPERATORS))

    @property
    def canaries(self) -> tuple[RunRecord, ...]:
        return tuple(run for run in self.runs if run.error is None and run.workload == Suite.TOY)

    @property
    def profiled(self) -> tuple[RunRecord, ...]:
        return tuple(run for run in self.runs if run.error is None and run.workload == Suite.OPERATORS)


def derive(journal: Journal) -> tuple[Measurement, ...]:
    """All measurements, ordered by cell, serial and the catalogue. A metric without any evidence is absent."""
    groups = _groups(journal)
    wrong_by_cell: dict[Cell, list[str]] = {}
    for group in groups:
        wrong_by_cell.setdefault(group.cell, []).extend(refute.wrong_output(group.checks))
    found: list[Measurement] = []
    for group in groups:
        figures = _figures(group)
        found.extend(
            _measurement(group, name, figures[name], wrong_by_cell[group.cell]) for name in METRICS if name in figures
        )
        found.append(_runs_completed(group))
    found.extend(_not_covered(journal))
    order = {name: i for i, name in enumerate(METRICS)}
    return tuple(sorted(found, key=lambda m: (str(m.cell), m.serial or "", str(m.source), order[m.metric])))


def session_source(journal: Journal) -> Source | None:
    """SYNTHETIC if any session or run of the journal is; else None: each run says its own."""
    marks = {session.source for session in journal.sessions} | {run.source for run in journal.runs}
    return Source.SYNTHETIC if Source.SYNTHETIC in marks else None


def _groups(journal: Journal) -> list[_Group]:
    override = session_source(journal)
    by_key: dict[tuple[Cell, str, Source], list[RunRecord]] = {}
    for run in journal.runs:
        source = override or (Source.VIRTUAL if refute.is_emulated(run) else run.source)
        by_key.setdefault((run.cell, run.device.serial, source), []).append(run)
    groups = []
    for (cell, serial, source), runs in by_key.items():
        ids = {run.run_id for run in runs}
        good = {run.run_id for run in runs if run.error is None}
        journalled = [check for check in journal.self_checks if check.run_id in ids]
        repeated = [c for run in runs if run.workload != Suite.TOY for c in selfcheck.record_checks(run)]
        groups.append(
            _Group(
                cell=cell,
                source=source,
                serial=serial,
                runs=tuple(runs),
                checks=tuple(dict.fromkeys([*journalled, *repeated])),
                logits=tuple(i for i in journal.logits if i.cell == cell and _belongs(i, good)),
                windows=tuple(i for i in journal.windows if i.cell == cell and _belongs(i, good)),
                tasks=tuple(i for i in journal.tasks if i.cell == cell and _belongs(i, good)),
            )
        )
    return groups


def _belongs(item: LogitsComparison | WindowScores | TaskScore, run_ids: Collection[str]) -> bool:
    """A phone's leg counts with its run only; the host's legs count for every phone."""
    return item.run_id in run_ids if item.leg is Leg.PHONE else True


def _figures(group: _Group) -> dict[str, Figure]:
    return {
        **smoke_figures(group.runs, group.checks),
        **logits_figures(group.logits),
        **edge_figures(group.logits),
        **task_figures(group.tasks),
        **window_figures(group.windows),
        **_check_figures(group),
        **_placement_figures(group.good),
        **load_figures(group.good),
        **speed_figures(group.good),
        **canary_figures(group.canaries),
        **roof_figures(group.good),
        **_memory_figures(group.good),
        **_thermal_figures(group.good),
        **suite_figures(group.good),
        **operator_figures(group.profiled),
    }


def _check_figures(group: _Group) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for metric, name in (
        ("prompt_sensitive", selfcheck.PROMPT_SENSITIVITY),
        ("non_constant_output", selfcheck.NON_CONSTANT_OUTPUT),
        ("prefill_decode_identical", selfcheck.PREFILL_DECODE_IDENTITY),
        ("deterministic", selfcheck.DETERMINISM),
    ):
        checks = [check for check in group.checks if check.name == name]
        decided = [float(check.passed) for check in checks if check.passed is not None]
        if checks:
            found[metric] = Figure(
                value=min(decided, default=None),
                samples=tuple(decided),
                run_ids=tuple(dict.fromkeys(check.run_id for check in checks)),
                reason=None if decided else checks[0].detail,
            )
    return found


def _largest(runs: Sequence[RunRecord], value_of: Callable[[RunRecord], float | None]) -> Figure | None:
    """The largest value over runs (NaN if any is NaN); None when no run has one."""
    pairs = [(run.run_id, value) for run in runs if (value := value_of(run)) is not None]
    if not pairs:
        return None
    samples = tuple(float(value) for _, value in pairs)
    return Figure(value=float(np.max(samples)), samples=samples, run_ids=tuple(run_id for run_id, _ in pairs))


def _placement_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    def arch(run: RunRecord) -> float | None:
        matches = refute.arch_matches(run)
        return None if matches is None else float(matches)

    found = present(
        [
            ("cpu_nodes", _largest(runs, lambda run: float(sum(run.cpu_nodes)) if run.cpu_nodes else None)),
            ("dsp_arch_matches", _largest(runs, arch)),
        ]
    )
    if "dsp_arch_matches" in found:  # one wrong run is enough
        figure = found["dsp_arch_matches"]
        found["dsp_arch_matches"] = Figure(value=min(figure.samples), samples=figure.samples, run_ids=figure.run_ids)
    pieces = [float(n) for run in runs for n in run.epcontext_nodes]
    if pieces:
        found["epcontext_nodes_per_graph"] = Figure(
            value=max(pieces, key=lambda n: abs(n - 1.0)),
            samples=tuple(pieces),
            run_ids=tuple(run.run_id for run in runs if run.epcontext_nodes),
        )
    return found


def _memory_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    lowest = _largest(runs, lowest_available_bytes)
    return present(
        [
            ("peak_rss_bytes", _largest(runs, lambda run: peak_rss_bytes(run.log.memory))),
            ("steady_rss_bytes", _largest(runs, lambda run: steady_rss_bytes(run.log.memory))),
            ("of_free_ram_percent", _largest(runs, of_free_ram_percent)),
            ("lowest_available_bytes", None if lowest is None else replace(lowest, value=min(lowest.samples))),
            ("phone_peak_bytes", _largest(runs, phone_peak_bytes)),
            ("phone_steady_bytes", _largest(runs, phone_steady_bytes)),
            ("kv_pool_bytes", _largest(runs, lambda run: run.log.buffers.kv_pool_bytes if run.log.buffers else None)),
            (
                "heap_allocations",
                _largest(runs, lambda run: max((g.heap_allocations for g in run.log.generations), default=None)),
            ),
        ]
    )


def _thermal_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    heat = {run.run_id: temperatures(run.sensors) for run in runs}

    def start(domain: str) -> Callable[[RunRecord], float | None]:
        return lambda run: heat[run.run_id][domain].start_celsius if domain in heat[run.run_id] else None

    def peak(domain: str) -> Callable[[RunRecord], float | None]:
        return lambda run: heat[run.run_id][domain].peak_celsius if domain in heat[run.run_id] else None

    return present(
        [
            *((f"start_{domain}_celsius", _largest(runs, start(domain))) for domain in THERMAL_DOMAINS),
            *((f"peak_{domain}_celsius", _largest(runs, peak(domain))) for domain in THERMAL_DOMAINS),
        ]
    )


def _measurement(group: _Group, name: str, figure: Figure, wrong: Sequence[str]) -> Measurement:
    family = METRICS[name].family
    from_runs = [run for run in group.runs if run.run_id in figure.run_ids]
    refuted = [
        text
        for run in from_runs
        for text in refute.refutations(family, run, [c for c in group.checks if c.run_id == run.run_id])
    ]
    if family is Family.PERFORMANCE:
        refuted.extend(wrong)
    elif family is Family.ACCURACY:
        refuted.extend(refute.wrong_output(group.checks))
    elif name == "cpu_nodes" and figure.value:
        refuted.append(f"{refute.CPU_PLACEMENT}: {figure.value:g} nodes on the CPU")
    elif name == "dsp_arch_matches" and figure.value == 0:
        refuted.append(f"{refute.DSP_ARCH}: context binary for another HTP arch")
    impossible = over_the_roof(name, figure, from_runs)
    if impossible is not None:
        refuted.append(impossible)
    artifacts = sorted({run.artifact_id for run in from_runs})
    if len(artifacts) > 1:
        refuted.append(f"{refute.MIXED_ARTIFACTS}: {', '.join(artifacts)}")
    runtimes = sorted({run.runtime for run in from_runs})
    if len(runtimes) > 1:
        refuted.append(f"{refute.MIXED_RUNTIMES}: {', '.join(runtimes)}")
    return Measurement(
        metric=name,
        cell=group.cell,
        source=group.source,
        serial=group.serial,
        value=figure.value,
        samples=figure.samples,
        interval=figure.interval,
        run_ids=figure.run_ids,
        reason=figure.reason,
        refuted_by=tuple(dict.fromkeys(refuted)),
        error=None,
    )


def _runs_completed(group: _Group) -> Measurement:
    failed = [run for run in group.runs if run.error is not None]
    reasons = [f"run {run.run_id}: {run.error.kind}: {run.error.message}" for run in failed if run.error]
    return Measurement(
        metric="runs_completed",
        cell=group.cell,
        source=group.source,
        serial=group.serial,
        value=1.0 - len(failed) / len(group.runs),
        samples=tuple(float(run.error is None) for run in group.runs),
        interval=None,
        run_ids=tuple(run.run_id for run in (failed or group.runs)),
        reason="; ".join(reasons) or None,
        refuted_by=(),
        error=worst(run.error.status for run in failed if run.error) if failed else None,
    )


def _not_covered(journal: Journal) -> Iterable[Measurement]:
    """Cells that were asked for and did not run: ``runs_completed`` without a value."""
    source = session_source(journal) or Source.PHONE
    met = {run.cell for run in journal.runs} | {item.cell for item in journal.not_covered}
    cut_short = [
        NotCovered(
            session_id=plan.session_id,
            cell=cell,
            status=Status.NOT_COVERED,
            reason="planned, but never ran: the session was cut short",
        )
        for plan in journal.plans
        for cell in plan.cells
        if cell not in met
    ]
    for item in (*journal.not_covered, *cut_short):
        yield Measurement(
            metric="runs_completed",
            cell=item.cell,
            source=source,
            serial=None,
            value=None,
            samples=(),
            interval=None,
            run_ids=(),
            reason=item.reason,
            refuted_by=(),
            error=Status.INFRA if item.status is Status.INFRA else None,
        )
