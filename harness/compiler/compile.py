"""One ONNX graph to one context binary for one SoC, in a process of its own, with every promise checked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.compiler.call import DEFAULT_DEADLINE_S, call_worker
from harness.compiler.messages import BinaryFacts, CompileAnswer, CompileRequest, WorkerRequest
from harness.errors import CompileError
from harness.record.artifact import ContextFile, GraphSpec, TensorSpec, sha256_of
from harness.soc import Soc

OPTIMIZATION_LEVEL: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    context: ContextFile
    facts: BinaryFacts
    peak_rss_bytes: int | None
    """Of the compiler's process."""


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
    """Compile ``model`` to ``binary``. The graph's own inputs and outputs must come out as given, to the last scale.

    Raises CompileError where the graph was split, a node stayed on the CPU, or the binary is for another SoC or arch.
    """
    doing = f"compiling {model.name} for {soc.part}"
    with tempfile.TemporaryDirectory(prefix="snapgate-compile-", dir=binary.parent) as scratch:
        folder = Path(scratch)
        # The library hashes the model's path into the graph's name: a path that is always the same keeps bytes equal.
        (folder / "model").symlink_to(model.parent.resolve(), target_is_directory=True)
        request = CompileRequest(
            model=f"model/{model.name}",
            output="context.onnx",
            soc_number=soc.soc_number,
            vtcm_mb=soc.vtcm_mb,
            optimization_level=OPTIMIZATION_LEVEL,
            fp16=fp16,
        )
        reply = call_worker(WorkerRequest(compile=request), folder, doing=doing, deadline_s=deadline_s)
        answer = reply.compiled
        if answer is None:
            raise CompileError(f"{doing} failed", found="an answer to another question")
        graph_name = _check(answer, soc=soc, inputs=inputs, outputs=outputs, doing=doing)
        (folder / answer.binary).replace(binary)
    return Compiled(
        context=ContextFile(
            file=binary.name,
            sha256=sha256_of(binary),
            n_bytes=binary.stat().st_size,
            graphs=(
                GraphSpec(
                    name=graph_name,
                    n_tokens=n_tokens,
                    inputs=inputs,
                    outputs=outputs,
                    epcontext_nodes=answer.nodes.count("EPContext"),
                    cpu_nodes=sum(node != "EPContext" for node in answer.nodes),
                ),
            ),
        ),
        facts=answer.facts,
        peak_rss_bytes=reply.peak_rss_bytes,
    )


def _check(
    answer: CompileAnswer,
    *,
    soc: Soc,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    doing: str,
) -> str:
    """The graph's name in the binary, once everything is as promised."""
    facts = answer.facts
    if answer.nodes != ("EPContext",) or len(facts.graphs) != 1:
        raise CompileError(
            f"{doing}: the graph was split",
            found=f"nodes {', '.join(answer.nodes)}; {len(facts.graphs)} graphs in the binary",
            expected="one EPContext node, one graph, nothing on the CPU",
            next_step="find the operator that the HTP refuses and rewrite it",
        )
    if (facts.soc_number, facts.htp_arch) != (soc.soc_number, soc.htp_arch):
        raise CompileError(
            f"{doing}: the binary is for another SoC",
            found=f"soc number {facts.soc_number}, HTP v{facts.htp_arch}",
            expected=f"soc number {soc.soc_number}, HTP v{soc.htp_arch}",
        )
    graph = facts.graphs[0]
    for side, wanted, got in (("input", inputs, graph.inputs), ("output", outputs, graph.outputs)):
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
    return graph.name
