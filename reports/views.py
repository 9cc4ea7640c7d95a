"""Journal, measurements and verdicts to the rows of a report. All arithmetic, rounding and cleaning of text is done by
this module and the ones it calls; a template only lays rows out.

``overview`` (first screen), ``tables`` (runs, verdicts, conditions), ``accuracy``, ``latency``, ``thermal`` and
``seed`` (the article's tables) each make the rows of their section; ``chart`` places points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.journal import Journal
from harness.record.artifact import ArtifactManifest
from harness.record.verdict import Measurement, RunVerdict
from harness.record.vocabulary import Source
from reports import accuracy, artifacts, latency, overview, seed, tables, thermal
from reports.accuracy import LogitsRow, MismatchRow, PerplexityRow
from reports.artifacts import ArtifactRow, QualityRow
from reports.chart import Chart
from reports.latency import GenerationRow, MetricTable
from reports.overview import Overview
from reports.tables import (
    ConditionRow,
    MetricDefinition,
    NotCoveredRow,
    ReferenceRow,
    RunRow,
    SelfCheckRow,
    VerdictRow,
)
from reports.text import counted
from reports.thermal import SensorRow
from reports.timeline import Timeline

_MEDIANS: Final = "medians; below them the 95 % interval, where there are samples for one"
REPORT_SCHEMA: Final = "snapgate.report/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much is drawn and embedded, so that the file stays small. Tables and verdicts are never cut."""

    hover_points: int
    """Points per chart that carry a hover text"""
    stamp_values: int
    """Per-token stamps embedded in all"""
    charts: int
    """Charts drawn per kind"""
    timelines: int
    """Start-up timelines drawn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracySection:
    perplexities: tuple[PerplexityRow, ...]
    logits: tuple[LogitsRow, ...]
    mismatches: tuple[MismatchRow, ...]
    more_mismatches: int
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySection:
    table: MetricTable
    load: MetricTable
    generations: tuple[GenerationRow, ...]
    charts: tuple[Chart, ...]
    timelines: tuple[Timeline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalSection:
    table: MetricTable
    sensors: tuple[SensorRow, ...]
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    overview: Overview
    runs: tuple[RunRow, ...]
    anchors: dict[str, str]
    """Run id to the id of its row in the page"""
    short: dict[str, str]
    """Run id to what is shown of it where space is dear"""
    not_covered: tuple[NotCoveredRow, ...]
    verdicts: tuple[VerdictRow, ...]
    families: tuple[str, ...]
    """Families of the verdict table, for its filter"""
    definitions: tuple[MetricDefinition, ...]
    accuracy: AccuracySection
    latency: LatencySection
    thermal: ThermalSection
    memory: MetricTable
    conditions: tuple[ConditionRow, ...]
    self_checks: tuple[SelfCheckRow, ...]
    references: tuple[ReferenceRow, ...]
    artifacts: tuple[ArtifactRow, ...]
    quality: tuple[QualityRow, ...]
    startup: seed.StartupTable
    configurations: tuple[seed.ConfigurationRow, ...]
    emulated: bool
    stamps: dict[str, Any]
    left_out: tuple[str, ...]
    """What ``Detail`` cut, in words"""


def report_view(
    journal: Journal,
    verdict: RunVerdict,
    measurements: Sequence[Measurement],
    manifests: Sequence[ArtifactManifest],
    *,
    link_base: str | None,
    detail: Detail,
) -> ReportView:
    """Every row of the report. ``link_base``: relative URL path from the report to the results folder, if known."""
    phones = {run.device.serial: run.device.model for run in journal.runs}
    runs = tables.run_rows(journal, link_base)
    verdicts = tables.verdict_rows(journal, verdict)
    mismatches, more = accuracy.mismatch_rows(journal)
    stamps = latency.stamps(journal, budget=detail.stamp_values)
    left_out: list[str] = []

    def drawn(charts: tuple[Any, ...], what: str, most: int) -> tuple[Any, ...]:
        if len(charts) > most:
            left_out.append(f"{len(charts) - most} {what} charts")
        return charts[:most]

    snr = drawn(accuracy.snr_charts(journal, hover_points=detail.hover_points), "signal-to-noise", detail.charts)
    tokens = drawn(latency.token_charts(journal, stamps, hover_points=detail.hover_points), "token gap", detail.charts)
    starts = drawn(latency.timelines(journal), "start-up", detail.timelines)
    heat = drawn(thermal.thermal_charts(journal, hover_points=detail.hover_points), "temperature", detail.charts)
    if stamps.left_out:
        left_out.append(f"the per-token stamps of {counted(stamps.left_out, 'generation')}")
    return ReportView(
        overview=overview.overview(journal, verdict),
        runs=runs,
        anchors={run.run_id: run.anchor for run in runs},
        short=tables.short_run_ids(tuple(run.run_id for run in runs)),
        not_covered=tables.not_covered_rows(journal),
        verdicts=verdicts,
        families=tuple(dict.fromkeys(row.family for row in verdicts)),
        definitions=tables.definitions(verdict),
        accuracy=AccuracySection(
            perplexities=accuracy.perplexity_rows(journal, measurements),
            logits=accuracy.logits_rows(journal),
            mismatches=mismatches,
            more_mismatches=more,
            charts=snr,
        ),
        latency=LatencySection(
            table=latency.metric_table(
                "latency-table",
                "Latency per cell and phone",
                latency.LATENCY_COLUMNS,
                measurements,
                phones,
                note=_MEDIANS,
            ),
            load=latency.metric_table(
                "load-table",
                "Load phases per cell and phone",
                latency.LOAD_COLUMNS,
                measurements,
                phones,
                note=_MEDIANS,
            ),
            generations=latency.generation_rows(journal),
            charts=tokens,
            timelines=starts,
        ),
        thermal=ThermalSection(
            table=latency.metric_table(
                "thermal-table",
                "Temperature per cell and phone",
                latency.THERMAL_COLUMNS,
                measurements,
                phones,
                note="the hottest sensor of each domain, the hottest of all runs",
                drop_empty=True,
            ),
            sensors=thermal.sensor_rows(journal),
            charts=heat,
        ),
        memory=latency.metric_table(
            "memory-table",
            "Memory per cell and phone",
            latency.MEMORY_COLUMNS,
            measurements,
            phones,
            note="the largest of all runs",
        ),
        conditions=tables.condition_rows(journal),
        self_checks=tables.self_check_rows(journal),
        references=tables.reference_rows(journal),
        artifacts=artifacts.artifact_rows(manifests),
        quality=artifacts.quality_rows(manifests),
        startup=seed.startup_table(journal, measurements),
        configurations=seed.configuration_rows(journal, measurements, manifests),
        emulated=any(run.source is Source.VIRTUAL for run in journal.runs),
        stamps=stamps.by_run,
        left_out=tuple(left_out),
    )
