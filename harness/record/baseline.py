"""A baseline: figures of one session that somebody promoted, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.record.run import Cell
from harness.record.vocabulary import Source

BASELINE_SCHEMA: Final = "snapgate.baseline/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFigure:
    metric: str
    cell: Cell
    source: Source
    serial: str
    samples: tuple[float, ...]
    run_ids: tuple[str, ...]
    identity: dict[str, str]
    """What has to be equal for a comparison to mean anything: field to value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    schema: str
    reason: str
    measured_at: str
    """UTC, ISO 8601: the start of its last run. Its age counts from here."""
    promoted_at: str
    session_ids: tuple[str, ...]
    figures: tuple[BaselineFigure, ...]
