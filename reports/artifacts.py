"""What was prepared: the artifacts and the quality that was measured when they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.measure.footprint import PHONE_RAM_GB, footprint
from harness.record.artifact import ArtifactManifest
from reports.accuracy import gap_figure
from reports.overview import Figure, figure
from reports.text import clean, number


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """Perplexity as it was measured when the artifact was prepared."""

    artifact: str
    artifact_id: str
    engine: str
    graph: str
    perplexity: Figure
    gap: Figure
    """Percent above the fp32 figure of the same artifact and text"""
    n_windows: int
    n_tokens: int
    corpus: str
    chosen: bool
    """The graph that the artifact was compiled from"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRow:
    artifact: str
    artifact_id: str
    model: str
    recipe: str
    target: str
    size: Figure
    context: int
    moved: Figure
    """Estimated bytes read and written in one decode step"""
    need: str
    """Shares of HTP memory and of a phone's RAM, at the least"""
    accuracy: str
    """Of the compiled graph against fp32, at preparation"""
    files: tuple[tuple[str, str], ...]
    """Context binary and its sha256"""
    tools: str


def quality_rows(manifests: Sequence[ArtifactManifest]) -> tuple[QualityRow, ...]:
    rows = []
    for manifest in manifests:
        base = {q.corpus_sha256: q.perplexity for q in manifest.quality if q.graph == "fp32"}
        for item in manifest.quality:
            fp32 = base.get(item.corpus_sha256)
            rows.append(
                QualityRow(
                    artifact=clean(manifest.name),
                    artifact_id=clean(manifest.artifact_id),
                    engine=clean(item.engine),
                    graph=clean(item.graph),
                    perplexity=figure(item.perplexity, "ppl"),
                    gap=gap_figure(item.perplexity, fp32),
                    n_windows=item.n_windows,
                    n_tokens=item.n_scored_tokens,
                    corpus=clean(item.corpus_sha256[:12]),
                    chosen=item.graph == manifest.recipe.kv.value,
                )
            )
    return tuple(rows)


def artifact_rows(manifests: Sequence[ArtifactManifest]) -> tuple[ArtifactRow, ...]:
    rows = []
    for manifest in manifests:
        recipe, target = manifest.recipe, manifest.target
        rows.append(
            ArtifactRow(
                artifact=clean(manifest.name),
                artifact_id=clean(manifest.artifact_id),
                model=clean(
                    f"{manifest.model.architecture}, {manifest.model.n_layers} layers, "
                    f"{number(manifest.model.n_parameters, decimals=0)} parameters"
                ),
                recipe=clean(
                    f"{recipe.precision}, {recipe.kv}, AR-{recipe.prefill_tokens} and AR-1, RMSNorm {recipe.rmsnorm}"
                    + _places(manifest)
                ),
                target=clean(f"{target.part}, SoC number {target.soc_number}, HTP v{target.htp_arch}"),
                size=figure(sum(c.n_bytes for c in manifest.contexts), "bytes"),
                context=recipe.context_length,
                moved=figure(manifest.bytes_per_token, "bytes", why="no AR-1 graph"),
                need=_need(manifest),
                accuracy=_accuracy(manifest),
                files=tuple((clean(c.file), clean(c.sha256)) for c in manifest.contexts),
                tools=clean(", ".join(f"{name} {version}" for name, version in sorted(manifest.tools.items()))),
            )
        )
    return tuple(rows)


def _need(manifest: ArtifactManifest) -> str:
    """A floor: what the HTP takes for activations is known on a phone only."""
    if not manifest.contexts:
        return "not measured: no context binary"
    need = footprint(manifest)
    ram = ", ".join(f"{100 * need.of_ram(size):.2f} % of {size} GiB" for size in PHONE_RAM_GB)
    return f"{100 * need.of_session:.2f} % of an HTP session, {100 * need.of_context:.2f} % of a context, {ram} of RAM"


def _places(manifest: ArtifactManifest) -> str:
    """Where the pieces of the AR-1 graph run, and why not all on the HTP; nothing where all do."""
    pieces = [context for context in manifest.contexts if any(graph.n_tokens == 1 for graph in context.graphs)]
    refused = dict.fromkeys(told for context in pieces for told in context.on_cpu)
    if not refused:
        return ""
    places = " | ".join("CPU" if context.on_cpu else "HTP" for context in pieces)
    return f"; {places}, for the HTP refuses {'; '.join(refused)}"


def _accuracy(manifest: ArtifactManifest) -> str:
    found = manifest.accuracy
    if found is None:
        return "not measured"
    layers = ", ".join(number(value, decimals=1) for value in found.layer_snr_db)
    return clean(
        f"logits {number(found.logits_snr_db, decimals=1)} dB, same first choice at "
        f"{number(100 * found.top1_agreement, decimals=1)} % of {found.n_positions} positions; layers {layers} dB"
    )
