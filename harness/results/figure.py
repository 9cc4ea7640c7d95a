"""A value before it has a cell, and how samples become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.measure.statistics import Interval, median, median_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``value is None``: evidence was there, but no figure came of it; ``reason`` says why."""

    value: float | None
    samples: tuple[float, ...] = ()
    interval: Interval | None = None
    run_ids: tuple[str, ...] = ()
    reason: str | None = None


def present(figures: Iterable[tuple[str, Figure | None]]) -> dict[str, Figure]:
    return {name: figure for name, figure in figures if figure is not None}


def median_figure(pairs: Sequence[tuple[str, float]]) -> Figure | None:
    """Of (run id, sample); None without any."""
    samples = tuple(value for _, value in pairs)
    if not samples:
        return None
    return Figure(
        value=median(samples),
        samples=samples,
        interval=median_interval(samples),
        run_ids=tuple(dict.fromkeys(run_id for run_id, _ in pairs)),
    )


def missing(run_ids: Iterable[str], reason: str) -> Figure:
    return Figure(value=None, run_ids=tuple(dict.fromkeys(run_ids)), reason=reason)
