"""Limits and the verdicts they lead to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from harness.record.run import Cell
from harness.record.vocabulary import Family, Source, Status


class Against(StrEnum):
    """What a limit compares with."""

    VALUE = "value"
    """``minimum`` and ``maximum``"""
    BASELINE = "baseline"
    """The stored baseline of the same phone or SoC, within ``slack_percent``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateProof:
    """What a limit has been tried on. ``of``: fingerprint of the limit as it was then."""

    of: str
    passed_on: tuple[str, ...]
    """Sessions known to be good"""
    failed_on: tuple[str, ...]
    """Sessions known to be bad"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of limits.toml. ``*`` matches anything; the most specific limit wins, later ones on a tie."""

    metric: str
    model: str = "*"
    precision: str = "*"
    kv: str = "*"
    soc: str = "*"
    """Part or marker"""
    against: Against = Against.VALUE
    minimum: float | None = None
    maximum: float | None = None
    slack_percent: float | None = None
    """Against a baseline: how much worse is still no fault"""
    max_age_days: float | None = None
    """Against a baseline: an older one decides nothing"""
    phone: str = "same"
    """Against a baseline: ``same`` serial number and build, or any phone of the ``soc``"""
    reason: str
    """Where the figure comes from"""
    date: str
    """ISO date of the figure"""
    source: str | None = None
    """The run, session or definition that gave the figure"""
    slack: str | None = None
    """How far the limit is from that figure, in words"""
    proof: GateProof | None = None

    @property
    def fingerprint(self) -> str:
        """Of everything that decides; reason, date and proof do not."""
        deciding = (
            *(self.metric, self.model, self.precision, self.kv, self.soc, str(self.against)),
            *(self.minimum, self.maximum, self.slack_percent, self.max_age_days, self.phone),
        )
        return hashlib.sha256(repr(deciding).encode()).hexdigest()[:12]

    @property
    def untested(self) -> str | None:
        """Why this gate has not shown that it can tell good from bad; None: it has."""
        proof = self.proof
        if proof is None:
            return "never tried on known-good and known-bad data"
        if proof.of != self.fingerprint:
            return "changed since it was tried on known-good and known-bad data"
        if not proof.failed_on:
            return "has never failed on known-bad data"
        return None if proof.passed_on else "has never passed on known-good data"


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
