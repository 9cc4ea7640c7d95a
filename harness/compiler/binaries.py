"""The last stages of a preparation: quantised graphs to context binaries, and what is asked of them on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from harness.compiler.compile import OPTIMIZATION_LEVEL, Compiled, Source, compile_graphs
from harness.compiler.figures import graph_spec
from harness.compiler.probe import MIN_CORRELATION, Step, defects_to_look_for, least_correlation, seen_defects
from harness.compiler.qairt import Sdk, sdk_tools
from harness.compiler.recipe import Plan
from harness.compiler.stages import Meter, Stage, Stages
from harness.errors import CompileError
from harness.model.form import Contexts
from harness.model.recipes import mask_value
from harness.model.reference import reference_file
from harness.record.artifact import ContextFile, ModelFacts
from harness.record.codec import read_json, write_json
from harness.record.comparison import Leg
from harness.soc import Precision

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Binaries = tuple[tuple[Stage, Compiled], ...]
COMPILE_SECONDS_PER_BILLION: Final = 3600.0
"""Deadline of a compile, a billion parameters, beside half an hour for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defects:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    least: float
    """Correlation of an output on the emulator with the CPU's, of the worst output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryStages:
    plan: Plan
    facts: ModelFacts
    stages: Stages
    meter: Meter
    progress: Callable[[str], None]
    embeddings: NDArray[np.float32] | None
    graphs: Stage
    paths: Mapping[int, Sequence[Path]]
    """By tokens a step, the largest first: the graph to compile, or its shards."""
    sdk: Sdk | None = None
    """Whose tools compile; None: onnxruntime-qnn does."""
    pieces: Stage | None = None
    """Where ``paths`` are pieces of cut graphs: their stage."""
    on_cpu: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Names of those of them that run on the CPU, and why."""

    def binaries(self) -> Binaries:
        """In the order of the manifest's contexts."""
        if self.plan.contexts == Contexts.SEPARATE:
            return self._separate()
        if self.plan.contexts == Contexts.SHARED:
            self._check_apart()
        return tuple(
            self._binary({n: paths[shard - 1] for n, paths in self.paths.items()}, "model", shard)
            for shard in range(1, self._n_shards + 1)
        )

    @property
    def _n_shards(self) -> int:
        return len(self.paths[1])

    def _separate(self) -> Binaries:
        return tuple(
            self._cpu_piece(self.pieces, path, n, shard)
            if self.pieces is not None and path.name in self.on_cpu
            else self._binary({n: path}, f"ar{n}", shard)
            for n, paths in self.paths.items()
            for shard, path in enumerate(paths, start=1)
        )

    def _cpu_piece(self, pieces: Stage, path: Path, n_tokens: int, shard: int) -> tuple[Stage, Compiled]:
        from harness.model.storage import load_graph

        spec = graph_spec(path, n_tokens)
        graph = replace(spec, epcontext_nodes=0, cpu_nodes=len(load_graph(path).graph.node))
        context = ContextFile(
            file=reference_file(Leg.GRAPH, n_tokens, shard),
            sha256=pieces.files_sha256[path.name],
            n_bytes=path.stat().st_size,
            graphs=(graph,),
            on_cpu=self.on_cpu[path.name],
        )
        return pieces, Compiled(context=context, facts=None, peak_rss_bytes=None)

    def _check_apart(self) -> None:
        """What shared weights compute cannot be seen here: the same graphs, compiled apart, are run instead."""
        binaries = self._separate()
        self.progress("running the graphs, compiled apart, on the emulator beside the CPU")
        decided_by = {"graphs": self.graphs.key, "binaries": [stage.key for stage, _ in binaries]}

        def run() -> _Agreement:
            least = 1.0
            for n_tokens in self.paths:
                steps = self._steps(binaries, n_tokens)
                least = min(least, least_correlation(steps, self.facts, **self._probe_settings))
            return _Agreement(least=least)

        least = self.stages.value("shared check", decided_by, _Agreement, run).least
        self.progress(f"the emulator's outputs correlate with the CPU's to {least:.4f} at the least")
        if least < MIN_CORRELATION and not defects_to_look_for(self.plan.soc):
            raise CompileError(
                "the graphs do not compute on the HTP what they compute on the CPU",
                found=f"an output with a correlation of {least:.2f}",
                expected=f"at least {MIN_CORRELATION}",
                next_step="prepare with --contexts separate, and compare the emulator with the reference",
            )

    def _steps(self, binaries: Binaries, n_tokens: int) -> list[Step]:
        """The AR-N graph, or its shards."""
        compiled = [
            (spec, stage.path / each.context.file)
            for stage, each in binaries
            for spec in each.context.graphs
            if spec.n_tokens == n_tokens
        ]
        return [(path, spec, binary) for path, (spec, binary) in zip(self.paths[n_tokens], compiled, strict=True)]

    @property
    def _probe_settings(self) -> dict[str, Any]:
        return {
            "context_length": self.plan.context_length,
            "mask_value": mask_value(self.plan.precision),
            "embeddings": self.embeddings,
        }

    def defects(self, binaries: Binaries) -> tuple[str, ...]:
        """Known defects of the arch that the decode graph shows on the emulator."""
        plan = self.plan
        if not defects_to_look_for(plan.soc):
            return ()
        if plan.contexts == Contexts.SHARED:
            binaries = self._separate()

        def probe() -> _Defects:
            self.progress(f"probing the decode graph for known defects of HTP v{plan.soc.htp_arch}")
            steps = self._steps(binaries, 1)
            return _Defects(names=seen_defects(steps, self.facts, plan.soc, **self._probe_settings))

        decided_by = {"graphs": self.graphs.key, "binaries": [stage.key for stage, _ in binaries]}
        found = self.stages.value("probe", decided_by, _Defects, probe).names
        for name in found:
            self.progress(f"note: {name}: emulated results of this artifact will be INVALID")
        return found

    def _binary(self, paths: Mapping[int, Path], called: str, shard: int) -> tuple[Stage, Compiled]:
        """One binary of the AR-N graphs of ``paths``, each of one shard."""
        plan, soc = self.plan, self.plan.soc
        n_shards = max(len(self.paths[n]) for n in paths)
        called_piece = "shard" if self.pieces is None else "piece"
        name = called + ("" if n_shards == 1 else f"_{called_piece}{shard}")
        of_shard = "" if n_shards == 1 else f", {called_piece} {shard} of {n_shards},"
        fp16 = plan.precision in (Precision.FP16, Precision.W8A16_FP16ATTN)
        together = " and ".join(f"AR-{n_tokens}" for n_tokens in paths)

        def make(folder: Path) -> None:
            self.progress(f"compiling {together}{of_shard} for {soc.part} (HTP v{soc.htp_arch})")
            billions = self.facts.n_parameters / 1e9 / n_shards
            sources = []
            for n_tokens, path in paths.items():
                spec = graph_spec(path, n_tokens)
                sources.append(Source(model=path, n_tokens=n_tokens, inputs=spec.inputs, outputs=spec.outputs))
            compiled = compile_graphs(
                sources,
                soc=soc,
                fp16=fp16,
                binary=folder / f"{name}.bin",
                contexts=Contexts(plan.contexts) if len(paths) > 1 else Contexts.SEPARATE,
                sdk=self.sdk,
                deadline_s=len(paths) * (1800.0 + COMPILE_SECONDS_PER_BILLION * billions),
            )
            self.meter.saw_child(compiled.peak_rss_bytes)
            write_json(folder / "compiled.json", compiled)

        decided_by: dict[str, Any] = {
            "graphs": (self.pieces or self.graphs).key,
            "graph": [path.name for path in paths.values()],
            "contexts": plan.contexts if len(paths) > 1 else None,
            "soc": soc.soc_number,
            "vtcm": soc.vtcm_mb,
            "level": OPTIMIZATION_LEVEL,
            "fp16": fp16,
            **sdk_tools(self.sdk),
        }
        stage = self.stages.folder(f"compile {name}", decided_by, make)
        return stage, read_json(stage.path / "compiled.json", Compiled)
