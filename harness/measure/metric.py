"""One metric of the catalogue, and the two kinds there are: estimates from repetitions, and exact figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.record.vocabulary import Family

Better = Literal["higher", "lower", "equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    unit: str
    """``ms``, ``tokens/s``, ``bytes``, ``celsius``, ``dB``, ``nats``, ``percent``, ``fraction``, ``yes=1`` ..."""
    family: Family
    better: Better
    """Which direction is good; ``equal``: one value is right."""
    definition: str
    sampled: bool = False
    """True: an estimate from repetitions, judged by its interval. False: exact, judged by its value."""
    optional: bool = False
    """Measured by a suite of its own: a run without that suite lacks nothing."""


def sampled(
    name: str,
    unit: str,
    better: Better,
    definition: str,
    *,
    family: Family = Family.PERFORMANCE,
    optional: bool = False,
) -> Metric:
    return Metric(
        name=name, unit=unit, family=family, better=better, definition=definition, sampled=True, optional=optional
    )


def exact(name: str, unit: str, family: Family, better: Better, definition: str, *, optional: bool = False) -> Metric:
    return Metric(name=name, unit=unit, family=family, better=better, definition=definition, optional=optional)
