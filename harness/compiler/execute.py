"""Runs context binaries through onnxruntime-qnn on the host's HTP emulator: what the native runner must equal."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.compiler.call import call_worker
from harness.compiler.messages import BinaryGraph, ExecuteRequest, WorkerRequest
from harness.errors import CompileError
from harness.model.decoder import Decoder
from harness.model.embeddings import table_of, with_embeddings
from harness.model.form import Contexts
from harness.model.reference import CpuGraph
from harness.model.shards import as_one
from harness.record.artifact import Artifact, GraphSpec

_BINARY, _FEEDS, _OUTPUTS = "context.bin", "feeds.npz", "outputs.npz"
DEADLINE_S: Final = 600.0

Array = NDArray[Any]


def run_context(
    binary: Path, graph: GraphSpec, feeds: Sequence[Mapping[str, Array]], *, deadline_s: float = DEADLINE_S
) -> list[dict[str, Array]]:
    """All outputs of ``graph`` for each feed, in the graph's own element types; in a process of its own.

    Every feed holds every input of the graph.
    """
    with tempfile.TemporaryDirectory(prefix="snapgate-execute-") as scratch:
        folder = Path(scratch)
        (folder / _BINARY).symlink_to(binary.resolve())
        entries = {f"{index}/{name}": value for index, feed in enumerate(feeds) for name, value in feed.items()}
        np.savez(folder / _FEEDS, **entries)  # type: ignore[arg-type]
        request = ExecuteRequest(
            binary=_BINARY,
            graph=BinaryGraph(name=graph.name, inputs=graph.inputs, outputs=graph.outputs),
            feeds=_FEEDS,
            outputs=_OUTPUTS,
            n_feeds=len(feeds),
        )
        doing = f"executing {graph.name} of {binary.name} on the HTP emulator"
        if not call_worker(WorkerRequest(execute=request), folder, doing=doing, deadline_s=deadline_s).executed:
            raise CompileError(f"{doing} failed", found="an answer to another question")
        with np.load(folder / _OUTPUTS, allow_pickle=False) as outputs:
            return [
                {tensor.name: outputs[f"{index}/{tensor.name}"] for tensor in graph.outputs}
                for index in range(len(feeds))
            ]


class EmulatedGraph:
    """One graph of an artifact on the emulator: a runner for ``Decoder``. Each run is a process (about a second)."""

    def __init__(self, binary: Path, spec: GraphSpec) -> None:
        self._binary = binary
        self._spec = spec

    @property
    def spec(self) -> GraphSpec:
        return self._spec

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        return run_context(self._binary, self._spec, [feed])[0]


def emulated_decoder(artifact: Artifact) -> Decoder:
    """The artifact's context binaries, stepped exactly as the native runner steps them."""
    manifest = artifact.manifest
    if manifest.recipe.contexts == Contexts.SHARED:
        raise CompileError(
            f"{manifest.name} does not load on the HTP emulator",
            found="a binary whose graphs share their weights",
            expected="weights of each graph's own: Qualcomm's x86 libraries refuse shared ones",
            next_step="prepare it with --contexts separate or one as well, and run that",
        )
    sizes = sorted({1, manifest.recipe.prefill_tokens, *manifest.recipe.other_prefill_tokens}, reverse=True)
    table = table_of(artifact)
    chains = [
        [
            (CpuGraph if context.on_cpu else EmulatedGraph)(artifact.path(context.file), graph)
            for context, graph in manifest.chain(n)
        ]
        for n in sizes
    ]
    return Decoder(
        [with_embeddings(as_one(chain), table) for chain in chains],
        manifest.model,
        context_length=manifest.recipe.context_length,
        mask_value=manifest.recipe.mask_value,
    )
