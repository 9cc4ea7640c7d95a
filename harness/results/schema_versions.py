"""The tables of the store, and how a store of an older version becomes one of this version.

Every version is a function that is run once, in order, each in one transaction. A version that was released is never
edited: a change of the tables is a new function at the end of ``VERSIONS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from harness.errors import UserError
from harness.record.run import QNN

metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("session_id", sa.String, primary_key=True),
    sa.Column("journal_sha256", sa.String, nullable=False, comment="of the session's journal files"),
    sa.Column("limits_sha256", sa.String, nullable=False, comment="of the limits it was judged by"),
    sa.Column("started_at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("status", sa.String, nullable=False, comment="verdict of the session"),
    sa.Column("n_runs", sa.Integer, nullable=False),
    sa.Column("versions", sa.JSON, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", sa.String, primary_key=True),
    sa.Column("session_id", sa.String, nullable=False),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("cell", sa.String, nullable=False),
    sa.Column("part", sa.String, nullable=False),
    sa.Column("workload", sa.String, nullable=False),
    sa.Column("started_at", sa.String, nullable=False),
    sa.Column("wall_s", sa.Float, nullable=False),
    sa.Column("serial", sa.String, nullable=False),
    sa.Column("phone", sa.String, nullable=False),
    sa.Column("artifact_id", sa.String, nullable=False),
    sa.Column("outcome", sa.String, nullable=False, comment="completed, FAIL or INFRA"),
    sa.Column("runtime", sa.String, nullable=False, server_default=QNN, comment="what executed the model"),
)

measurements = sa.Table(
    "measurements",
    metadata,
    sa.Column("measurement_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("session_id", sa.String, nullable=False),
    sa.Column("metric", sa.String, nullable=False),
    sa.Column("cell", sa.String, nullable=False),
    sa.Column("serial", sa.String, nullable=False, comment="empty when no phone was involved"),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("artifact_id", sa.String, nullable=False, comment="several are joined by +"),
    sa.Column("value", sa.Float, comment="null: not measured"),
    sa.Column("ci_low", sa.Float),
    sa.Column("ci_high", sa.Float),
    sa.Column("n_samples", sa.Integer, nullable=False),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("refuted_by", sa.String, nullable=False),
    sa.Column("reason", sa.String),
    sa.Column("run_ids", sa.JSON, nullable=False),
)

series_index = sa.Index("ix_measurements_series", measurements.c.metric, measurements.c.cell, measurements.c.serial)
sessions_index = sa.Index("ix_measurements_session", measurements.c.session_id)
runs_index = sa.Index("ix_runs_started", runs.c.started_at, runs.c.run_id)
runs_session_index = sa.Index("ix_runs_session", runs.c.session_id)


def _tables(connection: sa.Connection) -> None:
    for table in (sessions, runs, measurements):
        connection.execute(sa.schema.CreateTable(table))


def _indexes(connection: sa.Connection) -> None:
    for index in (series_index, sessions_index, runs_index, runs_session_index):
        connection.execute(sa.schema.CreateIndex(index))


def _runtime(connection: sa.Connection) -> None:
    """Stores made by this version or later have the column from the first table on."""
    if "runtime" not in {column["name"] for column in sa.inspect(connection).get_columns("runs")}:
        connection.execute(sa.text(f"ALTER TABLE runs ADD COLUMN runtime VARCHAR NOT NULL DEFAULT '{QNN}'"))


VERSIONS: Final[tuple[Callable[[sa.Connection], None], ...]] = (_tables, _indexes, _runtime)


def migrate(engine: sa.Engine, *, to: int = len(VERSIONS)) -> int:
    """Bring the store to version ``to``; returns the version that it had, 0 for an empty database."""
    with engine.begin() as connection:
        if not sa.inspect(connection).has_table("schema_version"):
            schema_version.create(connection)
            connection.execute(schema_version.insert().values(version=0))
        found = connection.execute(sa.select(schema_version.c.version)).scalar_one()
    if found > len(VERSIONS):
        raise UserError(
            "the store was made by a newer SnapGate",
            found=f"schema version {found}",
            expected=f"at most {len(VERSIONS)}",
            next_step="update SnapGate, or name another database",
        )
    for version in range(found + 1, to + 1):
        with engine.begin() as connection:
            VERSIONS[version - 1](connection)
            connection.execute(schema_version.update().values(version=version))
    return int(found)
