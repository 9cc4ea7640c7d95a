"""Trends of a metric over sessions, and where its level changed. Needs the extra ``history``.

A series is one metric of one model cell on one phone, a point per session. ``change_points`` looks for changes of level
with PELT (``ruptures``): exact and deterministic, the same points always give the same changes. The noise is taken from
the differences of neighbours, so that a change of level does not count as noise.
"""

from __future__ import annotations

import fnmatch
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from harness.errors import UserError
from harness.measure.metrics import METRICS
from harness.record.vocabulary import Source
from harness.results.schema_versions import measurements, runs, sessions

MIN_SEGMENT: Final = 3
"""Sessions that a level must hold: a change is seen when three sessions have the new level."""
MIN_POINTS: Final = 8
_PENALTY: Final = 6.0
"""Times log(n) (1 + 10 / n), in units of the noise's variance: noise alone shows a change in under 2 % of series."""
_SPIKE: Final = 4.0
"""A session further than this from its neighbours' median, in units of noise, counts as if it were so far only."""
_KEYS: Final = frozenset({"date", "note", "metric", "cell", "serial"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    session_id: str
    started_at: str
    artifact_id: str
    value: float
    ci_low: float | None
    ci_high: float | None
    n_samples: int
    status: str
    refuted_by: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownChange:
    """Something that somebody did, from the file of known changes. ``*`` matches anything."""

    date: str
    note: str
    metric: str = "*"
    cell: str = "*"
    serial: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    first: Point
    """The first point of the new level"""
    last: Point
    """The last point of the old one"""
    before: float
    """Median of the old level"""
    after: float
    n_before: int
    n_after: int
    better: bool | None
    """None: the metric has no good direction"""
    known: tuple[str, ...]
    """Notes of known changes between ``last`` and ``first``"""

    @property
    def first_run(self) -> str:
        """The first run after which the metric had moved."""
        return self.first.run_ids[0] if self.first.run_ids else "none"

    @property
    def relative(self) -> float | None:
        """Change in parts of the old level; None where that is 0."""
        return None if self.before == 0 else (self.after - self.before) / abs(self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    metric: str
    unit: str
    better: str
    cell: str
    serial: str
    phone: str
    source: str
    points: tuple[Point, ...]
    changes: tuple[LevelChange, ...]
    n_left_out: int
    """Refuted points of a real phone: drawn, but not looked at for changes"""


def read_series(
    engine: sa.Engine, *, metrics: Sequence[str] = (), known: Sequence[KnownChange] = ()
) -> tuple[Series, ...]:
    """Every series of the store that has a value, ordered by cell, phone and catalogue; ``metrics``: only these."""
    unknown = sorted(set(metrics) - set(METRICS))
    if unknown:
        raise UserError(
            "no such metric", found=unknown[0], expected="a metric of the catalogue", next_step="see `snapgate metrics`"
        )
    m = measurements.c
    query = (
        sa.select(measurements, sessions.c.started_at)
        .join(sessions, sessions.c.session_id == m.session_id)
        .where(m.value.is_not(None))
        .order_by(sessions.c.started_at, m.session_id)
    )
    if metrics:
        query = query.where(m.metric.in_(metrics))
    grouped: dict[tuple[str, str, str, str], list[Point]] = {}
    with engine.connect() as connection:
        phones = dict(
            connection.execute(sa.select(runs.c.serial, sa.func.max(runs.c.phone)).group_by(runs.c.serial)).all()
        )
        for row in connection.execute(query):
            if row.metric in METRICS and math.isfinite(row.value):
                grouped.setdefault((row.cell, row.serial, row.source, row.metric), []).append(_point(row))
    order = {name: index for index, name in enumerate(METRICS)}
    return tuple(
        make_series(
            metric=metric,
            cell=cell,
            serial=serial,
            phone=phones.get(serial, ""),
            source=source,
            points=points,
            known=known,
        )
        for (cell, serial, source, metric), points in sorted(
            grouped.items(), key=lambda item: (*item[0][:3], order[item[0][3]])
        )
    )


def make_series(
    *,
    metric: str,
    cell: str,
    serial: str,
    phone: str,
    source: str,
    points: Sequence[Point],
    known: Sequence[KnownChange] = (),
) -> Series:
    """A series with its changes. On a real phone only points that nothing refutes are looked at."""
    looked_at = [point for point in points if source != str(Source.PHONE) or not point.refuted_by]
    borders = (0, *change_points([point.value for point in looked_at]), len(looked_at))
    better = METRICS[metric].better
    fitting = [k for k in known if _fits(k, metric, cell, serial)]
    changes = []
    for start, middle, end in zip(borders, borders[1:], borders[2:], strict=False):
        last, first = looked_at[middle - 1], looked_at[middle]
        before = float(np.median([point.value for point in looked_at[start:middle]]))
        after = float(np.median([point.value for point in looked_at[middle:end]]))
        changes.append(
            LevelChange(
                first=first,
                last=last,
                before=before,
                after=after,
                n_before=middle - start,
                n_after=end - middle,
                better=None if better == "equal" else (after > before) is (better == "higher"),
                known=tuple(k.note for k in fitting if last.started_at[:10] <= k.date <= first.started_at[:10]),
            )
        )
    return Series(
        metric=metric,
        unit=METRICS[metric].unit,
        better=better,
        cell=cell,
        serial=serial,
        phone=phone,
        source=source,
        points=tuple(points),
        changes=tuple(changes),
        n_left_out=len(points) - len(looked_at),
    )


def change_points(values: Sequence[float]) -> tuple[int, ...]:
    """Indices at which a new level begins, each level at least ``MIN_SEGMENT`` long; none for under ``MIN_POINTS``."""
    n = len(values)
    if n < MIN_POINTS:
        return ()
    import ruptures

    series = np.asarray(values, dtype=np.float64)
    steps = np.diff(series)
    middle = float(np.median(series))
    moving = steps[steps != 0]
    steps = moving if 2 * len(moving) > len(steps) else steps  # a stretch of equal values says nothing about noise
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2.0)
    noise = max(noise, 1e-9 * abs(middle), 1e-12)
    local = np.array([np.median(series[max(0, i - 2) : i + 3]) for i in range(n)])
    calm = np.clip(series, local - _SPIKE * noise, local + _SPIKE * noise)
    scaled = ((calm - middle) / noise).reshape(-1, 1)
    search = ruptures.Pelt(model="l2", min_size=MIN_SEGMENT, jump=1).fit(scaled)
    return tuple(int(index) for index in search.predict(pen=_PENALTY * math.log(n) * (1 + 10 / n))[:-1])


def load_known_changes(path: Path) -> tuple[KnownChange, ...]:
    """``[[change]]`` tables: ``date`` (a TOML date), ``note``; optionally ``metric``, ``cell``, ``serial`` (``*``)."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise UserError(f"{path} does not exist", next_step="name the file of known changes") from exc
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise UserError(f"{path} cannot be read as TOML", found=str(exc)) from exc
    entries = data.pop("change", [])
    if data or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(
            f"{path}: unknown content", found=", ".join(data) or "change", expected="only [[change]] tables"
        )
    return tuple(_known(entry, f"{path}, change {number}") for number, entry in enumerate(entries, start=1))


def _known(entry: dict[str, Any], where: str) -> KnownChange:
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise UserError(f"{where}: unknown key", found=unknown[0], expected=", ".join(sorted(_KEYS)))
    for key in ("date", "note"):
        if key not in entry:
            raise UserError(f"{where}: {key} is missing", expected='date = 2026-12-01 and note = "what was done"')
    date = entry["date"]
    if not hasattr(date, "isoformat") or len(date.isoformat()) != len("2026-12-01"):
        raise UserError(f"{where}: date is no date", found=repr(date), expected="2026-12-01, without quotes")
    texts = {key: value for key, value in entry.items() if key != "date"}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise UserError(f"{where}: {key} is no text", found=repr(value))
    return KnownChange(date=date.isoformat(), **texts)


def _fits(known: KnownChange, metric: str, cell: str, serial: str) -> bool:
    pairs = ((metric, known.metric), (cell, known.cell), (serial, known.serial))
    return all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs)


def _point(row: Any) -> Point:
    return Point(
        session_id=row.session_id,
        started_at=row.started_at,
        artifact_id=row.artifact_id,
        value=row.value,
        ci_low=row.ci_low,
        ci_high=row.ci_high,
        n_samples=row.n_samples,
        status=row.status,
        refuted_by=row.refuted_by,
        run_ids=tuple(row.run_ids),
    )
