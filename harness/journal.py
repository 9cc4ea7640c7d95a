"""The append-only journal: JSON Lines, one entry a line, fsynced before anything is computed from it.

A journal is a folder. Each process appends to a file of its own (``<session>-<worker>.jsonl``), so no two writers
share a file; a reader merges them. A last line that a crash cut short is dropped on reading and named in
``Journal.damaged``; a damaged line anywhere else is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.errors import UserError
from harness.record.ab import ArmRun
from harness.record.codec import from_json, to_json
from harness.record.comparison import LogitsComparison, ReferenceFacts, SelfCheck, WindowScores
from harness.record.run import Cell, RunRecord
from harness.record.vocabulary import Source, Status

JOURNAL_SCHEMA: Final = "snapgate.journal/1"


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


Entry = Session | Plan | RunRecord | ReferenceFacts | LogitsComparison | WindowScores | SelfCheck | NotCovered | ArmRun

_KINDS: dict[str, type[Entry]] = {
    "session": Session,
    "plan": Plan,
    "run": RunRecord,
    "reference": ReferenceFacts,
    "logits": LogitsComparison,
    "windows": WindowScores,
    "self_check": SelfCheck,
    "not_covered": NotCovered,
    "arm": ArmRun,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class JournalWriter:
    """Appends entries to one file. ``append`` returns only once the entry is on disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, entry: Entry) -> None:
        body = {"kind": _NAMES[type(entry)], "entry": to_json(entry)}
        line = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


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
    damaged: tuple[str, ...] = field(default=())


def read_journal(folder: Path, *, session_id: str | None = None) -> Journal:
    """All ``*.jsonl`` of a folder (or one file); with ``session_id`` only the files of that session."""
    if folder.is_file():
        paths = [folder]
    else:
        pattern = "*.jsonl" if session_id is None else f"{session_id}*.jsonl"
        paths = sorted(folder.glob(pattern))
    if not paths:
        raise UserError(
            f"no journal in {folder}",
            found="no *.jsonl file",
            next_step="run `pytest suites` first, or name its results folder",
        )
    entries: list[Entry] = []
    damaged: list[str] = []
    for path in paths:
        entries.extend(_read_file(path, damaged))

    def of(kind: type) -> tuple:  # type: ignore[type-arg]
        return tuple(entry for entry in entries if isinstance(entry, kind))

    return Journal(
        sessions=of(Session),
        plans=of(Plan),
        runs=of(RunRecord),
        references=of(ReferenceFacts),
        logits=of(LogitsComparison),
        windows=of(WindowScores),
        self_checks=of(SelfCheck),
        not_covered=of(NotCovered),
        arms=of(ArmRun),
        damaged=tuple(damaged),
    )


def _read_file(path: Path, damaged: list[str]) -> Iterator[Entry]:
    lines = path.read_bytes().split(b"\n")
    tail = lines.pop()
    if tail:
        damaged.append(f"{path.name}: last line cut short after {len(tail)} bytes")
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            body = json.loads(line)
            kind = _KINDS[body["kind"]]
            data = body["entry"]
        except (ValueError, KeyError, TypeError) as exc:
            raise UserError(
                f"{where} is not a journal entry", found=repr(line[:80]), next_step="restore the file from its run"
            ) from exc
        yield from_json(data, kind, name=where)
