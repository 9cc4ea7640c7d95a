"""Rules about an artifact as a whole: what its graphs must have in common, and with the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.lint.findings import Finding, Severity
from harness.model.checkpoint import load_checkpoint
from harness.model.rope import rope_tables
from harness.record.artifact import Artifact, TensorSpec
from harness.soc import PRECISION_FLOORS, Soc

MANIFEST = "manifest.json"


def kv_scales(artifact: Artifact) -> Iterator[Finding]:
    """Keys and values that one graph writes and another reads with another encoding."""
    seen: dict[str, tuple[str, TensorSpec]] = {}
    graphs = [graph for context in artifact.manifest.contexts for graph in context.graphs]
    for graph in graphs:
        for tensor in (*graph.inputs, *graph.outputs):
            if not tensor.name.startswith("past_"):
                continue
            cache = tensor.name.removesuffix("_in").removesuffix("_out")
            where, first = seen.setdefault(cache, (f"AR-{graph.n_tokens}", tensor))
            if (first.dtype, first.scale, first.zero_point) == (tensor.dtype, tensor.scale, tensor.zero_point):
                continue
            ratio = tensor.scale / first.scale if tensor.scale and first.scale else float("nan")
            yield Finding(
                rule="kv-scales",
                severity=Severity.ERROR,
                graph=f"AR-{graph.n_tokens}",
                tensors=(first.name, tensor.name),
                found=f"{tensor.dtype} scale {tensor.scale}, zero point {tensor.zero_point}",
                expected=f"as in {where}: {first.dtype} scale {first.scale}, zero point {first.zero_point}",
                effect=f"what one writes the other reads {ratio:.4g} times as large",
                fix="quantise every AR-N graph from one table of encodings",
            )


def rope(artifact: Artifact, checkpoint: Path | None) -> Iterator[Finding]:
    """A rotary table other than the manifest's model, or the checkpoint's, gives."""
    manifest = artifact.manifest
    facts, whose = manifest.model, "the manifest"
    if checkpoint is not None:
        facts, whose = load_checkpoint(checkpoint).facts, str(checkpoint)
    wanted = np.stack(rope_tables(facts, manifest.recipe.context_length)).astype(np.float32)
    found = np.frombuffer(artifact.path("rope.bin").read_bytes(), dtype="<f4")
    if found.size == wanted.size and np.array_equal(found.reshape(wanted.shape), wanted):
        return
    worst = float(np.abs(found.reshape(wanted.shape) - wanted).max()) if found.size == wanted.size else float("nan")
    yield Finding(
        rule="rope",
        severity=Severity.ERROR,
        graph=MANIFEST,
        tensors=("rope.bin",),
        found=f"{found.size} numbers, the model of the manifest has theta {manifest.model.rope_theta:g}",
        expected=f"{wanted.size} numbers of theta {facts.rope_theta:g}, as {whose} says",
        effect=f"a cosine or sine is off by up to {worst:.4g}; positions far apart are told apart wrongly",
        fix="prepare the artifact again from this checkpoint",
    )


def pieces(artifact: Artifact, soc: Soc) -> Iterator[Finding]:
    """What the manifest says of compiled graphs, target and precision."""
    manifest = artifact.manifest
    for graph in (graph for context in manifest.contexts for graph in context.graphs):
        if graph.epcontext_nodes != 1 or graph.cpu_nodes:
            yield Finding(
                rule="split-graph",
                severity=Severity.ERROR,
                graph=f"AR-{graph.n_tokens}",
                tensors=(graph.name,),
                found=f"{graph.epcontext_nodes} EPContext nodes and {graph.cpu_nodes} on the CPU",
                expected="1 and 0",
                effect=f"{graph.epcontext_nodes + graph.cpu_nodes - 1} hand-overs between HTP and CPU every step",
                fix="find the refused nodes with `snapgate operators`, and rewrite them",
            )
    floor = PRECISION_FLOORS[manifest.recipe.precision]
    if soc.htp_arch < floor.arch:
        yield Finding(
            rule="arch-floor",
            severity=Severity.ERROR,
            graph=MANIFEST,
            tensors=(),
            found=f"{manifest.recipe.precision} on HTP v{soc.htp_arch}",
            expected=f"v{floor.arch} or newer",
            effect=f"does not compile, or is wrong, below v{floor.arch}: {floor.source}",
            fix="choose a precision that the SoC runs",
        )
    if manifest.target.htp_arch != soc.htp_arch:
        yield Finding(
            rule="other-arch",
            severity=Severity.ERROR,
            graph=MANIFEST,
            tensors=(),
            found=f"compiled for {manifest.target.part}, HTP v{manifest.target.htp_arch}",
            expected=f"{soc.part}, HTP v{soc.htp_arch}",
            effect="the binary does not load, or loads and is wrong",
            fix=f"prepare it with --soc {soc.marker}",
        )
