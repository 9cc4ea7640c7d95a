"""The report for machines, schema ``snapgate.report/1``: values unrounded, ``null`` where nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness import __version__
from harness.journal import Journal
from harness.record.run import Cell
from harness.record.verdict import Measurement, RunVerdict, Verdict
from harness.record.vocabulary import EXIT_CODES
from reports.overview import sources
from reports.text import clean_tree
from reports.views import REPORT_SCHEMA, ReportView


def document(
    journal: Journal, verdict: RunVerdict, measurements: Sequence[Measurement], *, title: str
) -> dict[str, Any]:
    """Everything that decides, with its runs. The journal itself, not this document, is the record of the run."""
    body: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "snapgate": __version__,
        "title": title,
        "synthetic": "synthetic" in sources(journal, verdict),
        "sessions": [
            {
                "session_id": s.session_id,
                "started_at": s.started_at,
                "required": list(s.required),
                "versions": s.versions,
            }
            for s in journal.sessions
        ],
        "verdict": {
            "status": verdict.status.value,
            "exit_code": EXIT_CODES[verdict.status],
            "decided_by": list(verdict.decided_by),
            "n_by_status": {str(status): n for status, n in verdict.n_by_status.items()},
            "notes": list(verdict.notes),
        },
        "verdicts": [_verdict(v) for v in verdict.verdicts],
        "measurements": [
            {
                "metric": m.metric,
                **_cell(m.cell),
                "serial": m.serial,
                "source": m.source.value,
                "value": m.value,
                "samples": list(m.samples),
                "interval": None if m.interval is None else list(m.interval),
                "reason": m.reason,
                "refuted_by": list(m.refuted_by),
                "error": None if m.error is None else m.error.value,
                "run_ids": list(m.run_ids),
            }
            for m in measurements
        ],
        "runs": [
            {
                "run_id": run.run_id,
                **_cell(run.cell),
                "workload": run.workload,
                "source": run.source.value,
                "serial": run.device.serial,
                "phone": run.device.model,
                "started_at": run.started_at,
                "artifact_id": run.artifact_id,
                "error": None if run.error is None else {"status": run.error.status.value, "kind": run.error.kind},
                "files_sha256": run.files_sha256,
            }
            for run in journal.runs
        ],
        "not_covered": [
            {**_cell(gap.cell), "status": gap.status.value, "reason": gap.reason} for gap in journal.not_covered
        ],
        "damaged": list(journal.damaged),
    }
    cleaned: dict[str, Any] = clean_tree(body)
    return cleaned


def _cell(cell: Cell) -> dict[str, str]:
    return {"model": cell.model, "precision": cell.precision.value, "kv": cell.kv.value, "part": cell.part}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    limit = verdict.limit
    return {
        "metric": verdict.metric,
        "family": verdict.family.value,
        "unit": verdict.unit,
        **_cell(verdict.cell),
        "serial": verdict.serial,
        "source": verdict.source.value,
        "status": verdict.status.value,
        "required": verdict.required,
        "value": verdict.value,
        "interval": None if verdict.interval is None else list(verdict.interval),
        "n_samples": verdict.n_samples,
        "limit": None
        if limit is None
        else {"minimum": limit.minimum, "maximum": limit.maximum, "reason": limit.reason, "date": limit.date},
        "reason": verdict.reason,
        "run_ids": list(verdict.run_ids),
    }


_COLUMNS = ("metric", "unit", "cell", "serial", "source", "status", "required", "value", "n_samples", "run_ids")


def data_block(view: ReportView, verdict: RunVerdict, *, title: str) -> dict[str, Any]:
    """What the page itself embeds: verdicts as columns and rows, the charts' values and the per-token stamps."""
    body: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "title": title,
        "status": verdict.status.value,
        "exit_code": EXIT_CODES[verdict.status],
        "synthetic": view.overview.synthetic,
        "verdicts": {
            "columns": list(_COLUMNS),
            "rows": [
                [
                    v.metric,
                    v.unit,
                    str(v.cell),
                    v.serial,
                    v.source.value,
                    v.status.value,
                    v.required,
                    v.value,
                    v.n_samples,
                    list(v.run_ids),
                ]
                for v in verdict.verdicts
            ],
        },
        "charts": {
            **{chart.chart_id: chart.data for chart in view.charts},
            **{c.chart_id: c.data for c in view.latency.timelines},
        },
        "stamps": view.stamps,
    }
    cleaned: dict[str, Any] = clean_tree(body)
    return cleaned
