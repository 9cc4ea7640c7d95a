"""One verdict from a journal and a limits file; the same code judges a live run and a stored one."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from harness.errors import UserError
from harness.journal import Journal, read_journal
from harness.measure.metrics import METRICS
from harness.record.baseline import BASELINE_SCHEMA, Baseline
from harness.record.codec import read_json
from harness.record.verdict import Limit, RunVerdict
from harness.record.vocabulary import Family
from harness.results.ab import judge_ab
from harness.results.baseline import comparer
from harness.results.derive import derive
from harness.results.judge import DEFAULT_REQUIRED, judge
from harness.spec.limits import load_limits


def read_limits(path: Path, *, stored: bool = False) -> tuple[Limit, ...]:
    """``load_limits`` with the metrics of the catalogue. ``stored``: those that a run left, of whatever age."""
    return load_limits(path, metrics={name: metric.better for name, metric in METRICS.items()}, stored=stored)


def gate(
    journal_path: Path,
    limits_path: Path,
    *,
    release: bool = False,
    required: Collection[Family] | None = None,
    session_id: str | None = None,
    baselines: Sequence[Baseline] = (),
) -> RunVerdict:
    """Judge one session of a journal folder (or file).

    ``session_id``: which; by default the only one, or the one that started last, which is then said in the notes.
    ``baselines``: for limits against one, instead of those that the session was given.
    ``required``: families that must pass; by default those that the session says, else ``DEFAULT_REQUIRED``.
    The exit code is ``EXIT_CODES[verdict.status]``. Raises ``UserError`` for a bad journal or limits file.
    """
    limits = read_limits(limits_path)
    journal, notes = read_session(journal_path, session_id)
    if baselines:
        journal = dataclasses.replace(journal, baselines=tuple(baselines))
    return judge_journal(journal, limits, release=release, required=required, notes=notes)


def read_baseline(path: Path) -> Baseline:
    found = read_json(path, Baseline)
    if found.schema != BASELINE_SCHEMA:
        raise UserError(
            f"{path} has another schema",
            found=found.schema,
            expected=BASELINE_SCHEMA,
            next_step="promote it again with this version",
        )
    return found


def read_session(journal_path: Path, session_id: str | None = None) -> tuple[Journal, tuple[str, ...]]:
    """One session of a journal, and what to say about the choice. Runs of two sessions are never mixed."""
    if session_id is not None:
        return read_journal(journal_path, session_id=session_id), ()
    journal = read_journal(journal_path)
    ids = list(dict.fromkeys(session.session_id for session in journal.sessions))
    if len(ids) < 2:
        return journal, ()
    if journal_path.is_file():
        raise UserError(
            f"{journal_path} holds several sessions", found=", ".join(ids), expected="one file per session and worker"
        )
    newest = max(journal.sessions, key=lambda session: (session.started_at, session.session_id)).session_id
    note = f"the newest of {len(ids)} sessions was judged: {newest}"
    return read_journal(journal_path, session_id=newest), (note,)


def judge_journal(
    journal: Journal,
    limits: Iterable[Limit],
    *,
    required: Collection[Family] | None = None,
    release: bool = False,
    notes: Iterable[str] = (),
) -> RunVerdict:
    """Derive and judge. See ``gate`` for the defaults. A session of A/B comparisons is judged by those, not by limits:
    its runs are of two artifacts."""
    said = (*notes, *(note for session in journal.sessions for note in session.notes), *_resumed(journal))
    if journal.comparisons:
        return judge_ab(journal, release=release, notes=said)
    return judge(
        derive(journal),
        tuple(limits),
        required=_required(journal) if required is None else required,
        release=release,
        notes=said,
        damaged=(*journal.damaged, *journal.gaps),
        compare=comparer(journal, journal.baselines) if journal.baselines else None,
    )


def _resumed(journal: Journal) -> tuple[str, ...]:
    if not journal.resumes:
        return ()
    again = sum(len(resume.superseded) for resume in journal.resumes)
    times = "once" if len(journal.resumes) == 1 else f"{len(journal.resumes)} times"
    return (f"the session was stopped and resumed {times}; {again} unfinished runs were made again",)


def _required(journal: Journal) -> frozenset[Family]:
    names = {name for session in journal.sessions for name in session.required}
    unknown = sorted(names - set(Family))
    if unknown:
        raise UserError("the journal requires an unknown family", found=unknown[0], expected=", ".join(Family))
    return frozenset(Family(name) for name in names) or DEFAULT_REQUIRED
