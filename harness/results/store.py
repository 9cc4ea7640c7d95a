"""Runs of many sessions in one SQL database: SQLite by default, PostgreSQL by URL.

The journals are the truth. The store holds what can be computed from them, for questions over many sessions, and can be
thrown away and made again at any time. Importing a session a second time changes nothing; a session whose journal or
limits have changed replaces what was there. Needs the extra ``history``.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from harness.errors import HostError, UserError, first_line
from harness.journal import Journal, read_journal
from harness.record.artifact import sha256_of
from harness.record.codec import to_json
from harness.record.verdict import Limit
from harness.results.derive import derive, session_source
from harness.results.gate import judge_journal
from harness.results.schema_versions import measurements, metadata, migrate, runs, sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    added: tuple[str, ...]
    """Session ids"""
    replaced: tuple[str, ...]
    unchanged: tuple[str, ...]


@contextlib.contextmanager
def open_store(url: str) -> Iterator[sa.Engine]:
    """The database of ``url``, brought to this version. ``history.db`` alone is a SQLite file.

    Raises ``UserError`` for a URL that means nothing, ``HostError`` when the database does not answer as it should.
    """
    try:
        address = sa.make_url(url if "://" in url else f"sqlite:///{url}")
        if address.drivername == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
        if address.get_backend_name() not in ("sqlite", "postgresql"):
            raise UserError(f"{url} is no database for a store", expected="a SQLite file, or postgresql://...")
        engine = sa.create_engine(address)
    except (ArgumentError, NoSuchModuleError, ValueError) as exc:
        raise UserError(f"{url} is no database URL", found=str(exc), expected="FILE or postgresql://...") from exc
    shown = address.render_as_string(hide_password=True)
    try:
        if address.get_backend_name() == "sqlite":
            if address.database:
                Path(address.database).parent.mkdir(parents=True, exist_ok=True)
            sa.event.listen(engine, "connect", _sqlite_settings)
        migrate(engine)
        yield engine
    except (SQLAlchemyError, OSError) as exc:
        raise HostError(
            f"the store {shown} failed",
            found=first_line(exc)[:300],
            next_step="look at the database; the store can be made again with `snapgate store import --rebuild`",
        ) from exc
    finally:
        engine.dispose()


def clear(engine: sa.Engine) -> None:
    """Remove everything and begin with the newest schema."""
    metadata.drop_all(engine)
    migrate(engine)


def import_journals(
    engine: sa.Engine,
    folders: Iterable[Path],
    limits: tuple[Limit, ...],
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Put every session of the journal folders into the store, each in one transaction."""
    limits_sha256 = hashlib.sha256(repr(to_json_limits(limits)).encode()).hexdigest()
    added: list[str] = []
    replaced: list[str] = []
    unchanged: list[str] = []
    for folder in folders:
        grouped = group_files(folder)
        for number, (session_id, files) in enumerate(sorted(grouped.items()), start=1):
            digest = hashlib.sha256("".join(sha256_of(path) for path in files).encode()).hexdigest()
            with engine.begin() as connection:
                known = connection.execute(
                    sa.select(sessions.c.journal_sha256, sessions.c.limits_sha256).where(
                        sessions.c.session_id == session_id
                    )
                ).first()
                if known is not None and tuple(known) == (digest, limits_sha256):
                    unchanged.append(session_id)
                    continue
                for table in (sessions, runs, measurements):
                    connection.execute(table.delete().where(table.c.session_id == session_id))
                _insert(connection, session_id, merged(map(read_journal, files)), limits, digest, limits_sha256)
            (added if known is None else replaced).append(session_id)
            progress(f"{folder}: session {number} of {len(grouped)}: {session_id}")
    return Imported(added=tuple(added), replaced=tuple(replaced), unchanged=tuple(unchanged))


def to_json_limits(limits: Iterable[Limit]) -> list[Any]:
    return [to_json(limit) for limit in limits]


def group_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Session id to its journal files: the file with the ``Session`` entry, and its workers' ``<session>-*.jsonl``."""
    paths = [folder] if folder.is_file() else sorted(folder.glob("*.jsonl"))
    if not paths:
        raise UserError(f"no journal in {folder}", found="no *.jsonl file", next_step="name a journal folder")
    heads: dict[Path, str] = {}
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as stream:
            if stream.readline(20).startswith('{"kind":"session"'):
                found = read_journal(path).sessions
                heads[path] = found[0].session_id
    groups: dict[str, list[Path]] = {}
    for path in paths:
        owner = heads.get(path)
        if owner is None:
            fitting = [session for session in heads.values() if path.stem.startswith(f"{session}-")]
            owner = max(fitting, key=len, default=path.stem)
        groups.setdefault(owner, []).append(path)
    return {session: tuple(files) for session, files in groups.items()}


def merged(parts: Iterable[Journal]) -> Journal:
    """Several journals of one session as one."""
    parts = list(parts)
    return Journal(**{f.name: tuple(x for part in parts for x in getattr(part, f.name)) for f in fields(Journal)})


def _insert(
    connection: sa.Connection,
    session_id: str,
    journal: Journal,
    limits: tuple[Limit, ...],
    digest: str,
    limits_sha256: str,
) -> None:
    found = derive(journal)
    verdict = judge_journal(journal, limits)
    statuses = {(v.metric, str(v.cell), v.serial, v.source): str(v.status) for v in verdict.verdicts}
    override = session_source(journal)
    artifacts = {run.run_id: run.artifact_id for run in journal.runs}
    started = min((s.started_at for s in journal.sessions), default="") or min(
        (run.started_at for run in journal.runs), default=""
    )
    connection.execute(
        sessions.insert(),
        {
            "session_id": session_id,
            "journal_sha256": digest,
            "limits_sha256": limits_sha256,
            "started_at": started,
            "status": str(verdict.status),
            "n_runs": len(journal.runs),
            "versions": {k: v for s in journal.sessions for k, v in s.versions.items()},
        },
    )
    if journal.runs:
        connection.execute(
            runs.insert(),
            [
                {
                    "run_id": run.run_id,
                    "session_id": session_id,
                    "source": str(override or run.source),
                    "cell": str(run.cell),
                    "part": run.cell.part,
                    "workload": run.workload,
                    "started_at": run.started_at,
                    "wall_s": run.wall_s,
                    "serial": _storable(run.device.serial),
                    "phone": _storable(run.device.model),
                    "artifact_id": run.artifact_id,
                    "outcome": "completed" if run.error is None else str(run.error.status),
                    "runtime": _storable(run.runtime),
                }
                for run in journal.runs
            ],
        )
    if found:
        connection.execute(
            measurements.insert(),
            [
                {
                    "session_id": session_id,
                    "metric": m.metric,
                    "cell": str(m.cell),
                    "serial": _storable(m.serial or ""),
                    "source": str(m.source),
                    "artifact_id": "+".join(sorted({artifacts[i] for i in m.run_ids if i in artifacts})),
                    "value": m.value,
                    "ci_low": m.interval[0] if m.interval else None,
                    "ci_high": m.interval[1] if m.interval else None,
                    "n_samples": len(m.samples),
                    "status": statuses.get((m.metric, str(m.cell), m.serial, m.source), "NOT_COVERED"),
                    "refuted_by": _storable("; ".join(m.refuted_by)),
                    "reason": None if m.reason is None else _storable(m.reason),
                    "run_ids": list(m.run_ids),
                }
                for m in found
            ],
        )


def _storable(text: str) -> str:
    """PostgreSQL holds neither NUL nor half a surrogate pair; a phone's text may."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _sqlite_settings(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
