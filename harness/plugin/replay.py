"""``--journal``: the suites judge a stored journal instead of running anything; tests and exit codes are the same."""

from __future__ import annotations

from types import TracebackType

from harness.journal import Journal
from harness.plugin.case import Case
from harness.record.run import Cell
from harness.record.verdict import Limit, RunVerdict, Verdict
from harness.record.vocabulary import SEVERITY, Status
from harness.results.gate import judge_journal
from harness.results.judge import not_measured


def cells_of(journal: Journal) -> tuple[Cell, ...]:
    """Every cell that the journal planned, ran or left out, once, in order."""
    named = (
        *(cell for plan in journal.plans for cell in plan.cells),
        *(run.cell for run in journal.runs),
        *(entry.cell for entry in journal.not_covered),
    )
    return tuple(dict.fromkeys(named))


class ReplayLab:
    """A lab whose runs were made before. Like ``Lab``, but nothing runs."""

    def __init__(self, journal: Journal, limits: tuple[Limit, ...], *, release: bool) -> None:
        self._judged: RunVerdict = judge_journal(journal, limits, release=release)

    def __enter__(self) -> ReplayLab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def accuracy(self, case: Case) -> None:
        """It is in the journal, or it is not."""

    def ab(self, case: Case) -> None:
        """It is in the journal, or it is not."""

    def suite(self, case: Case, name: str) -> None:
        """It is in the journal, or it is not."""

    def latency(self, case: Case) -> None:
        """It is in the journal, or it is not."""

    def verdict(self, case: Case, metric: str) -> Verdict:
        return pick(self._judged, case, metric)


def pick(judged: RunVerdict, case: Case, metric: str) -> Verdict:
    """The worst verdict on one metric of a case (there may be several phones)."""
    found = [
        verdict
        for verdict in judged.verdicts
        if verdict.metric == metric
        and verdict.cell == case.cell
        and (case.serial is None or verdict.serial in (None, case.serial))
    ]
    if not found:
        return not_measured(metric, case.cell, Status.NOT_COVERED, "nothing was measured")
    return min(found, key=lambda verdict: SEVERITY.index(verdict.status))
