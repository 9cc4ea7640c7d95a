"""A static site over the store: sessions, runs, phones, artifacts and metrics, in pages of bounded size.

Made in a folder beside the target and put in its place when it is whole. A page holds at most ``PER_PAGE`` rows, so
that it opens quickly however many runs there are.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from jinja2 import Template

from harness import __version__
from harness.errors import HostError, UserError
from harness.measure.metrics import METRICS
from harness.record.vocabulary import EMULATION_VOIDS, Source
from harness.results.schema_versions import measurements, runs, sessions
from reports.overview import figure
from reports.render import environment, script_json
from reports.text import clean, counted, moment, short_hash, unit_name

SITE_SCHEMA: Final = "snapgate.site/1"
PER_PAGE: Final = 250
MARKER: Final = "snapgate-site.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    label: str
    kind: str = "text"
    """``text``, ``time``, ``mono``, ``number``, ``status``, ``source`` or ``link`` (a pair of text and address)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One of the pages of a listing."""

    number: int
    n_pages: int
    previous: str
    """Address, or empty"""
    following: str
    pages: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    n_sessions: int
    n_runs: int
    n_pages: int


_RUNS: Final = (
    Column(label="run", kind="mono"),
    Column(label="started", kind="time"),
    Column(label="model, precision, SoC"),
    Column(label="workload"),
    Column(label="phone"),
    Column(label="source", kind="source"),
    Column(label="artifact", kind="mono"),
    Column(label="wall (s)", kind="number"),
    Column(label="outcome", kind="status"),
    Column(label="session", kind="mono"),
)
_SESSIONS: Final = (
    Column(label="session", kind="mono"),
    Column(label="started", kind="time"),
    Column(label="verdict", kind="status"),
    Column(label="runs", kind="number"),
    Column(label="SnapGate"),
)
_PHONES: Final = (
    Column(label="serial", kind="mono"),
    Column(label="phone"),
    Column(label="SoC"),
    Column(label="source", kind="source"),
    Column(label="runs", kind="number"),
    Column(label="runs that failed", kind="number"),
    Column(label="first run", kind="time"),
    Column(label="last run", kind="time"),
)
_ARTIFACTS: Final = (
    Column(label="artifact", kind="mono"),
    Column(label="model, precision, SoC"),
    Column(label="phones", kind="number"),
    Column(label="runs", kind="number"),
    Column(label="runs that failed", kind="number"),
    Column(label="first run", kind="time"),
    Column(label="last run", kind="time"),
)
_METRICS: Final = (
    Column(label="metric", kind="link"),
    Column(label="family"),
    Column(label="unit"),
    Column(label="series", kind="number"),
    Column(label="figures", kind="number"),
)
_SERIES: Final = (
    Column(label="model, precision, SoC"),
    Column(label="phone", kind="mono"),
    Column(label="source", kind="source"),
    Column(label="latest", kind="number"),
    Column(label="verdict", kind="status"),
    Column(label="smallest", kind="number"),
    Column(label="largest", kind="number"),
    Column(label="sessions", kind="number"),
    Column(label="latest session", kind="mono"),
)


def build_site(
    engine: sa.Engine,
    folder: Path,
    *,
    rename: Callable[[str], str] = str,
    progress: Callable[[str], None] = lambda _: None,
) -> Built:
    """Write the site to ``folder``, in the place of an earlier one. A folder that holds something else is refused.
    ``rename``: what a serial is called."""
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARKER).is_file())):
        raise UserError(
            f"{folder} is not a site of SnapGate",
            found="other files",
            expected="a folder that does not exist, is empty, or holds a site",
            next_step="name another folder",
        )
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        if fresh.exists():
            shutil.rmtree(fresh)
        fresh.mkdir(parents=True)
        built = _Site(engine, fresh, rename, progress).build()
        old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as exc:
        raise HostError(
            f"the site {folder} cannot be written", found=str(exc), next_step="free space, or choose another folder"
        ) from exc
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return built


class _Site:
    def __init__(
        self, engine: sa.Engine, folder: Path, rename: Callable[[str], str], progress: Callable[[str], None]
    ) -> None:
        self._rename = rename
        self._engine = engine
        self._folder = folder
        self._progress = progress
        self._template: Template = environment().get_template("site.html.j2")
        self._n_pages = 0

    def build(self) -> Built:
        with self._engine.connect() as connection:
            n_sessions = connection.execute(sa.select(sa.func.count()).select_from(sessions)).scalar_one()
            n_runs = connection.execute(sa.select(sa.func.count()).select_from(runs)).scalar_one()
            self._listing("sessions", "Sessions", _SESSIONS, _session_rows(connection), n_sessions)
            self._progress(f"{n_sessions} sessions")
            self._listing("runs", "Runs", _RUNS, _run_rows(connection, self._rename), n_runs)
            self._progress(f"{n_runs} runs")
            phones = list(_phone_rows(connection, self._rename))
            self._listing("phones", "Phones", _PHONES, iter(phones), len(phones))
            artifacts = list(_artifact_rows(connection))
            self._listing("artifacts", "Artifacts", _ARTIFACTS, iter(artifacts), len(artifacts))
            self._progress(f"{len(phones)} phones, {len(artifacts)} artifacts")
            metrics = self._metrics(connection)
            self._progress(f"{metrics} metrics")
            latest = list(_session_rows(connection, most=10))
            statuses = connection.execute(
                sa.select(sessions.c.status, sa.func.count()).group_by(sessions.c.status).order_by(sessions.c.status)
            ).all()
        facts = [
            (counted(n_sessions, "session"), "sessions.html"),
            (counted(n_runs, "run"), "runs.html"),
            (counted(len(phones), "phone"), "phones.html"),
            (counted(len(artifacts), "artifact"), "artifacts.html"),
            (counted(metrics, "metric"), "metrics.html"),
        ]
        self._page(
            "index.html",
            "Runs of this lab",
            _SESSIONS,
            latest,
            caption="The latest sessions",
            facts=facts,
            statuses=[(row[0], row[1]) for row in statuses],
        )
        marker = {"schema": SITE_SCHEMA, "sessions": n_sessions, "runs": n_runs, "pages": self._n_pages}
        (self._folder / MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")
        return Built(n_sessions=n_sessions, n_runs=n_runs, n_pages=self._n_pages)

    def _metrics(self, connection: sa.Connection) -> int:
        rows = []
        for metric, series in _series_rows(connection, self._rename).items():
            name = f"metric-{metric}"
            self._listing(name, metric, _SERIES, iter(series), len(series), note=METRICS[metric].definition)
            rows.append(
                (
                    (metric, f"{name}.html"),
                    str(METRICS[metric].family),
                    unit_name(METRICS[metric].unit) or "none",
                    len(series),
                    sum(row[7] for row in series),
                )
            )
        self._listing("metrics", "Metrics", _METRICS, iter(rows), len(rows))
        return len(rows)

    def _listing(
        self, name: str, title: str, columns: Sequence[Column], rows: Iterator[Sequence[Any]], n: int, *, note: str = ""
    ) -> None:
        """``rows`` in pages of ``PER_PAGE``: ``name.html``, ``name-2.html`` and so on."""
        n_pages = max(1, -(-n // PER_PAGE))
        names = [f"{name}.html" if number == 1 else f"{name}-{number}.html" for number in range(1, n_pages + 1)]
        for number, address in enumerate(names, start=1):
            shown = list(itertools.islice(rows, PER_PAGE))
            near = sorted({1, n_pages, *range(max(1, number - 3), min(n_pages, number + 3) + 1)})
            place = Place(
                number=number,
                n_pages=n_pages,
                previous=names[number - 2] if number > 1 else "",
                following=names[number] if number < n_pages else "",
                pages=tuple((at, names[at - 1]) for at in near),
            )
            self._page(address, title, columns, shown, caption=f"{title} ({n})", place=place, note=note)

    def _page(
        self,
        address: str,
        title: str,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        *,
        caption: str,
        place: Place | None = None,
        note: str = "",
        facts: Iterable[tuple[str, str]] = (),
        statuses: Iterable[tuple[str, int]] = (),
    ) -> None:
        page = self._template.render(
            title=title,
            version=__version__,
            schema=SITE_SCHEMA,
            columns=columns,
            rows=rows,
            caption=caption,
            place=place or "",
            note=note,
            facts=tuple(facts),
            statuses=tuple(statuses),
            anchors={},
            short={},
            data=script_json({"schema": SITE_SCHEMA, "charts": {}, "stamps": {}}),
        )
        (self._folder / address).write_text(page, encoding="utf-8")
        self._n_pages += 1


def _session_rows(connection: sa.Connection, most: int | None = None) -> Iterator[tuple[Any, ...]]:
    query = sa.select(sessions).order_by(sessions.c.started_at.desc(), sessions.c.session_id.desc()).limit(most)
    for row in connection.execute(query):
        version = clean(str(row.versions.get("snapgate", "not recorded")))
        yield clean(row.session_id), moment(row.started_at), row.status, row.n_runs, version


def _run_rows(connection: sa.Connection, rename: Callable[[str], str]) -> Iterator[tuple[Any, ...]]:
    columns = runs.c
    query = sa.select(
        columns.run_id, columns.started_at, columns.cell, columns.workload, columns.phone, columns.serial,
        columns.source, columns.artifact_id, columns.wall_s, columns.outcome, columns.session_id,
    ).order_by(columns.started_at.desc(), columns.run_id.desc())  # fmt: skip
    for run, started, cell, workload, phone, serial, source, artifact, wall, outcome, session in connection.execute(
        query.execution_options(yield_per=5000)
    ):
        yield (
            clean(run),
            moment(started),
            clean(cell),
            clean(workload),
            clean(f"{phone} {rename(serial)}"),
            source,
            short_hash(artifact),
            f"{wall:.2f}",
            outcome,
            clean(session),
        )


def _failed() -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((runs.c.outcome == "completed", 0), else_=1))


def _phone_rows(connection: sa.Connection, rename: Callable[[str], str]) -> Iterator[tuple[Any, ...]]:
    query = (
        sa.select(
            runs.c.serial, sa.func.max(runs.c.phone), runs.c.part, runs.c.source, sa.func.count(), _failed(),
            sa.func.min(runs.c.started_at), sa.func.max(runs.c.started_at),
        )
        .group_by(runs.c.serial, runs.c.part, runs.c.source)
        .order_by(runs.c.serial, runs.c.part, runs.c.source)
    )  # fmt: skip
    for serial, phone, part, source, n, failed, first, last in connection.execute(query):
        yield clean(rename(serial)), clean(phone), clean(part), source, n, failed, moment(first), moment(last)


def _artifact_rows(connection: sa.Connection) -> Iterator[tuple[Any, ...]]:
    query = (
        sa.select(
            runs.c.artifact_id, runs.c.cell, sa.func.count(sa.distinct(runs.c.serial)), sa.func.count(), _failed(),
            sa.func.min(runs.c.started_at), sa.func.max(runs.c.started_at),
        )
        .group_by(runs.c.artifact_id, runs.c.cell)
        .order_by(sa.func.max(runs.c.started_at).desc(), runs.c.artifact_id)
    )  # fmt: skip
    for artifact, cell, phones, n, failed, first, last in connection.execute(query):
        yield short_hash(artifact), clean(cell), phones, n, failed, moment(first), moment(last)


def _series_rows(connection: sa.Connection, rename: Callable[[str], str]) -> dict[str, list[tuple[Any, ...]]]:
    """Metric to its series, in the catalogue's order; the latest figure comes from whichever session started last."""
    heads = connection.execute(sa.select(sessions.c.session_id, sessions.c.started_at)).all()
    started = {head.session_id: head.started_at for head in heads}
    c = measurements.c
    query = sa.select(c.metric, c.cell, c.serial, c.source, c.value, c.status, c.session_id).where(c.value.is_not(None))
    found: dict[tuple[str, str, str, str], list[Any]] = {}
    for metric, cell, serial, source, value, status, session in connection.execute(
        query.execution_options(yield_per=20000)
    ):
        if not math.isfinite(value):
            continue
        key = (metric, cell, serial, source)
        at = started.get(session, "")
        known = found.get(key)
        if known is None:
            found[key] = [at, value, status, session, value, value, 1]
            continue
        if (at, session) >= (known[0], known[3]):
            known[:4] = at, value, status, session
        known[4] = min(known[4], value)
        known[5] = max(known[5], value)
        known[6] += 1
    by_metric: dict[str, list[tuple[Any, ...]]] = {}
    for (metric, cell, serial, source), (_, value, status, session, low, high, n) in sorted(found.items()):
        if metric not in METRICS:
            continue
        unit = METRICS[metric].unit
        emulated = source == str(Source.VIRTUAL) and METRICS[metric].family in EMULATION_VOIDS
        by_metric.setdefault(metric, []).append(
            (
                clean(cell),
                clean(rename(serial) or "no phone"),
                "emulated" if emulated else source,
                f"{figure(value, unit).text} {unit_name(unit)}".strip(),
                status,
                figure(low, unit).text,
                figure(high, unit).text,
                n,
                clean(session),
            )
        )
    return {metric: by_metric[metric] for metric in METRICS if metric in by_metric}
