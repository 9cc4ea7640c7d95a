"""The end of a run: one verdict from the journal, the report and its companions, and the lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import SnapGateError
from harness.journal import Journal
from harness.plugin.options import Settings
from harness.record.artifact import ArtifactManifest, load_artifact
from harness.record.verdict import RunVerdict
from harness.record.vocabulary import EXIT_CODES, SEVERITY, Status
from harness.results.derive import derive
from harness.results.documents import by_weight, write_documents
from harness.results.gate import judge_journal, read_limits
from harness.results.integrity import write_manifest
from reports.render import write_report

_SHOWN_PER_STATUS = 12
_SUITES = Path(__file__).resolve().parents[2] / "suites"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    verdict: RunVerdict
    lines: tuple[str, ...]
    """For the terminal"""


def conclude(journal: Journal, settings: Settings) -> Conclusion:
    """Judge the session's journal and write the report to the results folder."""
    verdict = judge_journal(
        journal,
        read_limits(settings.limits),
        required=None if settings.journal else settings.required,
        release=settings.release,
    )
    manifests = manifests_of(journal, settings.artifacts)
    written = write_all(settings.results, journal, verdict, manifests)
    manifest = write_manifest(
        settings.results,
        journal,
        journal_dir=settings.journal or settings.results / "journal",
        limits=settings.limits,
        suites=_SUITES,
        artifacts=manifests,
        required=None if settings.journal else settings.required,
        release=settings.release,
    )
    written = (*written, manifest)
    return Conclusion(verdict=verdict, lines=tuple(_lines(verdict, written)))


def write_all(
    folder: Path, journal: Journal, verdict: RunVerdict, manifests: Sequence[ArtifactManifest] = ()
) -> tuple[Path, ...]:
    """``report.html``, ``.json`` and ``.md`` of a journal, and ``verdict.json``; returns what was written."""
    report = folder / "report.html"
    write_report(report, journal, verdict, derive(journal), results_dir=folder, manifests=manifests)
    write_documents(verdict, json_file=folder / "verdict.json")
    return (report, folder / "report.json", folder / "report.md", folder / "verdict.json")


def manifests_of(journal: Journal, artifacts: Path) -> tuple[ArtifactManifest, ...]:
    """Manifests of the artifacts that the journal's runs used, where they are still the same."""
    found = []
    for name, artifact_id in dict.fromkeys((run.artifact_name, run.artifact_id) for run in journal.runs):
        try:
            manifest = load_artifact(artifacts / name, verify=False).manifest
        except SnapGateError:
            continue
        if manifest.artifact_id == artifact_id:
            found.append(manifest)
    return tuple(found)


def _lines(verdict: RunVerdict, written: Iterable[Path]) -> Iterable[str]:
    for status in SEVERITY:
        shown = [v for v in by_weight(verdict.verdicts) if v.status is status]
        if not shown:
            continue
        if status in (Status.INVALID, Status.NOT_COVERED):
            n_required = sum(v.required for v in shown)
            yield f"{status:13} {len(shown)} verdicts ({n_required} required)"
            shown = [v for v in shown if v.required]
        for v in shown[:_SHOWN_PER_STATUS] if status is not Status.PASS else shown:
            value = "not measured" if v.value is None else f"{v.value:.5g} {v.unit}"
            yield f"{status:13} {v.metric:30} {v.cell!s:34} {value:>22}  {v.reason}"
    yield ""
    yield from verdict.notes
    yield f"verdict: {verdict.status} (exit code {EXIT_CODES[verdict.status]}), decided by: " + (
        "; ".join(verdict.decided_by) or "nothing"
    )
    for path in written:
        yield f"wrote {path}"
