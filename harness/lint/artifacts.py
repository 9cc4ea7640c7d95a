"""Rules about an artifact as a whole: what its graphs must have in common, and with the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from harness.lint.findings import Finding, Severity
from harness.model.checkpoint import load_checkpoint
from harness.model.interface import COS, INPUT_EMBEDS, INPUT_IDS, LOGITS, MASK, SIN
from harness.model.rope import rope_tables
from harness.record.artifact import Artifact, GraphSpec, TensorSpec
from harness.soc import PRECISION_FLOORS, Soc

MANIFEST = "manifest.json"
GRAPHS: Final = "reference/graph_"
HOST_INPUTS: Final = (INPUT_IDS, INPUT_EMBEDS, MASK, COS, SIN)


def graphs_kept(artifact: Artifact) -> Iterator[Finding]:
    """An artifact without the graphs that were compiled: most rules have nothing to look at."""
    if any(name.startswith(GRAPHS) for name in artifact.manifest.files_sha256):
        return
    yield Finding(
        rule="no-graphs",
        severity=Severity.WARNING,
        graph=MANIFEST,
        tensors=(),
        found=f"no {GRAPHS}*.onnx: prepared layer by layer",
        expected="the graphs that were compiled",
        effect="masks, scales, ranges, biases and zero points inside the graphs were not looked at",
        fix="prepare it with --build whole, or look at a model of fewer layers prepared so",
    )


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


def loose_ends(artifact: Artifact) -> Iterator[Finding]:
    """Outputs of compiled graphs that no host and no other graph reads, and caches without their other end."""
    graphs = [graph for context in artifact.manifest.contexts for graph in context.graphs]
    for graph in graphs:
        step = [other for other in graphs if other.n_tokens == graph.n_tokens]
        read = {LOGITS, *(tensor.name for other in step for tensor in other.inputs)}
        made = {tensor.name for other in step for tensor in other.outputs}
        for tensor in graph.outputs:
            cache = re.fullmatch(r"(past_(?:key|value)_\d+)_out", tensor.name)
            if tensor.name not in read and (cache is None or f"{cache[1]}_in" not in read):
                yield _loose("unused-output", graph, tensor, "read by no host and no graph of the step")
        for tensor in graph.inputs:
            cache = re.fullmatch(r"(past_(?:key|value)_\d+)_in", tensor.name)
            handed = cache is None and tensor.name not in HOST_INPUTS and tensor.name not in made
            if handed or (cache is not None and f"{cache[1]}_out" not in made):
                yield _loose("unfed-input", graph, tensor, "made by no host and no graph of the step")


def _loose(rule: str, graph: GraphSpec, tensor: TensorSpec, found: str) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.WARNING if rule == "unused-output" else Severity.ERROR,
        graph=f"AR-{graph.n_tokens}",
        tensors=(tensor.name,),
        found=found,
        expected="a reader" if rule == "unused-output" else "a maker",
        effect=f"{tensor.n_bytes} bytes a step are moved for nothing"
        if rule == "unused-output"
        else f"{tensor.n_bytes} bytes of zeros, or of what was there before, go into every step",
        fix="take it out of the graph, or prepare the artifact again",
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
