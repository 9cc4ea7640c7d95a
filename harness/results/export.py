"""Raw samples of a journal as files for notebooks and databases: one tidy table a file, CSV or Parquet.

``index.json`` beside them (schema ``snapgate.export/1``) names every table with its columns, rows and sha256. It is
written last: a folder without it is an export that did not finish.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.errors import HostError
from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.record.artifact import sha256_of
from harness.record.codec import write_json
from harness.record.verdict import Measurement
from harness.results.derive import derive
from harness.results.summary import TABLES

EXPORT_SCHEMA: Final = "snapgate.export/1"
INDEX_NAME: Final = "index.json"
SAMPLE_COLUMNS: Final = (
    "metric", "family", "unit", "cell", "model", "precision", "kv", "part", "serial", "source", "sample_index", "value",
    "refuted_by",
)  # fmt: skip
_TEXT: Final = frozenset({"object", "str", "string"})


class TableFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedColumn:
    name: str
    type: str
    """``text``, ``bool``, ``int64`` or ``float64``. The unit is in the name, or in the column ``unit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    name: str
    file: str
    sha256: str
    n_rows: int
    columns: tuple[ExportedColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportIndex:
    schema: str
    format: str
    sessions: tuple[str, ...]
    tables: tuple[ExportedTable, ...]
    damaged: tuple[str, ...]
    """What of the journal could not be read"""


def samples_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """One row per sample behind each measurement, in order; ``refuted_by`` not empty: the figure is INVALID."""
    rows = [
        [
            item.metric,
            str(METRICS[item.metric].family),
            METRICS[item.metric].unit,
            str(item.cell),
            item.cell.model,
            str(item.cell.precision),
            str(item.cell.kv),
            item.cell.part,
            item.serial,
            str(item.source),
            index,
            value,
            "; ".join(item.refuted_by),
        ]
        for item in measurements
        for index, value in enumerate(item.samples)
    ]
    return pd.DataFrame(rows, columns=list(SAMPLE_COLUMNS))


def _samples(journal: Journal) -> pd.DataFrame:
    return samples_frame(derive(journal))


EXPORTED: Final[dict[str, Callable[[Journal], pd.DataFrame]]] = {**TABLES, "samples": _samples}


def export(
    journal: Journal, folder: Path, form: TableFormat, *, progress: Callable[[str], None] = lambda _: None
) -> ExportIndex:
    """Write every table of ``EXPORTED`` and the index to ``folder``; each file all or nothing.

    A figure that was not measured is an empty field (CSV) or null (Parquet), never 0. CSV keeps every digit: a number
    read back is the same number. Parquet needs pyarrow (extra ``parquet``); raises ``HostError`` without it.
    """
    if form is TableFormat.PARQUET and importlib.util.find_spec("pyarrow") is None:
        raise HostError(
            "Parquet files cannot be written here",
            found="no Python package pyarrow",
            next_step="pip install 'snapgate[parquet]', or use --format csv",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX_NAME).unlink(missing_ok=True)
        tables = []
        for name, make in EXPORTED.items():
            frame = _flat(make(journal))
            path = folder / f"{name}.{form}"
            _write(frame, path, form)
            progress(f"{path}: {len(frame)} rows")
            tables.append(
                ExportedTable(
                    name=name,
                    file=path.name,
                    sha256=sha256_of(path),
                    n_rows=len(frame),
                    columns=tuple(ExportedColumn(name=str(c), type=_type_of(frame[c])) for c in frame.columns),
                )
            )
        index = ExportIndex(
            schema=EXPORT_SCHEMA,
            format=str(form),
            sessions=tuple(dict.fromkeys(session.session_id for session in journal.sessions)),
            tables=tuple(tables),
            damaged=journal.damaged,
        )
        write_json(folder / INDEX_NAME, index)
    except OSError as exc:
        raise HostError(
            f"{folder} cannot be written", found=str(exc), next_step="free space, or choose another folder"
        ) from exc
    return index


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Run ids as text with spaces, and columns of text as text even where all of them are missing."""
    changed: dict[str, Any] = {}
    for column in frame.columns:
        values = frame[column]
        if any(isinstance(value, tuple) for value in values):
            changed[str(column)] = [" ".join(value) for value in values]
        elif str(values.dtype) == "object" and not any(isinstance(value, str) for value in values):
            changed[str(column)] = pd.array([None if pd.isna(v) else str(v) for v in values], dtype="string")
    return frame.assign(**changed)


def _type_of(values: pd.Series[Any]) -> str:
    name = str(values.dtype)
    return "text" if name in _TEXT else name


def _write(frame: pd.DataFrame, path: Path, form: TableFormat) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if form is TableFormat.PARQUET:
            frame.to_parquet(temporary, index=False, engine="pyarrow", compression="zstd")
        else:
            frame.to_csv(temporary, index=False, lineterminator="\n", encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
