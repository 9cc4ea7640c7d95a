"""``snapgate plan``: what a suite would run on which phone, and how long that took before."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from harness.errors import UserError
from harness.journal import Journal, read_journal
from harness.measure.paired import LOOKS
from harness.plugin.case import Case
from harness.plugin.options import PhoneChoice, Settings
from harness.plugin.phones import PhoneList
from harness.plugin.resume import stopped_session
from harness.plugin.suite_runs import size_for
from harness.plugin.suites import SUITES
from harness.record.vocabulary import Suite

_SUFFIX = "_run"
"""A fixture ``latency_run`` makes the run ``latency``, or the runs of the suite of that name."""
_AB_WARM_UPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    case: Case
    workload: str
    n_tests: int


def runs_of(items: Sequence[pytest.Item]) -> tuple[PlannedRun, ...]:
    """The runs that the collected tests need, each once, in the order of the tests."""
    counts: dict[tuple[Case, str], int] = {}
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        for name in getattr(item, "fixturenames", ()):
            if isinstance(case, Case) and name.endswith(_SUFFIX):
                for workload in SUITES.get(name.removesuffix(_SUFFIX), (name.removesuffix(_SUFFIX),)):
                    counts[case, workload] = counts.get((case, workload), 0) + 1
    return tuple(PlannedRun(case=case, workload=name, n_tests=n) for (case, name), n in counts.items())


def plan_lines(runs: Sequence[PlannedRun], settings: Settings, phones: PhoneList) -> tuple[str, ...]:
    """A line per run, and the sum. Times are medians of ``wall_s`` of earlier runs of the results folder."""
    history = _history(settings)
    stopped = None if settings.resume is None else stopped_session(settings)
    lines, known, unknown = [], 0.0, 0
    for run in runs:
        where, virtual = _phone(run.case, settings, phones)
        if stopped is not None and _is_finished(stopped, run, virtual=virtual):
            lines.append(_line(run, where, "finished: not run again"))
            continue
        if where is None:
            lines.append(_line(run, "no phone of this SoC", "not run"))
            continue
        seconds = _seconds(history, run, where, virtual)
        if seconds is None:
            unknown += 1
            lines.append(_line(run, where, "time unknown: no earlier run"))
        else:
            low, high = _times(run.workload, seconds, settings, virtual=virtual)
            known += high
            lines.append(_line(run, where, _clock(high) if low == high else f"{_clock(low)} to {_clock(high)}"))
    total = f"{len(runs)} runs; phone time {_clock(known)}" + (
        f" and {unknown} runs of unknown time" if unknown else ""
    )
    return (*lines, f"{total}; preparing artifacts and the host's reference come on top")


def _line(run: PlannedRun, where: str | None, text: str) -> str:
    return f"{run.case.cell!s:34} {run.workload:12} {run.n_tests:3} tests  {where or '':22} {text}"


def _phone(case: Case, settings: Settings, phones: PhoneList) -> tuple[str | None, bool]:
    """Which phone it would be, and whether a virtual one."""
    matching = [p for p in phones.matching(case.cell.part) if case.serial in (None, p.serial)]
    if matching:
        names = ", ".join(phone.serial for phone in matching)
        return (names if len(matching) == 1 else f"one of {names}"), matching[0].virtual
    if settings.phones is PhoneChoice.VIRTUAL or (
        settings.phones is PhoneChoice.AUTO and not phones.phones and not settings.require_device
    ):
        return "a virtual phone", True
    return None, False


def n_planned(runs: Sequence[PlannedRun], settings: Settings, phones: PhoneList) -> dict[str, int]:
    """Workload to the number of its runs, each round of endurance and each leg of a sustained load counted; without
    those that no phone can run."""
    counts: Counter[str] = Counter()
    for run in runs:
        where, virtual = _phone(run.case, settings, phones)
        if where is not None:
            counts[run.workload] += _most(run.workload, virtual=virtual)
    return dict(counts)


def _most(workload: str, *, virtual: bool) -> int:
    """Runs of one workload, at most"""
    size = size_for(virtual=virtual)
    return {str(Suite.ENDURANCE): size.rounds, str(Suite.SUSTAINED): size.legs}.get(workload, 1)


def _history(settings: Settings) -> Journal:
    try:
        return read_journal(settings.results / "journal")
    except UserError:
        return Journal()


def _seconds(history: Journal, run: PlannedRun, where: str, virtual: bool) -> float | None:
    alike = [
        record
        for record in history.runs
        if (record.cell, record.workload, record.error) == (run.case.cell, run.workload, None)
        and record.device.virtual is virtual
    ]
    same_phone = [record for record in alike if record.device.serial == where]
    times = [record.wall_s for record in (same_phone or alike)]
    return statistics.median(times) if times else None


def _times(workload: str, seconds: float, settings: Settings, *, virtual: bool) -> tuple[float, float]:
    if workload == Suite.ENDURANCE:
        all_rounds = seconds * size_for(virtual=virtual).rounds
        return all_rounds, all_rounds
    if workload == Suite.SUSTAINED:
        return seconds, seconds * size_for(virtual=virtual).legs
    if workload != "ab":
        return seconds, seconds
    fewest = min(LOOKS[0], settings.ab_pairs)
    low, high = ((_AB_WARM_UPS + 2 * pairs) * seconds for pairs in (fewest, settings.ab_pairs))
    return min(low, settings.ab_budget_s), min(high, settings.ab_budget_s)


def _is_finished(journal: Journal, run: PlannedRun, *, virtual: bool) -> bool:
    """A suite of several runs journals each by a name of its own: ``endurance-0``, ``sustained-2``, ``longest-512``."""
    names = {e.workload for e in journal.finished if (e.cell, e.serial) == (run.case.cell, run.case.serial)}
    if run.workload == Suite.ENDURANCE:
        rounds = range(size_for(virtual=virtual).rounds)
        return all(f"{Suite.ENDURANCE}-{number}" in names for number in rounds)
    if run.workload == Suite.SUSTAINED:
        return str(Suite.COOLDOWN) in names
    if run.workload == Suite.LONGEST:
        return any(name.startswith(f"{Suite.LONGEST}-") for name in names)
    return run.workload in names


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def plan(arguments: Iterable[str], options: Mapping[str, str | None]) -> int:
    """Collect the suites with ``--plan``; the exit code is pytest's."""
    given = [text for name, value in options.items() if value is not None for text in (name, value)]
    code = pytest.main([*arguments, "--plan", "-q", "-p", "no:cacheprovider", *given])
    return int(code)
