"""Speed against a stored baseline of the same phone, weeks apart: comparable only where the identity fields are equal.

==============  ======================================================================================================
INVALID         the new figure is refuted, or the run failed
NOT_COVERED     the baseline has nothing comparable: the reason names the fields that differ
INCONCLUSIVE    too few samples; the baseline is too old; or the interval straddles the slack
FAIL            the whole 95 % interval of the harm lies beyond the slack
PASS            the whole interval lies within the slack
==============  ======================================================================================================

The interval is Welch's t of the logarithms. Runs on different days are not paired, so drift from day to day is in the
difference: the slack has to be larger than it. An A/B comparison in one run finds far less (``harness.results.ab``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
from scipy import stats

from harness.errors import UserError
from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.measure.timing import comparable_repetitions
from harness.record.baseline import BASELINE_SCHEMA, Baseline, BaselineFigure
from harness.record.run import QNN, RunRecord
from harness.record.verdict import Limit, Measurement, RunVerdict, Verdict
from harness.record.vocabulary import SEVERITY, Family, Source, Status, worst
from harness.results.derive import derive
from harness.results.judge import MIN_SAMPLES, NO_BASELINE, SYNTHETIC_NOTE, Compare

SLACK_PERCENT: Final = 5.0
MAX_AGE_DAYS: Final = 30.0
BASELINE_METRICS: Final = (
    "ttft_ms", "prefill_tps", "decode_tps", "itl_p50_ms", "itl_p90_ms", "steady_decode_tps", "load_ms",
    "canary_tps",
)  # fmt: skip
UNIT: Final = "% worse"


def promote(journal: Journal, *, reason: str, now: datetime) -> Baseline:
    """The speed figures of a session as a baseline. Refused: no reason, or no figure that nothing refutes."""
    if not reason.strip():
        raise UserError(
            "a baseline needs a reason", found="an empty text", expected="why these figures may be the measure"
        )
    runs = {run.run_id: run for run in journal.runs}
    figures: list[BaselineFigure] = []
    refused: list[str] = []
    for m in derive(journal):
        if m.metric not in BASELINE_METRICS or m.value is None or m.serial is None:
            continue
        if m.refuted_by:
            refused += m.refuted_by
        elif len(m.samples) < MIN_SAMPLES:
            refused.append(f"{m.metric} has {len(m.samples)} samples")
        else:
            figures.append(
                BaselineFigure(
                    metric=m.metric,
                    cell=m.cell,
                    source=m.source,
                    serial=m.serial,
                    samples=m.samples,
                    run_ids=m.run_ids,
                    identity=identity(m, [runs[run_id] for run_id in m.run_ids]),
                )
            )
    if not figures or journal.damaged:
        found = "; ".join(dict.fromkeys([*journal.damaged, *refused])) or "no speed was measured"
        raise UserError(
            "this journal cannot become a baseline",
            found=found,
            expected=f"a whole journal with speed figures that nothing refutes, {MIN_SAMPLES} samples each",
            next_step="measure again on a phone in good condition",
        )
    return Baseline(
        schema=BASELINE_SCHEMA,
        reason=reason.strip(),
        measured_at=max(run.started_at for run in journal.runs),
        promoted_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        session_ids=tuple(dict.fromkeys(run.session_id for run in journal.runs)),
        figures=tuple(figures),
    )


def identity(measurement: Measurement, runs: Sequence[RunRecord]) -> dict[str, str]:
    """What has to be equal. The artifact, the runner and the libraries are what may change: they are not in it."""

    def all_of(values: Sequence[object]) -> str:
        return ", ".join(sorted({str(value) for value in values}))

    compared = comparable_repetitions(g for run in runs for g in run.log.generations)
    return {
        "cell": str(measurement.cell),
        "source": str(measurement.source),
        "runtime": all_of([run.runtime for run in runs]),
        "serial": measurement.serial or "",
        "android_build": all_of([run.device.fingerprint for run in runs]),
        "workload": all_of([run.workload for run in runs]),
        "performance_mode": all_of([run.log.platform.performance_mode for run in runs if run.log.platform]),
        "memory": all_of([run.log.platform.memory for run in runs if run.log.platform]),
        "control": all_of(
            [
                f"{setting.name.partition(' ')[0]}={setting.asked}"  # the rest of a name is that of a graph
                for run in runs
                if run.log.control
                for setting in run.log.control.settings
            ]
        ),
        "prompt_tokens": all_of([g.n_prompt for g in compared]),
        "cached_tokens": all_of([g.n_cached for g in compared]),
        "generated_tokens": all_of([len(g.token_ids) for g in compared]),
    }


def judge_against(
    journal: Journal,
    baseline: Baseline,
    *,
    now: datetime,
    slack_percent: float = SLACK_PERCENT,
    max_age_days: float = MAX_AGE_DAYS,
    release: bool = False,
    notes: Sequence[str] = (),
) -> RunVerdict:
    """Every speed figure of the journal against the baseline."""
    if not 0 < slack_percent < 100:
        raise UserError("slack out of range", found=f"{slack_percent:g} %", expected="more than 0 and less than 100 %")
    age = _age_days(baseline, now)
    runs = {run.run_id: run for run in journal.runs}
    verdicts = []
    for m in derive(journal):
        if m.metric in BASELINE_METRICS and m.value is not None:
            fields = identity(m, [runs[run_id] for run_id in m.run_ids])
            verdicts.append(_verdict(m, fields, baseline, age, slack_percent, max_age_days))
        elif m.metric == "runs_completed" and (m.error is not None or m.value is None):
            status = m.error or Status.NOT_COVERED
            verdicts.append(_as_verdict(m, status, m.reason or "the run failed", None, None))
    if not verdicts:
        raise UserError("the journal holds no speed", expected="at least one of " + ", ".join(BASELINE_METRICS))
    status = worst(v.status for v in verdicts)
    decided_by = [f"{v.metric} @ {v.cell}" for v in verdicts if v.status is status]
    synthetic = any(v.source is Source.SYNTHETIC for v in verdicts)
    if journal.damaged and worst((status, Status.INFRA)) is not status:
        status, decided_by = Status.INFRA, [f"journal: {text}" for text in journal.damaged]
    if release and synthetic:
        status, decided_by = Status.INVALID, ["synthetic data"]
    said = f"baseline of {baseline.measured_at}, {age:.1f} days old, promoted because: {baseline.reason}"
    return RunVerdict(
        status=status,
        decided_by=tuple(decided_by[:5]),
        n_by_status={str(s): sum(v.status is s for v in verdicts) for s in SEVERITY},
        verdicts=tuple(verdicts),
        notes=tuple(dict.fromkeys([*([SYNTHETIC_NOTE] if synthetic else []), said, *notes, *journal.damaged])),
    )


def comparer(journal: Journal, baselines: Sequence[Baseline]) -> Compare:
    """Judges a measurement of ``journal`` by a limit against a baseline; of several baselines the newest that has
    something comparable. Age counts to the newest run of the measurement, so that it is the same whenever it is
    judged."""
    runs = {run.run_id: run for run in journal.runs}

    def compare(m: Measurement, limit: Limit) -> Verdict:
        slack, max_age = limit.slack_percent or SLACK_PERCENT, limit.max_age_days or MAX_AGE_DAYS
        if m.error is not None or m.value is None:
            status = m.error or Status.NOT_COVERED
            found = _as_verdict(m, status, m.reason or "not measured", None, None)
        elif not baselines:
            found = _as_verdict(m, Status.NOT_COVERED, NO_BASELINE, None, None)
        else:
            of_run = [runs[run_id] for run_id in m.run_ids]
            fields = identity(m, of_run)
            ignored = ("serial", "android_build") if limit.phone == "soc" else ()
            now = datetime.fromisoformat(max(run.started_at for run in of_run))
            tried = [
                _verdict(m, fields, baseline, _age_days(baseline, now), slack, max_age, ignored)
                for baseline in sorted(baselines, key=lambda b: b.measured_at, reverse=True)
            ]
            found = next((v for v in tried if v.status is not Status.NOT_COVERED), tried[0])
        return dataclasses.replace(found, limit=limit)

    return compare


def _age_days(baseline: Baseline, now: datetime) -> float:
    return (now - datetime.fromisoformat(baseline.measured_at)).total_seconds() / 86400


def _verdict(
    m: Measurement,
    fields: dict[str, str],
    baseline: Baseline,
    age: float,
    slack: float,
    max_age: float,
    ignored: Sequence[str] = (),
) -> Verdict:
    if m.refuted_by:
        return _as_verdict(m, Status.INVALID, "; ".join(m.refuted_by), None, None)
    same_metric = [f for f in baseline.figures if f.metric == m.metric]
    wanted = {name: value for name, value in fields.items() if name not in ignored}
    equal = [f for f in same_metric if all(_stored(f).get(name) == value for name, value in wanted.items())]
    if not equal:
        return _as_verdict(m, Status.NOT_COVERED, _incomparable(wanted, same_metric), None, None)
    if len(m.samples) < MIN_SAMPLES:
        return _as_verdict(m, Status.INCONCLUSIVE, f"{len(m.samples)} samples, {MIN_SAMPLES} are needed", None, None)
    value, interval = _harm(m, next((f for f in equal if f.serial == m.serial), equal[0]))
    shown = f"{interval[0]:+.2f} to {interval[1]:+.2f} % worse, slack {slack:g} %"
    if age > max_age or age < 0:
        reason = f"the baseline is {age:.1f} days old, at most {max_age:g} count: promote a newer one ({shown})"
        return _as_verdict(m, Status.INCONCLUSIVE, reason, value, interval)
    shown += f"; the baseline is {age:.1f} days old"
    if interval[1] <= slack:
        return _as_verdict(m, Status.PASS, shown, value, interval)
    if interval[0] > slack:
        return _as_verdict(m, Status.FAIL, shown, value, interval)
    return _as_verdict(m, Status.INCONCLUSIVE, f"{shown}: more repetitions are needed", value, interval)


def _stored(figure: BaselineFigure) -> dict[str, str]:
    """The identity of a stored figure; one that was promoted before the runtime was noted is of QNN."""
    return {"runtime": QNN, **figure.identity}


def _incomparable(fields: dict[str, str], figures: Sequence[BaselineFigure]) -> str:
    """The fields that differ from the nearest figure."""
    if not figures:
        return "the baseline has no such metric"
    nearest = min(figures, key=lambda f: sum(_stored(f).get(name) != fields[name] for name in fields))
    other = _stored(nearest)
    names = [name for name in fields if other.get(name) != fields[name]]
    return "incomparable: " + "; ".join(f"{n} is {fields[n]}, the baseline's {other.get(n)}" for n in names)


def _harm(m: Measurement, figure: BaselineFigure) -> tuple[float, tuple[float, float]]:
    """Percent worse than the baseline, and its 95 % interval."""
    sign = -1.0 if METRICS[m.metric].better == "higher" else 1.0
    new, old = sign * np.log(np.array(m.samples)), sign * np.log(np.array(figure.samples))
    difference = float(new.mean() - old.mean())
    parts = [float(x.var(ddof=1)) / len(x) for x in (new, old)]
    if sum(parts) > 0:
        freedom = sum(parts) ** 2 / sum(v**2 / (len(x) - 1) for v, x in zip(parts, (new, old), strict=True))
        half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(sum(parts))
    else:
        half = 0.0
    low, middle, high = (100 * math.expm1(d) for d in (difference - half, difference, difference + half))
    return middle, (low, high)


def _as_verdict(
    m: Measurement, status: Status, reason: str, value: float | None, interval: tuple[float, float] | None
) -> Verdict:
    return Verdict(
        metric=m.metric,
        family=Family.PERFORMANCE if m.metric != "runs_completed" else METRICS[m.metric].family,
        unit=UNIT,
        cell=m.cell,
        serial=m.serial,
        source=m.source,
        status=status,
        required=True,
        value=value,
        interval=interval,
        n_samples=len(m.samples),
        limit=None,
        reason=reason,
        run_ids=m.run_ids,
    )
