"""Limits and the verdicts they lead to."""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.run import Cell
from harness.record.vocabulary import Family, Source, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One absolute limit of limits.toml. ``*`` matches anything; the most specific limit wins, later ones on a tie."""

    metric: str
    model: str = "*"
    precision: str = "*"
    kv: str = "*"
    soc: str = "*"
    """Part or marker"""
    minimum: float | None = None
    maximum: float | None = None
    reason: str
    """Where the figure comes from"""
    date: str
    """ISO date of the figure"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One metric of one cell, with the samples behind it. ``value is None``: not measured, ``reason`` says why."""

    metric: str
    cell: Cell
    source: Source
    serial: str | None
    """None when no phone was involved"""
    value: float | None
    samples: tuple[float, ...]
    interval: tuple[float, float] | None
    """95 % confidence interval of ``value``; None where the metric is exact or has fewer than two samples."""
    run_ids: tuple[str, ...]
    reason: str | None
    refuted_by: tuple[str, ...]
    """Names of conditions or self-checks that make this figure INVALID."""
    error: Status | None
    """FAIL or INFRA when the run itself failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    metric: str
    family: Family
    unit: str
    cell: Cell
    serial: str | None
    source: Source
    status: Status
    required: bool
    value: float | None
    interval: tuple[float, float] | None
    n_samples: int
    limit: Limit | None
    reason: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The whole session: the worst required metric decides."""

    status: Status
    decided_by: tuple[str, ...]
    """``metric @ cell`` of the required metrics that have this status, at most 5."""
    n_by_status: dict[str, int]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    """Said aloud beside the verdict, e.g. ``speed: not judged (emulated)``."""
