"""ONNX graphs to a context binary for one SoC, in a process of its own, with every promise checked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.compiler.call import DEFAULT_DEADLINE_S, call_worker
from harness.compiler.messages import BinaryFacts, BinaryGraph, CompileAnswer, CompileRequest, WorkerRequest
from harness.compiler.one_context import put_backend
from harness.compiler.operators import inspect_operators
from harness.compiler.qairt import Sdk, compile_with_sdk
from harness.errors import CompileError, SnapGateError
from harness.model.form import Contexts
from harness.record.artifact import ContextFile, GraphSpec, TensorSpec, sha256_of
from harness.soc import Soc

OPTIMIZATION_LEVEL: Final = 3
NAMED_AT_MOST: Final = 6
"""Of the operators that the HTP refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    context: ContextFile
    facts: BinaryFacts | None
    """None: no binary, but an ONNX file for the CPU."""
    peak_rss_bytes: int | None
    """Of the compiler's process; None: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An ONNX graph, and what it must come out as."""

    model: Path
    n_tokens: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def compile_graph(
    model: Path,
    *,
    soc: Soc,
    fp16: bool,
    n_tokens: int,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    binary: Path,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> Compiled:
    """``compile_graphs`` of one."""
    source = Source(model=model, n_tokens=n_tokens, inputs=inputs, outputs=outputs)
    return compile_graphs((source,), soc=soc, fp16=fp16, binary=binary, deadline_s=deadline_s)


def compile_graphs(
    sources: Sequence[Source],
    *,
    soc: Soc,
    fp16: bool,
    binary: Path,
    contexts: Contexts = Contexts.ONE,
    sdk: Sdk | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
) -> Compiled:
    """Compile graphs of one folder to ``binary``. Each must come out with its inputs and outputs, to the last scale.

    ``contexts``: of several graphs, whether each has weights of its own or all have one set. ``sdk``: its tools
    compile instead of onnxruntime-qnn. Raises CompileError where a graph was split, a node stayed on the CPU, or the
    binary is for another SoC or arch.
    """
    doing = f"compiling {' and '.join(source.model.name for source in sources)} for {soc.part}"
    shared = contexts is Contexts.SHARED and len(sources) > 1
    with tempfile.TemporaryDirectory(prefix="snapgate-compile-", dir=binary.parent) as scratch:
        folder = Path(scratch)
        # The library hashes the model's path into the graph's name: a path that is always the same keeps bytes equal.
        (folder / "model").symlink_to(sources[0].model.parent.resolve(), target_is_directory=True)
        peak: int | None = None
        if sdk is None:
            answer, peak = _by_onnxruntime(sources, folder, soc, fp16, shared, doing, deadline_s)
        else:
            answer = compile_with_sdk(
                sdk,
                [folder / "model" / source.model.name for source in sources],
                [(*source.inputs, *source.outputs) for source in sources],
                folder,
                soc=soc,
                level=OPTIMIZATION_LEVEL,
                fp16=fp16,
                shared=shared,
                doing=doing,
                deadline_s=deadline_s,
            )
        names = _check(answer, sources, soc=soc, doing=doing)
        (folder / answer.binary).replace(binary)
    graphs = [
        GraphSpec(
            name=name,
            n_tokens=source.n_tokens,
            inputs=source.inputs,
            outputs=source.outputs,
            epcontext_nodes=wrapped.nodes.count("EPContext"),
            cpu_nodes=sum(node != "EPContext" for node in wrapped.nodes),
        )
        for name, source, wrapped in zip(names, sources, answer.wrapped, strict=True)
    ]
    return Compiled(
        context=ContextFile(
            file=binary.name, sha256=sha256_of(binary), n_bytes=binary.stat().st_size, graphs=tuple(graphs)
        ),
        facts=answer.facts,
        peak_rss_bytes=peak,
    )


def _by_onnxruntime(
    sources: Sequence[Source], folder: Path, soc: Soc, fp16: bool, shared: bool, doing: str, deadline_s: float
) -> tuple[CompileAnswer, int | None]:
    """With the peak memory of its process, in bytes."""
    backend, environment = (None, {}) if shared or len(sources) == 1 else put_backend(folder)
    request = CompileRequest(
        models=tuple(f"model/{source.model.name}" for source in sources),
        shared=shared,
        backend=backend,
        soc_number=soc.soc_number,
        vtcm_mb=soc.vtcm_mb,
        optimization_level=OPTIMIZATION_LEVEL,
        fp16=fp16,
    )
    try:
        reply = call_worker(
            WorkerRequest(compile=request), folder, doing=doing, deadline_s=deadline_s, environment=environment
        )
    except CompileError as exc:
        raise _refusal(sources, soc, doing=doing) or exc from exc
    if reply.compiled is None:
        raise CompileError(f"{doing} failed", found="an answer to another question")
    return reply.compiled, reply.peak_rss_bytes


def _refusal(sources: Sequence[Source], soc: Soc, *, doing: str) -> CompileError | None:
    """The operators that the HTP refuses, by name; None: it takes all, or nothing can be said."""
    for source in sources:
        try:
            refused = inspect_operators(source.model, soc).refused
        except SnapGateError:
            return None
        if refused:
            shown = [f"{node.op} ({node.name}): {node.reason}" for node in refused[:NAMED_AT_MOST]]
            more = len(refused) - len(shown)
            return CompileError(
                f"{doing} failed: the HTP refuses {len(refused)} operators of {source.model.name}",
                found="; ".join(shown) + (f"; and {more} more" if more else ""),
                expected="operators that it takes: see `snapgate operators`",
                next_step="; ".join(dict.fromkeys(f"{node.op}: {node.way_out}" for node in refused[:NAMED_AT_MOST])),
            )
    return None


def _check(answer: CompileAnswer, sources: Sequence[Source], *, soc: Soc, doing: str) -> list[str]:
    """The graphs' names in the binary, once everything is as promised."""
    facts = answer.facts
    whole = all(wrapped.nodes == ("EPContext",) for wrapped in answer.wrapped)
    if not whole or len(facts.graphs) != len(sources) or len(answer.wrapped) != len(sources):
        nodes = "; ".join(", ".join(wrapped.nodes) for wrapped in answer.wrapped)
        raise CompileError(
            f"{doing}: the graph was split",
            found=f"nodes {nodes}; {len(facts.graphs)} graphs in the binary",
            expected="one EPContext node and one graph for each, nothing on the CPU",
            next_step="find the operator that the HTP refuses and rewrite it",
        )
    if (facts.soc_number, facts.htp_arch) != (soc.soc_number, soc.htp_arch):
        raise CompileError(
            f"{doing}: the binary is for another SoC",
            found=f"soc number {facts.soc_number}, HTP v{facts.htp_arch}",
            expected=f"soc number {soc.soc_number}, HTP v{soc.htp_arch}",
        )
    by_name = {graph.name: graph for graph in facts.graphs}
    for source, wrapped in zip(sources, answer.wrapped, strict=True):
        graph = by_name.pop(wrapped.graph, None)
        if graph is None:
            raise CompileError(
                f"{doing}: {source.model.name} is not in the binary",
                found=", ".join(each.name for each in facts.graphs),
                expected=wrapped.graph,
            )
        _check_edges(source, graph, doing=doing)
    return [wrapped.graph for wrapped in answer.wrapped]


def _check_edges(source: Source, graph: BinaryGraph, *, doing: str) -> None:
    for side, wanted, got in (("input", source.inputs, graph.inputs), ("output", source.outputs, graph.outputs)):
        found = {tensor.name: tensor for tensor in got}
        for spec in wanted:
            if found.pop(spec.name, None) != spec:
                raise CompileError(
                    f"{doing}: {side} {spec.name} came out differently",
                    found=str(next((tensor for tensor in got if tensor.name == spec.name), "no such tensor")),
                    expected=str(spec),
                )
        if found:
            raise CompileError(f"{doing}: an {side} nobody asked for", found=", ".join(found))
