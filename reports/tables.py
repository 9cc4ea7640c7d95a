"""Rows of the verdict table, of what ran where, of the conditions and of the self-checks."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from harness.journal import Journal
from harness.measure.metrics import METRICS
from harness.record.comparison import ReferenceFacts
from harness.record.run import RunRecord
from harness.record.verdict import RunVerdict, Verdict
from harness.record.vocabulary import SEVERITY, Source
from harness.spec.limits import provenance
from reports.overview import SOURCE_NAMES, Figure, cell_label, emulated_figure, figure, limit_text, soc_label
from reports.text import clean, counted, moment, number


def anchor_of(run_id: str) -> str:
    """The id of a run's row in the page."""
    return "run-" + re.sub(r"[^A-Za-z0-9-]+", "-", run_id)


def short_run_ids(run_ids: Sequence[str]) -> dict[str, str]:
    """What is shown of each run id: its last part where the id is long and that part is nobody else's."""
    tails = Counter(run_id.rpartition("-")[2] for run_id in run_ids)
    short = {}
    for run_id in run_ids:
        tail = run_id.rpartition("-")[2]
        short[run_id] = tail if len(run_id) > 14 and len(tail) >= 6 and tails[tail] == 1 else run_id
    return short


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    path: str
    href: str
    """Relative to the report; empty when the place of the results is not known or the path leaves it."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    run_id: str
    anchor: str
    cell: str
    workload: str
    phone: str
    serial: str
    source: str
    source_kind: str
    started_at: str
    wall: Figure
    outcome: str
    """``completed``, or the status word of its error"""
    error: str
    n_generations: int
    attempts: str
    artifact: str
    files: tuple[FileRow, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    metric: str
    family: str
    cell: str
    phone: str
    status: str
    required: bool
    figure: Figure
    interval: str
    n: int
    limit: str
    reason: str
    run_ids: tuple[str, ...]
    emulated: bool
    synthetic: bool
    severity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    metric: str
    unit: str
    family: str
    better: str
    definition: str
    limits: tuple[str, ...]
    """Every limit it was judged by, and where that limit comes from"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRow:
    run_id: str
    phone: str
    battery: Figure
    battery_temperature: Figure
    charging: str
    thermal_status: str
    memory_free: Figure
    storage_free: Figure
    uptime: Figure
    host_load: str
    host_busy: str
    performance_mode: str
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheckRow:
    run_id: str
    name: str
    outcome: str
    """``holds``, ``does not hold`` or ``not carried out``"""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCoveredRow:
    cell: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    reference_id: str
    artifact_id: str
    onnxruntime: str
    cpu: str
    flags: str
    threads: int
    optimisation: str


def _link(path: str, base: str | None) -> str:
    if base is None:
        return ""
    inside = posixpath.normpath(path)
    if inside.startswith(("/", "..")) or "\\" in path:
        return ""
    joined = posixpath.normpath(posixpath.join(base, inside))
    if joined.startswith("/"):
        return ""
    return quote(joined if joined.startswith(".") else f"./{joined}")


def _facts(run: RunRecord) -> tuple[Fact, ...]:
    device, platform, start = run.device, run.log.platform, run.log.start
    pairs: list[tuple[str, str]] = [
        ("session", run.session_id),
        ("Android build", device.fingerprint),
        ("boot id", device.boot_id),
        ("ABI", device.abi),
        ("SoC read from", device.soc_source),
    ]
    if device.ram_bytes is not None:
        pairs.append(("RAM (GiB)", number(device.ram_bytes / 2**30, "GiB")))
    if platform is not None:
        pairs += [
            ("QNN build", platform.build_id),
            ("QNN backend API", platform.backend_api),
        ]
    if run.log.buffers is not None:
        pairs.append(("buffers", run.log.buffers.memory))
        if run.log.buffers.fallback is not None:
            pairs.append(("buffers are not shared because", run.log.buffers.fallback))
        pairs.append(("buffer alignment (bytes)", str(run.log.buffers.alignment_bytes)))
    pairs += [
        (
            f"context {context.file}",
            f"HTP v{context.dsp_arch}, SoC number {context.soc_number}, sha256 {context.sha256}",
        )
        for context in run.log.contexts
    ]
    if start is not None:
        built = f"{start.runner_version}, {start.compiler}, {start.build_type}"
        pairs.append(("runner", f"{built}, sha256 {run.runner_sha256}"))
    else:
        pairs.append(("runner", f"sha256 {run.runner_sha256}"))
    pairs.append(("job", f"sha256 {run.job_sha256}"))
    pairs += [(name, f"sha256 {digest}") for name, digest in sorted(run.libraries_sha256.items())]
    pairs.append(
        ("pushed", f"{number(run.bytes_pushed / 2**20, 'MiB')} MiB in {number(run.push_s, 's')} s")
        if run.bytes_pushed
        else ("pushed", "nothing: every file was on the phone already")
    )
    if run.log.unknown_lines:
        pairs.append(("lines that are no record", f"{len(run.log.unknown_lines)}; first: {run.log.unknown_lines[0]}"))
    return tuple(Fact(name=clean(name), value=clean(value)) for name, value in pairs)


def run_rows(journal: Journal, link_base: str | None) -> tuple[RunRow, ...]:
    rows = []
    for run in journal.runs:
        attempts = ""
        if run.attempts > 1 or run.retried_because is not None:
            attempts = f"{counted(run.attempts, 'attempt')}, retried because: {run.retried_because or 'not recorded'}"
        rows.append(
            RunRow(
                run_id=clean(run.run_id),
                anchor=anchor_of(run.run_id),
                cell=cell_label(run.cell),
                workload=clean(run.workload),
                phone=clean(f"{run.device.model}, {soc_label(run.device.part)}"),
                serial=clean(run.device.serial),
                source=SOURCE_NAMES[run.source],
                source_kind=run.source.value,
                started_at=moment(run.started_at),
                wall=figure(run.wall_s, "s", run_ids=(clean(run.run_id),)),
                outcome="completed" if run.error is None else run.error.status.value,
                error="" if run.error is None else clean(f"{run.error.kind}: {run.error.message}"),
                n_generations=len(run.log.generations),
                attempts=clean(attempts),
                artifact=clean(f"{run.artifact_name} ({run.artifact_id})"),
                files=tuple(
                    FileRow(path=clean(path), href=_link(path, link_base), sha256=clean(digest))
                    for path, digest in sorted(run.files_sha256.items())
                ),
                facts=_facts(run),
            )
        )
    return tuple(rows)


def verdict_rows(journal: Journal, run_verdict: RunVerdict) -> tuple[VerdictRow, ...]:
    """Required metrics first, the worst on top."""
    phones = {run.device.serial: run.device.model for run in journal.runs}

    def key(verdict: Verdict) -> tuple[object, ...]:
        order = list(METRICS)
        known = order.index(verdict.metric) if verdict.metric in METRICS else len(order)
        return (not verdict.required, SEVERITY.index(verdict.status), known, verdict.metric, str(verdict.cell))

    rows = []
    for verdict in sorted(run_verdict.verdicts, key=key):
        emulated = emulated_figure(verdict.metric, verdict.source)
        run_ids = tuple(clean(run_id) for run_id in verdict.run_ids)
        shown = figure(
            verdict.value,
            verdict.unit,
            run_ids=run_ids,
            why=verdict.reason,
            emulated=emulated,
            interval=verdict.interval,
        )
        phone = "" if verdict.serial is None else clean(f"{phones.get(verdict.serial, '')} {verdict.serial}".strip())
        limit = verdict.limit
        rows.append(
            VerdictRow(
                metric=clean(verdict.metric),
                family=verdict.family.value,
                cell=cell_label(verdict.cell),
                phone=phone or "no phone",
                status=verdict.status.value,
                required=verdict.required,
                figure=shown,
                interval=shown.interval,
                n=verdict.n_samples,
                limit=limit_text(limit, verdict.unit),
                reason=clean(verdict.reason),
                run_ids=run_ids,
                emulated=emulated,
                synthetic=verdict.source is Source.SYNTHETIC,
                severity=SEVERITY.index(verdict.status),
            )
        )
    return tuple(rows)


def definitions(run_verdict: RunVerdict) -> tuple[MetricDefinition, ...]:
    """What each metric of the verdict table counts, in the order of the catalogue."""
    used: dict[str, dict[str, None]] = {}
    for verdict in run_verdict.verdicts:
        limits = used.setdefault(verdict.metric, {})
        if verdict.limit is not None:
            limits[clean(f"{limit_text(verdict.limit, verdict.unit)}: {provenance(verdict.limit)}")] = None
    return tuple(
        MetricDefinition(
            metric=metric.name,
            unit=metric.unit,
            family=metric.family.value,
            better=metric.better,
            definition=metric.definition,
            limits=tuple(used[metric.name]),
        )
        for metric in METRICS.values()
        if metric.name in used
    )


_THERMAL_STATUS = ("0 none", "1 light", "2 moderate", "3 severe", "4 critical", "5 emergency", "6 shutdown")
_UNREAD = "the phone did not say"


def condition_rows(journal: Journal) -> tuple[ConditionRow, ...]:
    rows = []
    for run in journal.runs:
        here, host, platform = run.conditions, run.host, run.log.platform
        ids = (clean(run.run_id),)
        status = here.thermal_status
        rows.append(
            ConditionRow(
                run_id=clean(run.run_id),
                phone=clean(run.device.serial),
                battery=figure(here.battery_percent, "%", run_ids=ids, why=_UNREAD, decimals=0),
                battery_temperature=figure(here.battery_celsius, "celsius", run_ids=ids, why=_UNREAD),
                charging="not read" if here.charging is None else "yes" if here.charging else "no",
                thermal_status="not read"
                if status is None
                else _THERMAL_STATUS[status]
                if 0 <= status < len(_THERMAL_STATUS)
                else str(status),
                memory_free=figure(here.memory_available_bytes, "bytes", run_ids=ids, why=_UNREAD, decimals=0),
                storage_free=figure(here.storage_available_bytes, "bytes", run_ids=ids, why=_UNREAD, decimals=0),
                uptime=figure(here.uptime_s, "s", run_ids=ids, why=_UNREAD, decimals=0),
                host_load="not read"
                if host is None
                else f"{number(host.load_1min_before, decimals=2)} → {number(host.load_1min_after, decimals=2)} "
                f"of {counted(host.n_cpus, 'CPU')}",
                host_busy="" if host is None else clean(", ".join(host.heavy_processes)),
                performance_mode="not read"
                if platform is None
                else clean(platform.performance_mode) + ("" if platform.performance_accepted else ", refused"),
                violations=tuple(clean(v) for v in here.violations),
            )
        )
    return tuple(rows)


def self_check_rows(journal: Journal) -> tuple[SelfCheckRow, ...]:
    """Those that do not hold first, then those that could not be carried out."""
    words = {False: "does not hold", None: "not carried out", True: "holds"}
    order = [False, None, True]
    return tuple(
        SelfCheckRow(
            run_id=clean(check.run_id), name=clean(check.name), outcome=words[check.passed], detail=clean(check.detail)
        )
        for check in sorted(journal.self_checks, key=lambda c: order.index(c.passed))
    )


def not_covered_rows(journal: Journal) -> tuple[NotCoveredRow, ...]:
    return tuple(
        NotCoveredRow(cell=cell_label(gap.cell), status=gap.status.value, reason=clean(gap.reason))
        for gap in journal.not_covered
    )


def reference_rows(journal: Journal) -> tuple[ReferenceRow, ...]:
    unique: dict[str, ReferenceFacts] = {facts.reference_id: facts for facts in journal.references}
    return tuple(
        ReferenceRow(
            reference_id=clean(facts.reference_id),
            artifact_id=clean(facts.artifact_id),
            onnxruntime=clean(facts.onnxruntime_version),
            cpu=clean(facts.cpu_model),
            flags=clean(", ".join(facts.cpu_flags)) or "none of those that change integer kernels",
            threads=facts.n_threads,
            optimisation=clean(facts.optimization_level),
        )
        for facts in unique.values()
    )
