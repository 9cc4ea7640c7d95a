"""Journal, measurements and verdicts to the rows of a report. All arithmetic, rounding and cleaning of text is done by
this module and the ones it calls; a template only lays rows out.

``overview`` (first screen), ``tables`` (runs, verdicts, conditions), ``accuracy``, ``latency``, ``thermal`` and
``seed`` (the article's tables) each make the rows of their section; ``chart`` places points.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.journal import Journal
from harness.record.artifact import ArtifactManifest
from harness.record.verdict import Measurement, RunVerdict
from harness.record.vocabulary import Source
from harness.results.findings import RULES, Finding, find
from reports import accuracy, artifacts, divergence, latency, overview, seed, speed, tables, thermal
from reports.accuracy import LogitsRow, MismatchRow, PerplexityRow
from reports.artifacts import ArtifactRow, QualityRow
from reports.divergence import DivergenceRow
from reports.drawing import Chart
from reports.energy import EnergySection, energy_section
from reports.latency import GenerationRow, MetricTable
from reports.operators import OperatorTable, operator_tables
from reports.overview import Overview
from reports.roofline import RooflineSection, roofline_section
from reports.suites import SuitesSection, suites_section
from reports.tables import (
    ConditionRow,
    MetricDefinition,
    NotCoveredRow,
    ReferenceRow,
    RunRow,
    SelfCheckRow,
    VerdictRow,
)
from reports.text import clean, counted
from reports.thermal import SensorRow
from reports.timeline import Timeline

_MEDIANS: Final = "medians; below them the 95 % interval, where there are samples for one"
REPORT_SCHEMA: Final = "snapgate.report/1"
LONG_NOTE: Final = 110
"""Characters of a note on the first screen"""


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
    """Start-up timelines and run-to-run charts drawn, each"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracySection:
    perplexities: tuple[PerplexityRow, ...]
    logits: tuple[LogitsRow, ...]
    mismatches: tuple[MismatchRow, ...]
    more_mismatches: int
    divergences: tuple[DivergenceRow, ...]
    charts: tuple[Chart, ...]
    layers: tuple[Chart, ...]
    layers_missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySection:
    table: MetricTable
    load: MetricTable
    generations: tuple[GenerationRow, ...]
    charts: tuple[Chart, ...]
    by_prompt: tuple[Chart, ...]
    by_depth: tuple[Chart, ...]
    distributions: tuple[Chart, ...]
    missing: dict[str, str]
    """``by_prompt``, ``by_depth``, ``distributions``: why a chart is not there, or empty"""
    timelines: tuple[Timeline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalSection:
    table: MetricTable
    sensors: tuple[SensorRow, ...]
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    weight: str
    rule: str
    what: str
    where: str
    evidence: tuple[str, ...]
    next_step: str
    run_ids: tuple[str, ...]


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
    energy: EnergySection
    suites: SuitesSection
    operators: tuple[OperatorTable, ...]
    roofline: RooflineSection
    findings: tuple[FindingRow, ...]
    no_findings: str
    """What was looked at without finding anything, or why nothing was; empty where there are findings"""
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

    @property
    def long_notes(self) -> bool:
        """Whether the first screen cuts a note, so that all are said again below the verdict table."""
        return any(len(note) > LONG_NOTE for note in self.overview.notes)

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Every chart with lines, in the order of the page."""
        a, s = self.accuracy, self.latency
        return (
            *a.layers, *a.charts, *s.by_prompt, *s.by_depth, *s.distributions, *s.charts, *self.thermal.charts,
            *self.energy.charts, *self.suites.charts, *self.roofline.charts,
        )  # fmt: skip


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
    by_prompt, by_depth, gaps = (
        make(journal, hover_points=detail.hover_points)
        for make in (speed.prompt_charts, speed.depth_charts, speed.distribution_charts)
    )
    layers, layers_missing = divergence.layer_charts(manifests, hover_points=detail.hover_points)
    energy = energy_section(journal, measurements, phones, hover_points=detail.hover_points)
    suites = suites_section(journal, measurements, phones, hover_points=detail.hover_points)
    findings = tuple(map(_finding, find(journal, measurements)))
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
            divergences=divergence.divergence_rows(journal),
            charts=snr,
            layers=layers,
            layers_missing=layers_missing,
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
            by_prompt=drawn(by_prompt.charts, "prompt length", detail.charts),
            by_depth=drawn(by_depth.charts, "depth", detail.charts),
            distributions=drawn(gaps.charts, "gap distribution", detail.charts),
            missing={
                "by_prompt": "; ".join(by_prompt.missing[:4]),
                "by_depth": "; ".join(by_depth.missing[:4]),
                "distributions": "; ".join(gaps.missing[:4]),
            },
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
            note="the worst of all runs",
            drop_empty=True,
        ),
        energy=dataclasses.replace(energy, charts=drawn(energy.charts, "battery power", detail.charts)),
        suites=dataclasses.replace(suites, charts=drawn(suites.charts, "run-to-run", detail.timelines)),
        operators=operator_tables(journal),
        roofline=roofline_section(journal, measurements, manifests, hover_points=detail.hover_points),
        findings=findings,
        no_findings=_no_findings(journal, findings),
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


def _finding(finding: Finding) -> FindingRow:
    return FindingRow(
        weight=str(finding.weight),
        rule=finding.rule,
        what=clean(finding.what),
        where=clean(finding.where),
        evidence=tuple(clean(text) for text in finding.evidence),
        next_step=clean(finding.next_step),
        run_ids=tuple(clean(run_id) for run_id in finding.run_ids),
    )


def _no_findings(journal: Journal, findings: Sequence[FindingRow]) -> str:
    if findings:
        return ""
    if not journal.runs:
        return "not measured: the journal has no run to look at"
    return f"none: {counted(len(RULES), 'rule')} looked at {counted(len(journal.runs), 'run')} and nothing stands out"
