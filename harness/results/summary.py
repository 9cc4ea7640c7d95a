"""A journal's figures again, as a table, JSON or CSV: the same code as a live run, and no phone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from harness.journal import Journal
from harness.record.artifact import ArtifactManifest
from harness.results import frames
from harness.results.derive import derive
from harness.results.efficiency import roofline_frame
from harness.results.speed import steadiness_of

CONDITION_COLUMNS: Final = (
    "run_id", "cell", "serial", "prompt_id", "repetition", "warmup", "condition", "first_token", "last_token",
    "start_ms", "end_ms", "decode_tps",
)  # fmt: skip
SUMMARY_SCHEMA: Final = "snapgate.summary/1"


def _measurements(journal: Journal) -> pd.DataFrame:
    return frames.measurements_frame(derive(journal))


def _conditions(journal: Journal) -> pd.DataFrame:
    """One row per window of a generation: cold, warming, steady, throttled or slowed. ``first_token`` is excluded,
    ``last_token`` included: a window is made of gaps. Generations too short to tell have no row."""

    def rows() -> Iterator[list[Any]]:
        for run in journal.runs:
            for g in run.log.generations:
                state = steadiness_of(run, g)
                for w in state.windows if state else ():
                    elapsed = [(g.token_ns[i] - g.start_ns) / 1e6 for i in (w.first, w.end)]
                    key = [run.run_id, str(run.cell), run.device.serial, g.prompt_id, g.repetition, g.warmup]
                    yield [*key, str(w.condition), w.first, w.end, *elapsed, w.tps]

    return pd.DataFrame(rows(), columns=list(CONDITION_COLUMNS))


TABLES: Final[Mapping[str, Callable[[Journal], pd.DataFrame]]] = MappingProxyType(
    {
        "measurements": _measurements,
        "runs": frames.runs_frame,
        "generations": frames.generations_frame,
        "tokens": frames.tokens_frame,
        "sensors": frames.sensors_frame,
        "phases": frames.phases_frame,
        "positions": frames.positions_frame,
        "windows": frames.windows_frame,
        "conditions": _conditions,
    }
)
"""What can be asked for, by name; units are in the columns' names, or in a column ``unit``."""
ROOFLINE: Final = "roofline"
"""Needs the artifacts' manifests besides the journal."""
CHOICES: Final = (*TABLES, ROOFLINE)
_SHOWN: Final = ("metric", "value", "unit", "ci_low", "ci_high", "n_samples", "cell", "serial", "source", "note")
FORMATS: Final = ("table", "json", "csv")


def summary(
    journal: Journal,
    *,
    what: str = "measurements",
    form: str = "table",
    manifests: Mapping[str, ArtifactManifest] = MappingProxyType({}),
) -> str:
    """``what`` is one of ``CHOICES``, ``form`` one of ``FORMATS``. JSON and CSV have all columns, unrounded."""
    frame = roofline_frame(journal, manifests) if what == ROOFLINE else TABLES[what](journal)
    if form == "csv":
        return _joined(frame).to_csv(index=False, lineterminator="\n")
    if form == "json":
        rows = [{name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]
        return json.dumps({"schema": SUMMARY_SCHEMA, "table": what, "rows": rows}, indent=1, allow_nan=False) + "\n"
    shown = _for_people(frame) if what == "measurements" else _joined(frame)
    if shown.empty:
        return f"no {what} in this journal\n"
    text = shown.to_string(index=False, na_rep="-", float_format=lambda value: f"{value:.6g}")
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def _for_people(frame: pd.DataFrame) -> pd.DataFrame:
    """Without the columns that repeat each other; what refutes a figure stands beside it."""
    notes = [
        f"refuted by {refuted}" if refuted else (reason or "")
        for refuted, reason in zip(frame["refuted_by"], frame["reason"], strict=True)
    ]
    return frame.assign(note=notes).loc[:, list(_SHOWN)]


def _joined(frame: pd.DataFrame) -> pd.DataFrame:
    """Tuples become text with spaces."""
    if "run_ids" not in frame:
        return frame
    return frame.assign(run_ids=[" ".join(ids) for ids in frame["run_ids"]])


def _plain(value: Any) -> Any:
    """What JSON holds: NaN and infinities become null, numpy numbers become Python's."""
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "item"):
        value = value.item()
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
