"""Measurements and limits to verdicts, and verdicts to the one verdict of the run.

The status of one metric, first rule that applies:

1.  its run failed: FAIL or INFRA, as the run's error says;
2.  refuted by a check that shows the model itself to be wrong (``refute.FAILS``): FAIL;
3.  refuted by anything else: INVALID;
4.  not measured: NOT_COVERED;
5.  value, interval or a sample of a sampled metric is NaN or infinite: FAIL;
6.  no limit: NOT_COVERED;
7.  an exact metric, or a sampled one without an interval (a maximum) and at least ``MIN_SAMPLES`` samples: PASS when
    minimum <= value <= maximum, else FAIL;
8.  a sampled metric with fewer samples: INCONCLUSIVE;
9.  its whole 95 % interval within the limit: PASS; the whole interval outside: FAIL; else INCONCLUSIVE.

A limit against a baseline is judged by ``harness.results.baseline``, in a verdict of its own; a metric that has only
such a limit has only that verdict.

Which verdicts are *required*: those of a required family that have a limit; where a cell has no limit for a required
family, everything of that family that was measured; where nothing was, a NOT_COVERED stands in. A limit of a required
family without a measurement is NOT_COVERED, or FAIL or INFRA if a run of its cell failed so; metrics of suites that
make runs of their own (``optional``) are left out when their suite was not asked for. A failed run, a FAIL of
a required family and a cell that did not run are always required. The worst required status is the run's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from harness.measure.metrics import HEADLINE, METRICS
from harness.record.run import Cell
from harness.record.verdict import Against, Limit, Measurement, RunVerdict, Verdict
from harness.record.vocabulary import SEVERITY, Family, Source, Status, worst
from harness.results import refute
from harness.spec.limits import limit_for

MIN_SAMPLES: Final = 3
DEFAULT_REQUIRED: Final = frozenset({Family.ACCURACY, Family.PLACEMENT})
RELEASE_ADDS: Final = frozenset({Family.PERFORMANCE})
NO_BASELINE: Final = "no baseline was given: name one with --baseline"
SYNTHETIC_NOTE: Final = "SYNTHETIC DATA: made by hand to test SnapGate itself; never a release verdict"

Compare = Callable[[Measurement, Limit], Verdict]


def judge(
    measurements: Sequence[Measurement],
    limits: Iterable[Limit],
    *,
    required: Collection[Family] = DEFAULT_REQUIRED,
    release: bool = False,
    notes: Sequence[str] = (),
    damaged: Sequence[str] = (),
    compare: Compare | None = None,
) -> RunVerdict:
    """The verdict of a run. ``compare`` judges one measurement by a limit against a baseline.

    ``release`` adds ``RELEASE_ADDS`` to ``required``, and makes synthetic data INVALID as a whole. ``damaged``: what
    of the journal could not be read; evidence is missing then, so the run is INFRA at best.
    """
    families = frozenset(required) | (RELEASE_ADDS if release else frozenset())
    all_limits = tuple(limits)
    verdicts: list[Verdict] = []
    for cell in sorted({m.cell for m in measurements}, key=str):
        of_cell = [m for m in measurements if m.cell == cell]
        verdicts.extend(_judge_cell(cell, of_cell, all_limits, families))
        verdicts.extend(_judge_against(cell, of_cell, all_limits, families, compare))
    synthetic = any(m.source is Source.SYNTHETIC for m in measurements)
    deciding = [v for v in verdicts if v.required]
    status = worst(v.status for v in deciding)
    decided_by = [_place(v) for v in deciding if v.status is status]
    if not deciding:
        decided_by = ["nothing required was measured"]
    if damaged and worst((status, Status.INFRA)) is not status:
        status, decided_by = Status.INFRA, [f"journal: {text}" for text in damaged]
    if release and synthetic:
        status, decided_by = Status.INVALID, ["synthetic data"]
    return RunVerdict(
        status=status,
        decided_by=tuple(decided_by[:5]),
        n_by_status={str(s): sum(v.status is s for v in verdicts) for s in SEVERITY},
        verdicts=tuple(verdicts),
        notes=tuple(
            dict.fromkeys(
                [
                    *([SYNTHETIC_NOTE] if synthetic else []),
                    *notes,
                    *damaged,
                    *_emulation(measurements, families),
                    *untested_gates(verdicts),
                ]
            )
        ),
    )


def untested_gates(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """One line about the gates that decided something and have not shown that they can tell good from bad."""
    gates = {v.limit: v.metric for v in verdicts if v.limit is not None and v.required}
    untested = [name for limit, name in gates.items() if limit.untested is not None]
    if not untested:
        return ()
    named = ", ".join(dict.fromkeys(untested))
    return (f"{len(untested)} of {len(gates)} gates are untested (see `snapgate limits list`): {named}",)


def is_synthetic(verdict: RunVerdict) -> bool:
    return SYNTHETIC_NOTE in verdict.notes


def not_measured(metric: str, cell: Cell, status: Status, reason: str, *, source: Source = Source.PHONE) -> Verdict:
    """A verdict on a metric that has no measurement. ``status``: NOT_COVERED, INFRA or FAIL."""
    return Verdict(
        metric=metric,
        family=METRICS[metric].family,
        unit=METRICS[metric].unit,
        cell=cell,
        serial=None,
        source=source,
        status=status,
        required=True,
        value=None,
        interval=None,
        n_samples=0,
        limit=None,
        reason=reason,
        run_ids=(),
    )


def _place(verdict: Verdict) -> str:
    return f"{verdict.metric} @ {verdict.cell}"


def _emulation(measurements: Iterable[Measurement], required: Collection[Family]) -> Iterable[str]:
    emulated = any(
        METRICS[m.metric].family is Family.PERFORMANCE and refute.EMULATED in map(refute.name_of, m.refuted_by)
        for m in measurements
    )
    if emulated and Family.PERFORMANCE not in required:
        yield "speed: not judged (emulated)"
    elif emulated:
        yield "speed: emulated, so it cannot be judged"


def _judge_cell(
    cell: Cell, measurements: Sequence[Measurement], limits: Sequence[Limit], required: Collection[Family]
) -> Iterable[Verdict]:
    by_metric = {name: limit for name in METRICS if (limit := limit_for(limits, name, cell)) is not None}
    compared = {name for name in METRICS if limit_for(limits, name, cell, Against.BASELINE) is not None}
    limited = {METRICS[name].family for name in (*by_metric, *compared)}
    measured = {m.metric for m in measurements if m.value is not None}
    """On one phone of the cell at least: then the others need not have it."""
    for measurement in measurements:
        family = METRICS[measurement.metric].family
        limit = by_metric.get(measurement.metric)
        if limit is None and measurement.metric in compared:
            continue
        status, reason = _status(measurement, limit)
        judged = limit is not None or family not in limited or status is Status.FAIL
        elsewhere = measurement.value is None and measurement.metric in measured
        did_not_run = measurement.metric == "runs_completed" and measurement.value is None
        yield Verdict(
            metric=measurement.metric,
            family=family,
            unit=METRICS[measurement.metric].unit,
            cell=cell,
            serial=measurement.serial,
            source=measurement.source,
            status=status,
            required=(family in required and judged and not elsewhere) or did_not_run or measurement.error is not None,
            value=measurement.value,
            interval=measurement.interval,
            n_samples=len(measurement.samples),
            limit=limit,
            reason=reason,
            run_ids=measurement.run_ids,
        )
    yield from _missing(cell, measurements, by_metric, required, limited)


def _judge_against(
    cell: Cell,
    measurements: Sequence[Measurement],
    limits: Sequence[Limit],
    required: Collection[Family],
    compare: Compare | None,
) -> Iterable[Verdict]:
    for name in METRICS:
        limit = limit_for(limits, name, cell, Against.BASELINE)
        if limit is None:
            continue
        demanded = METRICS[name].family in required
        found = [m for m in measurements if m.metric == name]
        for m in found:
            if compare is not None:
                yield dataclasses.replace(compare(m, limit), required=demanded)
            else:
                verdict = not_measured(name, cell, Status.NOT_COVERED, NO_BASELINE, source=m.source)
                yield dataclasses.replace(verdict, serial=m.serial, limit=limit, required=demanded)
        if not found and demanded:
            reason = "nothing to compare with the baseline was measured"
            verdict = not_measured(name, cell, Status.NOT_COVERED, reason, source=measurements[0].source)
            yield dataclasses.replace(verdict, limit=limit)


def _missing(
    cell: Cell,
    measurements: Sequence[Measurement],
    limits: dict[str, Limit],
    required: Collection[Family],
    limited: Collection[Family],
) -> Iterable[Verdict]:
    """Stand-ins for what a required family has no measurement of."""
    present = {m.metric for m in measurements}
    source = measurements[0].source
    errors = [m for m in measurements if m.error is not None]
    status = worst(m.error for m in errors if m.error is not None)
    cause = "; ".join(m.reason for m in errors if m.reason)
    reason = f"not measured: {cause}" if cause else "nothing was measured"
    for name, limit in limits.items():
        if METRICS[name].family in required and name not in present and not METRICS[name].optional:
            yield dataclasses.replace(not_measured(name, cell, status, reason, source=source), limit=limit)
    for family in sorted(required):
        if family not in limited and not any(METRICS[name].family is family for name in present):
            yield not_measured(HEADLINE[family], cell, status, f"{reason} of {family}", source=source)


def _status(m: Measurement, limit: Limit | None) -> tuple[Status, str]:
    metric = METRICS[m.metric]
    if m.error is not None:
        return m.error, m.reason or "the run failed"
    fatal = [text for text in m.refuted_by if refute.name_of(text) in refute.FAILS.get(metric.family, ())]
    if fatal:
        return Status.FAIL, "; ".join(fatal)
    if m.refuted_by:
        return Status.INVALID, "; ".join(m.refuted_by)
    if m.value is None:
        return Status.NOT_COVERED, m.reason or "not measured"
    numbers = (m.value, *(m.interval or ()), *(m.samples if metric.sampled else ()))
    if not all(math.isfinite(number) for number in numbers):
        return Status.FAIL, f"not a finite number: {m.value}"
    if limit is None:
        return Status.NOT_COVERED, "no limit"
    low = -math.inf if limit.minimum is None else limit.minimum
    high = math.inf if limit.maximum is None else limit.maximum
    wanted = _bounds(limit)
    if metric.sampled and len(m.samples) < MIN_SAMPLES:
        return Status.INCONCLUSIVE, f"{len(m.samples)} samples, {MIN_SAMPLES} are needed; wanted {wanted}"
    if metric.sampled and m.interval is not None:
        shown = f"95 % interval {_number(m.interval[0])} to {_number(m.interval[1])}"
        if low <= m.interval[0] and m.interval[1] <= high:
            return Status.PASS, f"{shown} within {wanted}"
        if m.interval[1] < low or high < m.interval[0]:
            return Status.FAIL, f"{shown} outside {wanted}"
        return Status.INCONCLUSIVE, f"{shown} straddles {wanted}: more repetitions are needed"
    if low <= m.value <= high:
        return Status.PASS, f"{_number(m.value)} within {wanted}"
    return Status.FAIL, f"{_number(m.value)} outside {wanted}"


def _bounds(limit: Limit) -> str:
    if limit.minimum is not None and limit.maximum is not None:
        if limit.minimum == limit.maximum:
            return f"= {_number(limit.minimum)}"
        return f"{_number(limit.minimum)} .. {_number(limit.maximum)}"
    return f"≥ {_number(limit.minimum)}" if limit.minimum is not None else f"≤ {_number(limit.maximum)}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
