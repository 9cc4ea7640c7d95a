"""The stages of a preparation, each from what the ones before left: graphs, calibration, quantised graphs, binaries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.compiler.binaries import BinaryStages
from harness.compiler.compile import Compiled
from harness.compiler.exports import ENCODINGS_NAME
from harness.compiler.figures import graph_spec, measured_accuracy
from harness.compiler.pieces import cut_refused
from harness.compiler.qairt import Sdk
from harness.compiler.recipe import Plan, choose_kv, overrides_sha256, shard_cuts
from harness.compiler.stages import Meter, Stage, Stages, plain
from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.embeddings import with_embeddings
from harness.model.encodings_file import read_encodings, write_encodings
from harness.model.form import Embeddings, GraphForm, Logits, Refused
from harness.model.interface import INPUT_EMBEDS
from harness.model.perplexity import Corpus, measure_perplexity
from harness.model.recipes import SCHEMES, mask_value
from harness.model.reference import ENGINE, CpuGraph
from harness.model.shards import as_one, split_graph
from harness.record.artifact import AccuracyFigures, PerplexityFigure
from harness.record.comparison import Leg
from harness.soc import KvPrecision, Precision, check_precision

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    from harness.model.calibrate import CalibrationText, Range
    from harness.model.graph import FloatType
    from harness.model.weights import FixedWeight

Progress = Callable[[str], None]

MAX_GRAPH_RUNS: Final = 2000
"""Bounds the time of one perplexity figure: with a prefill of a few tokens, fewer windows are measured."""
MAX_WORK: Final = 1e12
"""Tokens times parameters of one perplexity figure: of a model of 0.5 B, 8 windows."""
MIN_WINDOWS: Final = 8
LAST_ROW: Final = "_last"
"""Behind the name of a graph that puts out the logits of its last token only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranges:
    """Lowest and highest value by tensor."""

    ranges: dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accuracy:
    figures: AccuracyFigures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Everything an artifact is put together from."""

    fp32: Stage | None
    graphs: Stage | None
    """``<kv>_ar<N>[_shard<i>].onnx`` and ``graph.data``. None, as ``fp32``: no graphs were kept."""
    encodings: Stage | None
    """Where ``ENCODINGS_NAME`` lies; None: nothing is quantised."""
    compiled: Mapping[int, tuple[Stage, tuple[str, ...]]] = field(default_factory=dict)
    """Tokens a step to the graphs that were compiled, or the pieces they were cut into, and where they lie."""
    kv: KvPrecision
    text: CalibrationText | None
    quality: tuple[PerplexityFigure, ...]
    accuracy: AccuracyFigures | None
    binaries: tuple[tuple[Stage, Compiled], ...]
    """In the order of the manifest's contexts."""
    defects: tuple[str, ...]
    """Known defects of the arch that the decode graph shows on the emulator."""


@dataclass(frozen=True, kw_only=True)
class Builder:
    checkpoint: Checkpoint
    plan: Plan
    corpus: Corpus | None
    calibration: Path | None
    tools: Mapping[str, str]
    stages: Stages
    meter: Meter
    progress: Progress
    sdk: Sdk | None = None

    def run(self) -> Built:
        from harness.model.graph import FloatType

        fp32 = self._float_graphs(FloatType.FLOAT32)
        quality = self._perplexity(fp32, self._float_paths(fp32), Leg.FP32)
        text: CalibrationText | None = None
        if self.plan.precision is Precision.FP16:
            kv, reason = choose_kv(self.plan, quality)
            graphs = self._float_graphs(FloatType.FLOAT16)
            quality += self._perplexity(graphs, self.graph_paths(graphs, kv), kv)
        else:
            text = self._calibration_text(fp32)
            graphs = self._quantised(fp32, text)
            for candidate in self.plan.kv_candidates:
                quality += self._perplexity(graphs, self.graph_paths(graphs, candidate), candidate)
            kv, reason = choose_kv(self.plan, quality)
        self.progress(f"KV cache: {kv}: {reason}")
        accuracy = self._accuracy(fp32, graphs, kv)
        pieces, paths, on_cpu = graphs, self.graph_paths(graphs, kv, compiled=True), {}
        if self.plan.refused == Refused.CPU:
            pieces, cut = cut_refused(graphs, paths, self.plan.soc, self.stages, self.progress)
            paths = {n: [pieces.path / piece.file for piece in cut.by_size[str(n)]] for n in paths}
            on_cpu = {piece.file: piece.refused for n in paths for piece in cut.by_size[str(n)] if piece.refused}
        compiler = BinaryStages(
            plan=self.plan,
            facts=self.checkpoint.facts,
            stages=self.stages,
            meter=self.meter,
            progress=self.progress,
            embeddings=self.embeddings,
            graphs=graphs,
            paths=paths,
            sdk=self.sdk,
            pieces=None if pieces is graphs else pieces,
            on_cpu=on_cpu,
        )
        binaries = compiler.binaries()
        return Built(
            fp32=fp32,
            graphs=graphs,
            encodings=graphs if ENCODINGS_NAME in graphs.files_sha256 else None,
            compiled={n: (pieces, tuple(path.name for path in paths[n])) for n in paths},
            kv=kv,
            text=text,
            quality=quality,
            accuracy=accuracy,
            binaries=binaries,
            defects=compiler.defects(binaries),
        )

    @property
    def n_shards(self) -> int:
        return len(self._cuts) + 1

    @property
    def _cuts(self) -> tuple[int, ...]:
        return shard_cuts(self.plan, self.checkpoint.facts)

    def graph_name(self, kv: KvPrecision, n_tokens: int, shard: int) -> str:
        """Of the compiled graph, without its suffix; shards are counted from 1."""
        return f"{kv}_ar{n_tokens}" + ("" if self.n_shards == 1 else f"_shard{shard}")

    def graph_paths(self, graphs: Stage, kv: KvPrecision, *, compiled: bool = False) -> dict[int, list[Path]]:
        """The graphs with logits of every token, or those that are ``compiled``."""
        return {
            n: [
                graphs.path / f"{self.graph_name(kv, n, shard)}{self._variants(n)[-1][0] if compiled else ''}.onnx"
                for shard in range(1, self.n_shards + 1)
            ]
            for n in self.plan.graph_sizes
        }

    def _variants(self, n_tokens: int) -> tuple[tuple[str, GraphForm], ...]:
        """Ends of the names of an AR-N graph and its forms; the last is compiled, the first has all logits."""
        form = self.plan.form
        whole = ("", replace(form, logits=Logits.ALL))
        return (whole, (LAST_ROW, form)) if form.logits is Logits.LAST and n_tokens > 1 else (whole,)

    @cached_property
    def embeddings(self) -> NDArray[np.float32] | None:
        """(vocabulary, hidden), where the host looks them up."""
        if self.plan.form.embeddings is Embeddings.GRAPH:
            return None
        return self.checkpoint.weight(Role.EMBEDDING)

    def _float_paths(self, fp32: Stage) -> dict[int, list[Path]]:
        return {n: [fp32.path / f"{Leg.FP32}_ar{n}.onnx"] for n in self.plan.graph_sizes}

    def _base(self) -> dict[str, Any]:
        """What decides the float graphs."""
        return {
            "checkpoint": dict(self.checkpoint.sha256),
            "model": plain(self.checkpoint.facts),
            "tools": dict(self.tools),
            "context": self.plan.context_length,
            "sizes": list(self.plan.graph_sizes),
            **asdict(self.plan.form),
        }

    def _float_graphs(self, float_type: FloatType) -> Stage:
        """fp32 whole, for the reference; fp16 in the shards that are compiled."""
        from harness.model.graph import FloatType, build_graph
        from harness.model.storage import TensorStore, save_graph

        half = float_type is FloatType.FLOAT16

        def make(folder: Path) -> None:
            with TensorStore(folder / f"{Leg.GRAPH if half else Leg.FP32}.data") as store:
                for n_tokens in self.plan.graph_sizes:
                    for end, form in self._variants(n_tokens):
                        model = build_graph(
                            self.checkpoint,
                            n_tokens=n_tokens,
                            context_length=self.plan.context_length,
                            float_type=float_type,
                            form=form,
                            store=store,
                            progress=lambda line: self.progress(f"building the {float_type} graphs: {line}"),
                        )
                        if not half:
                            save_graph(folder / f"{Leg.FP32}_ar{n_tokens}{end}.onnx", model)
                            continue
                        for shard, part in enumerate(split_graph(model, self._cuts), start=1):
                            name = self.graph_name(KvPrecision.KVFP16, n_tokens, shard)
                            save_graph(folder / f"{name}{end}.onnx", part)

        decided_by = self._base() | {"float_type": str(float_type), "cuts": list(self._cuts) if half else []}
        return self.stages.folder(f"{float_type} graphs", decided_by, make)

    def _decoder(self, paths: Mapping[int, Sequence[Path]]) -> Decoder:
        """The graphs of a leg on the CPU."""
        runners = [
            with_embeddings(as_one([CpuGraph(path, graph_spec(path, n)) for path in paths[n]]), self.embeddings)
            for n in paths
        ]
        return Decoder(
            runners,
            self.checkpoint.facts,
            context_length=self.plan.context_length,
            mask_value=mask_value(self.plan.precision),
        )

    def _perplexity(
        self, graphs: Stage, paths: Mapping[int, Sequence[Path]], graph: str
    ) -> tuple[PerplexityFigure, ...]:
        """A tuple of one, or nothing where there is no held-out text."""
        corpus = self.corpus
        if corpus is None:
            return ()
        chunk, per_window = self.plan.prefill_tokens, len(corpus.windows[0])
        affordable = MAX_WORK / per_window / self.checkpoint.facts.n_parameters
        limit = max(MIN_WINDOWS, int(min(affordable, MAX_GRAPH_RUNS // math.ceil(per_window / chunk))))
        n_windows = min(len(corpus.windows), limit)
        heavy = affordable < len(corpus.windows)

        def compute() -> PerplexityFigure:
            self.progress(f"perplexity of {graph} over {n_windows} windows")
            return measure_perplexity(
                self._decoder(paths),
                corpus,
                engine=ENGINE,
                graph=graph,
                windows=range(n_windows),
                progress=self.progress,
                progress_every=1 if heavy else 26,
            )

        decided_by = {
            "graphs": graphs.key,
            "graph": graph,
            "corpus": corpus.sha256,
            "windows": n_windows,
            "mask": mask_value(self.plan.precision),
        }
        figure = self.stages.value(f"perplexity {graph}", decided_by, PerplexityFigure, compute)
        self.progress(f"perplexity of {graph}: {figure.perplexity:.4f} over {figure.n_windows} windows, {ENGINE}")
        return (figure,)

    def _calibration_text(self, fp32: Stage) -> CalibrationText:
        from harness.model.calibrate import CalibrationText, self_generated_text, text_from_file

        if self.calibration is not None:
            return text_from_file(
                self.calibration,
                self.checkpoint.tokenizer_path,
                self.checkpoint.facts,
                context_length=self.plan.context_length,
            )
        return self.stages.value(
            "calibration text",
            {"graphs": fp32.key, "mask": mask_value(self.plan.precision)},
            CalibrationText,
            lambda: self_generated_text(self._decoder(self._float_paths(fp32)), progress=self.progress),
        )

    def _ranges(self, fp32: Stage, text: CalibrationText) -> Mapping[str, Range]:
        from harness.model.calibrate import Range, collect_ranges
        from harness.model.storage import load_graph

        mask = mask_value(self.plan.precision)

        def compute() -> _Ranges:
            (path,) = self._float_paths(fp32)[self.plan.prefill_tokens]
            found = collect_ranges(
                load_graph(path),
                text,
                self.checkpoint.facts,
                context_length=self.plan.context_length,
                mask_value=mask,
                folder=fp32.path,
                embeddings=self.embeddings,
                progress=self.progress,
            )
            if self.embeddings is not None:  # tokens that the text does not reach must fit as well
                table = self.embeddings
                found[INPUT_EMBEDS] = Range(low=float(table.min()), high=float(table.max()))
            return _Ranges(ranges={name: (seen.low, seen.high) for name, seen in found.items()})

        decided_by = {"graphs": fp32.key, "text": plain(text), "mask": mask}
        kept = self.stages.value("calibration ranges", decided_by, _Ranges, compute).ranges
        return {name: Range(low=low, high=high) for name, (low, high) in kept.items()}

    def _quantised(self, fp32: Stage, text: CalibrationText) -> Stage:
        """The QDQ graphs of every KV precision in question, their weights in one file."""
        ranges = self._ranges(fp32, text)
        decided_by = {
            "graphs": fp32.key,
            "ranges": {name: [seen.low, seen.high] for name, seen in ranges.items()},
            "text": plain(text) if self.plan.weights == "gptq" else None,
            "precision": str(self.plan.precision),
            "weights": self.plan.weights,
            "overrides": overrides_sha256(self.plan),
            "kv": [str(kv) for kv in self.plan.kv_candidates],
            "cuts": list(self._cuts),
        }
        return self.stages.folder("quantised graphs", decided_by, partial(self._quantise, fp32, text, ranges))

    def _quantise(self, fp32: Stage, text: CalibrationText, ranges: Mapping[str, Range], folder: Path) -> None:
        from harness.model.overrides import Laid, encodings_of, lay_over
        from harness.model.quantize import encoding_table, quantize_graph
        from harness.model.quantized_io import with_cache
        from harness.model.storage import TensorStore, load_graph, save_graph

        facts, plan, scheme = self.checkpoint.facts, self.plan, SCHEMES[self.plan.precision]
        table = encoding_table(ranges, facts.n_layers, scheme)
        self.progress(f"quantising to {plan.precision}: {len(table)} activations calibrated on {text.n_tokens} tokens")
        prefill = load_graph(fp32.path / f"{Leg.FP32}_ar{plan.prefill_tokens}.onnx")
        laid = Laid(table=table, weights=self._four_bit_weights(fp32, prefill, text), floats=())
        if plan.overrides is not None:
            laid = lay_over(
                read_encodings(plan.overrides), prefill, table, laid.weights, facts.n_layers, folder=fp32.path
            )
            if laid.floats:  # tensors left in float are float operators on the HTP
                check_precision(Precision.W8A16_FP16ATTN, plan.soc)
        parts: list[onnx.ModelProto] = []
        with TensorStore(folder / f"{Leg.GRAPH}.data") as store:
            for n_tokens, end in [(n, end) for n in plan.graph_sizes for end, _ in self._variants(n)]:
                whole = load_graph(fp32.path / f"{Leg.FP32}_ar{n_tokens}{end}.onnx")
                for shard, part in enumerate(split_graph(whole, self._cuts), start=1):
                    model = quantize_graph(
                        part,
                        laid.table,
                        scheme,
                        laid.weights,
                        laid.floats,
                        folder=fp32.path,
                        store=store,
                        progress=lambda line: self.progress(f"quantising: {line}"),
                    )
                    if (n_tokens, end) == (plan.prefill_tokens, ""):
                        parts.append(model)
                    for kv in plan.kv_candidates:
                        candidate = model if scheme.activation_bits == 8 else with_cache(model, kv, facts.n_layers)
                        save_graph(folder / f"{self.graph_name(kv, n_tokens, shard)}{end}.onnx", candidate)
        write_encodings(folder / ENCODINGS_NAME, encodings_of(prefill, laid.table, laid.floats, parts, folder))
        self._check_edges(folder)

    def _check_edges(self, folder: Path) -> None:
        from harness.model.quantized_io import check_quantized_io

        for kv in self.plan.kv_candidates:
            for compiled in (False, True):
                for n_tokens, paths in self.graph_paths(
                    Stage(path=folder, files_sha256={}), kv, compiled=compiled
                ).items():
                    for spec in (graph_spec(path, n_tokens) for path in paths):
                        check_quantized_io(spec.inputs, spec.outputs, self.checkpoint.facts.n_layers)

    def _four_bit_weights(
        self, fp32: Stage, model: onnx.ModelProto, text: CalibrationText
    ) -> Mapping[str, FixedWeight]:
        from harness.model.gptq import gptq_weights
        from harness.model.held import keep_grids
        from harness.model.quantize import four_bit_names, four_bit_weights

        plan, scheme = self.plan, SCHEMES[self.plan.precision]
        if plan.weights == "rtn":
            rounded = four_bit_weights(model, scheme, fp32.path)
        else:
            rounded = gptq_weights(
                model,
                four_bit_names(model),
                text,
                self.checkpoint.facts,
                block=scheme.block,
                context_length=plan.context_length,
                mask_value=scheme.mask_value,
                folder=fp32.path,
                embeddings=self.embeddings,
                progress=self.progress,
            )
        return keep_grids(self.checkpoint, rounded, block=scheme.block, progress=self.progress)

    def _accuracy(self, fp32: Stage, graphs: Stage, kv: KvPrecision) -> AccuracyFigures | None:
        corpus = self.corpus
        if corpus is None:
            return None
        n_tokens = self.plan.prefill_tokens
        legs = (self._float_paths(fp32)[n_tokens], self.graph_paths(graphs, kv)[n_tokens])
        decided_by = {
            "fp32": fp32.key,
            "graphs": graphs.key,
            "kv": str(kv),
            "corpus": corpus.sha256,
            "mask": mask_value(self.plan.precision),
        }
        return self.stages.value(
            "accuracy",
            decided_by,
            _Accuracy,
            lambda: _Accuracy(figures=self._measured_accuracy(legs, corpus)),
        ).figures

    def _measured_accuracy(self, legs: tuple[Sequence[Path], Sequence[Path]], corpus: Corpus) -> AccuracyFigures | None:
        facts = self.checkpoint.facts
        return measured_accuracy(legs, self.plan, facts, corpus, self.progress, embeddings=self.embeddings)
