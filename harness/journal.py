"""The append-only journal: JSON Lines, one entry a line, fsynced before anything is computed from it.

A journal is a folder. Each process appends to a file of its own (``<session>-<worker>.jsonl``), so no two writers
share a file; a reader merges them. A last line that a crash cut short is dropped on reading and named in
``Journal.damaged``; a damaged line anywhere else is an error. ``Journal.gaps`` names what is missing as a whole: a
session that never ended, a run of a session that is not there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from harness.errors import HostError, UserError
from harness.record.ab import ArmRun, Comparison, ComparisonEnd
from harness.record.baseline import Baseline
from harness.record.codec import from_json, to_json
from harness.record.comparison import LogitsComparison, ReferenceFacts, SelfCheck, TaskScore, WindowScores
from harness.record.run import Cell, RunRecord
from harness.record.vocabulary import Source, Status

JOURNAL_SCHEMA: Final = "snapgate.journal/1"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Opens a session. Only the controller writes one."""

    session_id: str
    schema: str
    started_at: str
    source: Source | None
    """SYNTHETIC for a hand-made journal; None: each run says its own."""
    versions: dict[str, str]
    command: tuple[str, ...]
    required: tuple[str, ...]
    """Families that must pass."""
    phones: tuple[str, ...]
    notes: tuple[str, ...]
    tuning: tuple[str, ...] = ()
    """What the user set for the runner in every run, both arms of a comparison included, NAME=VALUE; sorted"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCovered:
    """A cell that was asked for and did not run: why."""

    session_id: str
    cell: Cell
    status: Status
    """NOT_COVERED (no such phone, no artifact) or INFRA (a phone was there and was lost)"""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the session set out to run, written before anything runs. A planned cell without a run is not covered."""

    session_id: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Closes a session whose planned tests all ran. Only the controller writes one; an interrupted session has none."""

    session_id: str
    broken: tuple[str, ...]
    """Tests that broke without a verdict: whatever they would have found is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run and all that is computed from it stand in the journal: a resumed session does not make it again."""

    session_id: str
    cell: Cell
    serial: str | None
    """None: any phone of the SoC was asked for."""
    workload: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """A session that was stopped goes on. What it names was left half done, is done again, and no longer counts."""

    session_id: str
    resumed_at: str
    superseded: tuple[str, ...]
    """Runs that were broken off, lost by the lab, or never compared. A run that failed by the model's fault stays."""
    retried: tuple[NotCovered, ...]
    damaged: tuple[str, ...]
    """Lines that the stop cut short"""


Entry = (
    Session
    | Plan
    | RunRecord
    | ReferenceFacts
    | LogitsComparison
    | WindowScores
    | TaskScore
    | SelfCheck
    | NotCovered
    | ArmRun
    | Baseline
    | Comparison
    | ComparisonEnd
    | Finished
    | Resume
    | End
)

_KINDS: dict[str, type[Entry]] = {
    "session": Session,
    "plan": Plan,
    "run": RunRecord,
    "reference": ReferenceFacts,
    "logits": LogitsComparison,
    "windows": WindowScores,
    "task": TaskScore,
    "self_check": SelfCheck,
    "not_covered": NotCovered,
    "end": End,
    "arm": ArmRun,
    "baseline": Baseline,
    "comparison": Comparison,
    "comparison_end": ComparisonEnd,
    "finished": Finished,
    "resume": Resume,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class JournalWriter:
    """Appends entries to one file. ``append`` returns only once the entry is on disk, or raises HostError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def append(self, entry: Entry) -> None:
        body = {"kind": _NAMES[type(entry)], "entry": to_json(entry)}
        line = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        before = os.fstat(self._fd).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
        except OSError as exc:
            with contextlib.suppress(OSError):  # half an entry would spoil the next one
                os.ftruncate(self._fd, before)
            raise self._unwritable(exc) from exc

    def close(self) -> None:
        os.close(self._fd)

    def _unwritable(self, exc: OSError) -> HostError:
        return HostError(
            f"the journal {self.path} cannot be written",
            found=exc.strerror or str(exc),
            expected="a results folder that this user may write to, on a disk with free space",
            next_step="name another folder with --results, or make this one writable",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Everything of one or more sessions, in order of the files' names and lines."""

    sessions: tuple[Session, ...] = ()
    plans: tuple[Plan, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    references: tuple[ReferenceFacts, ...] = ()
    logits: tuple[LogitsComparison, ...] = ()
    windows: tuple[WindowScores, ...] = ()
    self_checks: tuple[SelfCheck, ...] = ()
    not_covered: tuple[NotCovered, ...] = ()
    arms: tuple[ArmRun, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    """What limits against a baseline compare with"""
    comparisons: tuple[Comparison, ...] = ()
    comparison_ends: tuple[ComparisonEnd, ...] = ()
    tasks: tuple[TaskScore, ...] = ()
    finished: tuple[Finished, ...] = ()
    resumes: tuple[Resume, ...] = ()
    ends: tuple[End, ...] = ()
    damaged: tuple[str, ...] = field(default=())

    def in_effect(self) -> Journal:
        """Without what a ``Resume`` names, once the whole session is at hand; not to be applied twice."""
        if not self.resumes:
            return self
        gone = {run_id for resume in self.resumes for run_id in resume.superseded}
        return replace(
            self,
            runs=tuple(run for run in self.runs if run.run_id not in gone),
            logits=tuple(entry for entry in self.logits if entry.run_id not in gone),
            windows=tuple(entry for entry in self.windows if entry.run_id not in gone),
            tasks=tuple(entry for entry in self.tasks if entry.run_id not in gone),
            self_checks=tuple(entry for entry in self.self_checks if entry.run_id not in gone),
            arms=tuple(entry for entry in self.arms if entry.run_id not in gone),
            not_covered=_without(self.not_covered, (entry for resume in self.resumes for entry in resume.retried)),
            damaged=_without(self.damaged, (text for resume in self.resumes for text in resume.damaged)),
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """What must have been lost, seen from what is there. Such a journal can refute, but it cannot pass."""
        opened = {session.session_id for session in self.sessions}
        ended = {end.session_id for end in self.ends}
        named: tuple[Plan | RunRecord | NotCovered | End, ...] = (
            *self.plans,
            *self.runs,
            *self.not_covered,
            *self.ends,
        )
        strangers = dict.fromkeys(entry.session_id for entry in named if entry.session_id not in opened)
        unended = dict.fromkeys(plan.session_id for plan in self.plans if plan.session_id not in ended)
        counts = Counter(run.run_id for run in self.runs)
        return (
            *(f"entries of session {name}, which the journal does not open" for name in strangers),
            *(f"session {name} did not come to its end" for name in unended),
            *(
                f"session {end.session_id}: {len(end.broken)} tests broke without a verdict, first {end.broken[0]}"
                for end in self.ends
                if end.broken
            ),
            *(f"run {run_id} stands in the journal {n} times" for run_id, n in counts.items() if n > 1),
        )


def _without(items: tuple[_T, ...], taken: Iterable[_T]) -> tuple[_T, ...]:
    """``items`` less one of each of ``taken``, the first ones."""
    left = Counter(taken)
    kept = []
    for item in items:
        if left[item] > 0:
            left[item] -= 1
        else:
            kept.append(item)
    return tuple(kept)


def read_journal(folder: Path, *, session_id: str | None = None, as_written: bool = False) -> Journal:
    """All ``*.jsonl`` of a folder (or one file); with ``session_id`` only the files of that session.

    ``as_written``: with what a ``Resume`` took back, for who puts the files of a session together.
    """
    every = [folder] if folder.is_file() else sorted(folder.glob("*.jsonl"))
    if not every:
        raise UserError(
            f"no journal in {folder}",
            found="no *.jsonl file" if folder.is_dir() else "no such folder",
            expected="the journal folder of a run, such as out/journal",
            next_step="run `pytest suites` first, or name its results folder",
        )
    paths = every
    if session_id is not None and folder not in every:
        paths = [path for path in every if path.stem == session_id or path.stem.startswith(f"{session_id}-")]
    entries: list[Entry] = []
    damaged: list[str] = []
    for path in paths:
        entries.extend(_read_file(path, damaged))

    opened = {entry.session_id for entry in entries if isinstance(entry, Session)}
    if session_id is not None and session_id not in opened:
        raise UserError(
            f"{folder} has no session {session_id}",
            found=", ".join(sorted(opened or {path.stem for path in every})[-5:]),
            expected="a session id as the report and the journal's files have it",
            next_step="name another --session, or leave it out to take the newest",
        )

    def of(kind: type) -> tuple:  # type: ignore[type-arg]
        return tuple(entry for entry in entries if isinstance(entry, kind))

    journal = Journal(
        sessions=of(Session),
        plans=of(Plan),
        runs=of(RunRecord),
        references=of(ReferenceFacts),
        logits=of(LogitsComparison),
        windows=of(WindowScores),
        self_checks=of(SelfCheck),
        not_covered=of(NotCovered),
        ends=of(End),
        arms=of(ArmRun),
        baselines=of(Baseline),
        comparisons=of(Comparison),
        comparison_ends=of(ComparisonEnd),
        tasks=of(TaskScore),
        finished=of(Finished),
        resumes=of(Resume),
        damaged=tuple(damaged),
    )
    return journal if as_written else journal.in_effect()


def _read_file(path: Path, damaged: list[str]) -> Iterator[Entry]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as exc:
        raise UserError(
            f"{path} cannot be read",
            found=exc.strerror or str(exc),
            expected="a journal file that this user may read",
            next_step="correct its permissions, or name another journal",
        ) from exc
    tail = lines.pop()
    if tail:
        damaged.append(f"{path.name}: last line cut short after {len(tail)} bytes")
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            body = json.loads(line)
            kind = _KINDS[body["kind"]]
            data = body["entry"]
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise UserError(
                f"{where} is not a journal entry",
                found=repr(line[:80]),
                expected=f"one JSON object of {JOURNAL_SCHEMA}, kind {', '.join(_KINDS)}",
                next_step="restore the file from its run",
            ) from exc
        if kind is Session:
            _check_schema(data, where)
        yield from_json(data, kind, name=where)


def _check_schema(data: object, where: str) -> None:
    """Before the fields are looked at: another schema has other fields, or the same ones with another meaning."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != JOURNAL_SCHEMA:
        raise UserError(
            f"{where}: the session was written by another version of SnapGate",
            found=f"schema {schema!r}",
            expected=JOURNAL_SCHEMA,
            next_step="judge it with the version of SnapGate that wrote it",
        )
