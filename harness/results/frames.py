"""Journals, measurements and verdicts as tidy pandas tables: one row per thing, the unit in the column's name.

Every frame has all its columns even when it has no rows. Missing figures are None or NaN, never 0. All frames carry
``run_id`` (or ``run_ids``), so that each number leads back to its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.measure.timing import load_total_ms, timing_of
from harness.record.run import Cell, RunRecord
from harness.record.verdict import Measurement, Verdict
from harness.soc import BY_PART

RUN_COLUMNS = (
    "run_id", "session_id", "source", "cell", "model", "precision", "kv", "part", "soc", "workload", "started_at",
    "serial", "transport", "device_model", "fingerprint", "android_release", "abi", "virtual", "artifact_id",
    "artifact_name", "runner_sha256", "job_sha256", "wall_s", "load_ms", "push_s", "bytes_pushed", "attempts",
    "retried_because", "runtime", "n_generations", "performance_mode", "performance_accepted", "battery_percent",
    "battery_celsius", "charging", "thermal_status", "violations", "host_load_before", "host_load_after",
    "error_status", "error_kind", "error_message", "runner_exit_code",
)  # fmt: skip
GENERATION_COLUMNS = (
    "run_id", "source", "cell", "part", "serial", "workload", "prompt_id", "mode", "step_with", "repetition", "warmup",
    "n_prompt", "n_cached", "n_gen", "stop", "ttft_ms", "prefill_ms", "prefill_tps", "decode_tps", "tpot_ms",
    "itl_p50_ms", "itl_p90_ms", "itl_p99_ms", "itl_max_ms", "relayout_ms", "heap_allocations",
)  # fmt: skip
TOKEN_COLUMNS = (
    "run_id", "source", "cell", "part", "serial", "workload", "prompt_id", "repetition", "warmup", "token_index",
    "position", "elapsed_ms", "itl_ms", "token_id", "argmax_id",
)  # fmt: skip
SENSOR_COLUMNS = (
    "run_id", "source", "cell", "part", "serial", "workload", "sensor", "domain", "unit", "state", "elapsed_s", "value",
)  # fmt: skip
PHASE_COLUMNS = ("run_id", "source", "cell", "part", "serial", "workload", "phase", "detail", "start_ms", "duration_ms")
POSITION_COLUMNS = (
    "run_id", "reference_id", "cell", "part", "leg", "prompt_id", "phase", "position", "relative_l2", "snr_db",
    "kl_nats", "argmax", "reference_argmax", "reference_margin", "agrees",
)  # fmt: skip
WINDOW_COLUMNS = (
    "run_id", "reference_id", "cell", "part", "leg", "corpus_sha256", "context_length", "window_id", "nll_sum_nats",
    "n_scored", "nll_mean_nats",
)  # fmt: skip
MEASUREMENT_COLUMNS = (
    "metric", "family", "unit", "better", "cell", "model", "precision", "kv", "part", "soc", "serial", "source",
    "value", "ci_low", "ci_high", "n_samples", "run_ids", "reason", "refuted_by", "error",
)  # fmt: skip
VERDICT_COLUMNS = (
    "metric", "family", "unit", "cell", "model", "precision", "kv", "part", "soc", "serial", "source", "status",
    "required", "value", "ci_low", "ci_high", "n_samples", "limit_minimum", "limit_maximum", "limit_reason",
    "limit_date", "reason", "run_ids",
)  # fmt: skip


def runs_frame(journal: Journal) -> pd.DataFrame:
    """One row per run: who, where, when, under which conditions, with what outcome."""

    def row(run: RunRecord) -> dict[str, Any]:
        platform, fault, end, host = run.log.platform, run.log.fault, run.log.end, run.host
        return {
            **_cell(run.cell),
            **{name: getattr(run, name) for name in _SAME_NAME},
            "source": str(run.source),
            "serial": run.device.serial,
            "transport": run.device.transport,
            "device_model": run.device.model,
            "fingerprint": run.device.fingerprint,
            "android_release": run.device.android_release,
            "abi": run.device.abi,
            "virtual": run.device.virtual,
            "load_ms": load_total_ms(run.log.phases),
            "n_generations": len(run.log.generations),
            "performance_mode": platform.performance_mode if platform else None,
            "performance_accepted": platform.performance_accepted if platform else None,
            "battery_percent": run.conditions.battery_percent,
            "battery_celsius": run.conditions.battery_celsius,
            "charging": run.conditions.charging,
            "thermal_status": run.conditions.thermal_status,
            "violations": "; ".join(run.conditions.violations),
            "host_load_before": host.load_1min_before if host else None,
            "host_load_after": host.load_1min_after if host else None,
            "error_status": str(run.error.status) if run.error else None,
            "error_kind": run.error.kind if run.error else None,
            "error_message": run.error.message if run.error else None,
            "runner_exit_code": fault.exit_code if fault else end.exit_code if end else None,
        }

    return _frame((row(run) for run in journal.runs), RUN_COLUMNS)


_SAME_NAME = (
    "run_id", "session_id", "workload", "started_at", "artifact_id", "artifact_name", "runner_sha256", "job_sha256",
    "wall_s", "push_s", "bytes_pushed", "attempts", "retried_because", "runtime",
)  # fmt: skip


def generations_frame(journal: Journal) -> pd.DataFrame:
    """One row per generation of every run, warm-ups included and marked."""

    def rows() -> Iterator[dict[str, Any]]:
        for run in journal.runs:
            for generation in run.log.generations:
                timing = timing_of(generation)
                yield {
                    **_run(run),
                    "prompt_id": generation.prompt_id,
                    "mode": generation.mode,
                    "step_with": generation.step_with,
                    "repetition": generation.repetition,
                    "warmup": generation.warmup,
                    "n_prompt": generation.n_prompt,
                    "n_cached": generation.n_cached,
                    "n_gen": len(generation.token_ids),
                    "stop": generation.stop,
                    "ttft_ms": timing.ttft_ms,
                    "prefill_ms": timing.prefill_ms,
                    "prefill_tps": timing.prefill_tps,
                    "decode_tps": timing.decode_tps,
                    "tpot_ms": timing.tpot_ms,
                    "itl_p50_ms": timing.itl_quantile_ms(0.5),
                    "itl_p90_ms": timing.itl_quantile_ms(0.9),
                    "itl_p99_ms": timing.itl_quantile_ms(0.99),
                    "itl_max_ms": timing.itl_quantile_ms(1.0),
                    "relayout_ms": generation.relayout_ns / 1e6,
                    "heap_allocations": generation.heap_allocations,
                }

    return _frame(rows(), GENERATION_COLUMNS)


def tokens_frame(journal: Journal) -> pd.DataFrame:
    """One row per generated token. ``elapsed_ms`` counts from the start of its generation; ``itl_ms`` is the gap to the
    token before (None for the first); ``position`` is the token's place in the context."""

    def rows() -> Iterator[dict[str, Any]]:
        for run in journal.runs:
            for generation in run.log.generations:
                before: int | None = None
                for index, (at_ns, token, argmax) in enumerate(
                    zip(generation.token_ns, generation.token_ids, generation.argmax_ids, strict=False)
                ):
                    yield {
                        **_run(run),
                        "prompt_id": generation.prompt_id,
                        "repetition": generation.repetition,
                        "warmup": generation.warmup,
                        "token_index": index,
                        "position": generation.n_cached + generation.n_prompt + index,
                        "elapsed_ms": (at_ns - generation.start_ns) / 1e6,
                        "itl_ms": None if before is None else (at_ns - before) / 1e6,
                        "token_id": token,
                        "argmax_id": argmax,
                    }
                    before = at_ns

    return _frame(rows(), TOKEN_COLUMNS)


def sensors_frame(journal: Journal) -> pd.DataFrame:
    """One row per reading. ``elapsed_s`` counts from the runner's start stamp, or from the first reading of the run
    when the runner left none; ``unit`` is that of ``value``; a missing reading is NaN."""

    def rows() -> Iterator[dict[str, Any]]:
        for run in journal.runs:
            stamps = [at for series in run.sensors for at in series.monotonic_ns]
            origin = run.log.start.clock.monotonic_ns if run.log.start else min(stamps, default=0)
            for series in run.sensors:
                for at_ns, value in zip(series.monotonic_ns, series.values, strict=False):
                    yield {
                        **_run(run),
                        "sensor": series.name,
                        "domain": series.domain,
                        "unit": series.unit,
                        "state": series.state,
                        "elapsed_s": (at_ns - origin) / 1e9,
                        "value": value,
                    }

    return _frame(rows(), SENSOR_COLUMNS)


def phases_frame(journal: Journal) -> pd.DataFrame:
    """One row per load phase of every run. ``start_ms`` counts from the first phase."""

    def rows() -> Iterator[dict[str, Any]]:
        for run in journal.runs:
            origin = min((phase.start_ns for phase in run.log.phases), default=0)
            for phase in run.log.phases:
                yield {
                    **_run(run),
                    "phase": phase.name,
                    "detail": phase.detail,
                    "start_ms": (phase.start_ns - origin) / 1e6,
                    "duration_ms": (phase.end_ns - phase.start_ns) / 1e6,
                }

    return _frame(rows(), PHASE_COLUMNS)


def positions_frame(journal: Journal) -> pd.DataFrame:
    """One row per compared position of logits, for the phone and the graph leg."""

    def rows() -> Iterator[dict[str, Any]]:
        for item in journal.logits:
            for values in zip(
                item.positions,
                item.relative_l2,
                item.snr_db,
                item.kl_nats,
                item.argmax,
                item.reference_argmax,
                item.reference_margin,
                strict=False,
            ):
                position, l2, snr, kl, argmax, reference_argmax, margin = values
                yield {
                    "run_id": item.run_id,
                    "reference_id": item.reference_id,
                    "cell": str(item.cell),
                    "part": item.cell.part,
                    "leg": str(item.leg),
                    "prompt_id": item.prompt_id,
                    "phase": item.phase,
                    "position": position,
                    "relative_l2": l2,
                    "snr_db": snr,
                    "kl_nats": kl,
                    "argmax": argmax,
                    "reference_argmax": reference_argmax,
                    "reference_margin": margin,
                    "agrees": argmax == reference_argmax and argmax >= 0,
                }

    return _frame(rows(), POSITION_COLUMNS)


def windows_frame(journal: Journal) -> pd.DataFrame:
    """One row per scored held-out window and leg."""

    def rows() -> Iterator[dict[str, Any]]:
        for item in journal.windows:
            for window, nll, n_scored in zip(item.window_ids, item.nll_sum, item.n_scored, strict=False):
                yield {
                    "run_id": item.run_id,
                    "reference_id": item.reference_id,
                    "cell": str(item.cell),
                    "part": item.cell.part,
                    "leg": str(item.leg),
                    "corpus_sha256": item.corpus_sha256,
                    "context_length": item.context_length,
                    "window_id": window,
                    "nll_sum_nats": nll,
                    "n_scored": n_scored,
                    "nll_mean_nats": nll / n_scored if n_scored else None,
                }

    return _frame(rows(), WINDOW_COLUMNS)


def measurements_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """One row per measurement, family and unit from the catalogue. ``run_ids`` is a tuple."""

    def row(item: Measurement) -> dict[str, Any]:
        metric = METRICS[item.metric]
        return {
            **_cell(item.cell),
            "metric": item.metric,
            "family": str(metric.family),
            "unit": metric.unit,
            "better": metric.better,
            "serial": item.serial,
            "source": str(item.source),
            "value": item.value,
            "ci_low": item.interval[0] if item.interval else None,
            "ci_high": item.interval[1] if item.interval else None,
            "n_samples": len(item.samples),
            "run_ids": item.run_ids,
            "reason": item.reason,
            "refuted_by": "; ".join(item.refuted_by),
            "error": str(item.error) if item.error else None,
        }

    return _frame((row(item) for item in measurements), MEASUREMENT_COLUMNS)


def verdicts_frame(verdicts: Iterable[Verdict]) -> pd.DataFrame:
    """One row per verdict."""

    def row(item: Verdict) -> dict[str, Any]:
        limit = item.limit
        return {
            **_cell(item.cell),
            "metric": item.metric,
            "family": str(item.family),
            "unit": item.unit,
            "serial": item.serial,
            "source": str(item.source),
            "status": str(item.status),
            "required": item.required,
            "value": item.value,
            "ci_low": item.interval[0] if item.interval else None,
            "ci_high": item.interval[1] if item.interval else None,
            "n_samples": item.n_samples,
            "limit_minimum": limit.minimum if limit else None,
            "limit_maximum": limit.maximum if limit else None,
            "limit_reason": limit.reason if limit else None,
            "limit_date": limit.date if limit else None,
            "reason": item.reason,
            "run_ids": item.run_ids,
        }

    return _frame((row(item) for item in verdicts), VERDICT_COLUMNS)


def _cell(cell: Cell) -> dict[str, Any]:
    soc = BY_PART.get(cell.part)
    return {
        "cell": str(cell),
        "model": cell.model,
        "precision": str(cell.precision),
        "kv": str(cell.kv),
        "part": cell.part,
        "soc": soc.marketing_name if soc else None,
    }


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "source": str(run.source),
        "cell": str(run.cell),
        "part": run.cell.part,
        "serial": run.device.serial,
        "workload": run.workload,
    }


def _frame(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame([[row[name] for name in columns] for row in rows], columns=list(columns))
