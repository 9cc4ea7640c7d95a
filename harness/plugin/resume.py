"""``--resume``: a session that was stopped goes on, and what it had finished is not measured again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from harness.errors import ArtifactError, HostError, UserError
from harness.journal import Entry, Finished, Journal, Resume, Session, read_journal
from harness.plugin.case import Case
from harness.plugin.options import Settings
from harness.record.ab import Comparison
from harness.record.comparison import ReferenceFacts
from harness.record.run import Cell, RunRecord
from harness.record.vocabulary import Status
from harness.results.gate import read_session
from harness.soc import Precision


def stopped_session(settings: Settings) -> Journal:
    """The session that ``--resume`` names. Raises ``UserError`` when it came to its end, or was another kind of run."""
    folder = settings.results / "journal"
    if settings.resume in (None, "last"):
        journal, _ = read_session(folder)
    else:
        journal = read_journal(folder, session_id=settings.resume)
    session = session_of(journal)
    if journal.ends:
        raise UserError(
            f"session {session.session_id} came to its end",
            expected="a session that was stopped",
            next_step="start a new one: leave out --resume",
        )
    if (settings.ab is not None) != bool(journal.comparisons) and journal.finished + journal.comparisons:
        raise UserError(
            f"session {session.session_id} is another kind of run",
            found="an A/B comparison" if journal.comparisons else "suites without --ab",
            next_step="give the options that it was started with",
        )
    required = tuple(sorted(str(family) for family in settings.required))
    if required != session.required:
        raise UserError(
            f"session {session.session_id} requires other families",
            found=", ".join(required),
            expected=", ".join(session.required),
            next_step="give the options that it was started with",
        )
    tuning = settings.tuning.words
    if tuning != session.tuning:
        raise UserError(
            f"session {session.session_id} sets the runner otherwise",
            found=", ".join(tuning) or "no --runner-option and no --pace-tps",
            expected=", ".join(session.tuning) or "none",
            next_step="give the options that it was started with",
        )
    return journal


def session_of(journal: Journal) -> Session:
    if len(journal.sessions) != 1:
        raise UserError("no session to resume", found=f"{len(journal.sessions)} sessions", expected="one")
    return journal.sessions[0]


def resume_entry(journal: Journal, now: datetime) -> Resume:
    """What of the session so far does not count. Arms of a comparison stand for themselves."""
    kept = {entry.run_id for entry in journal.finished} | {arm.run_id for arm in journal.arms}
    return Resume(
        session_id=session_of(journal).session_id,
        resumed_at=now.isoformat(timespec="seconds"),
        superseded=tuple(
            run.run_id
            for run in journal.runs
            if run.run_id not in kept and (run.error is None or run.error.status is Status.INFRA)
        ),
        retried=journal.not_covered,
        damaged=journal.damaged,
    )


def recalled(journal: Journal, case: Case, workload: str, artifact_id: str) -> tuple[RunRecord, tuple[Entry, ...]]:
    """The finished run of a case and all entries that belong to it. Raises ``KeyError``: there is none."""
    runs = {run.run_id: run for run in journal.runs}
    for entry in journal.finished:
        if _is(entry, case, workload) and entry.run_id in runs:
            run = runs[entry.run_id]
            began_with = _comparison(journal, run).artifacts["B"] if workload == "ab" else run.artifact_id
            if began_with != artifact_id:
                raise ArtifactError(
                    f"{case.cell}: the artifact is not the one that the session began with",
                    found=artifact_id,
                    expected=began_with,
                    next_step="start a new session: leave out --resume",
                )
            if workload == "ab":
                return run, _entries_of(journal, _comparison(journal, run))
            mine = (None, run.run_id)
            return run, (
                *(e for e in journal.references if e.artifact_id == run.artifact_id),
                *(e for e in journal.logits if e.cell == case.cell and e.run_id in mine),
                *(e for e in journal.windows if e.cell == case.cell and e.run_id in mine),
                *(e for e in journal.tasks if e.cell == case.cell and e.run_id in mine),
                *(e for e in journal.self_checks if e.run_id == run.run_id),
            )
    raise KeyError(workload)


def refuse_another_reference(made: Iterable[ReferenceFacts], here: ReferenceFacts, cell: Cell) -> None:
    """Integer kernels of another CPU class or onnxruntime give other numbers, so a quantised model is not compared with
    a reference made there. Raises ``HostError``. At fp16 the reference is float32, where that does not matter."""
    if cell.precision is Precision.FP16:
        return
    for facts in made:
        for name in ("onnxruntime_version", "cpu_flags", "n_threads", "optimization_level"):
            found, wanted = getattr(facts, name), getattr(here, name)
            if found != wanted:
                raise HostError(
                    f"{cell}: the reference in the journal was made on another host ({facts.cpu_model})",
                    found=f"{name} {_listed(found)}",
                    expected=_listed(wanted),
                    next_step="make it again: start a new session here, without --resume; or resume on that host",
                )


def _listed(value: object) -> str:
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def _comparison(journal: Journal, run: RunRecord) -> Comparison:
    name = next(arm.comparison for arm in journal.arms if arm.run_id == run.run_id)
    return next(plan for plan in journal.comparisons if plan.comparison == name)


def _entries_of(journal: Journal, plan: Comparison) -> tuple[Entry, ...]:
    """All of a comparison but its last run."""
    arms = [arm for arm in journal.arms if arm.comparison == plan.comparison]
    ids = {arm.run_id for arm in arms[:-1]}
    runs = [run for run in journal.runs if run.run_id in ids]
    return (plan, *runs, *arms, *(end for end in journal.comparison_ends if end.comparison == plan.comparison))


def comparison_so_far(journal: Journal, case: Case) -> Journal:
    """The comparison of a case that was under way, with its whole and half pairs; empty: there is none."""
    ended = {end.comparison for end in journal.comparison_ends}
    for plan in journal.comparisons:
        if plan.cell == case.cell and case.serial in (None, plan.serial) and plan.comparison not in ended:
            arms = tuple(arm for arm in journal.arms if arm.comparison == plan.comparison)
            ids = {arm.run_id for arm in arms}
            runs = tuple(run for run in journal.runs if run.run_id in ids)
            return Journal(comparisons=(plan,), arms=arms, runs=runs)
    return Journal()


def _is(entry: Finished, case: Case, workload: str) -> bool:
    return (entry.cell, entry.serial, entry.workload) == (case.cell, case.serial, workload)
