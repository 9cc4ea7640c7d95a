"""Checkpoint to artifact: the whole preparation for one SoC."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness import __version__
from harness.compiler.compile import OPTIMIZATION_LEVEL, Compiled, compile_graph
from harness.compiler.exports import ENCODINGS_NAME
from harness.compiler.figures import measured_accuracy
from harness.compiler.libraries import library_folder
from harness.compiler.recipe import KV_CHOICES, Plan, check_plan, choose_kv, overrides_sha256, recorded_weights
from harness.compiler.reuse import find_reusable
from harness.compiler.staging import publish, staging_folder
from harness.errors import HostError, UserError
from harness.model.checkpoint import TOKENIZER, Checkpoint, load_checkpoint
from harness.model.decoder import Decoder
from harness.model.encodings_file import read_encodings, write_encodings
from harness.model.perplexity import Corpus, load_corpus, measure_perplexity, read_text
from harness.model.recipes import SCHEMES, mask_value
from harness.model.reference import ENGINE, CpuGraph, reference_file
from harness.model.rope import rope_file_bytes
from harness.record.artifact import (
    ARTIFACT_SCHEMA,
    MANIFEST_NAME,
    Artifact,
    ArtifactManifest,
    GraphSpec,
    PerplexityFigure,
    Recipe,
    Target,
    load_artifact,
    sha256_of,
)
from harness.record.codec import write_json
from harness.record.comparison import Leg
from harness.soc import KvPrecision, Precision, Soc, check_precision

if TYPE_CHECKING:
    import onnx

    from harness.model.calibrate import CalibrationText
    from harness.model.overrides import Laid
    from harness.model.weights import FixedWeight

Progress = Callable[[str], None]

HELDOUT_NAME: Final = "heldout.txt"
MAX_GRAPH_RUNS: Final = 2000
"""Bounds the time of one perplexity figure: with a prefill of a few tokens, fewer windows are measured."""
MIN_WINDOWS: Final = 8
_TOOLS: Final = ("onnxruntime", "onnxruntime-qnn", "onnx", "numpy", "tokenizers")


def prepare(
    checkpoint: Path,
    *,
    soc: Soc,
    precision: Precision,
    kv: KvPrecision | None = None,
    context: int = 512,
    prefill: int = 64,
    rmsnorm: str = "operator",
    weights: str = "rtn",
    overrides: Path | None = None,
    out: Path,
    calibration: Path | None = None,
    heldout: Path | None = None,
    progress: Progress = lambda _: None,
) -> Artifact:
    """Build the artifact ``out / manifest.name``, or take the one that is there if it came from the same inputs.

    ``calibration``: plain text for quantised precisions; without it the float model writes its own. ``heldout``: text
    for perplexity, never calibrated on; default ``heldout.txt`` beside the checkpoint, and without one no perplexity
    is measured.
    ``kv`` None: for 16-bit activations, kv8 where it costs at most 0.1 % of perplexity against kv16, else kv16.
    Nothing is left behind on failure.
    """
    library_folder()
    _require_onnx()
    source = load_checkpoint(checkpoint, progress=progress)
    for note in source.notes:
        progress(f"note: {note}")
    plan = Plan(
        soc=soc,
        precision=precision,
        kv=kv,
        context_length=context,
        prefill_tokens=prefill,
        rmsnorm=rmsnorm,
        weights=weights,
        overrides=overrides,
    )
    check_plan(plan, source.facts)
    corpus = _corpus(source, heldout, context)
    if calibration is not None:
        read_text(calibration)
    if overrides is not None:
        read_encodings(overrides)
    if corpus is not None and calibration is not None and sha256_of(calibration) == corpus.sha256:
        raise UserError(
            "the calibration text is the held-out text",
            found=str(calibration),
            expected="text that perplexity is not measured on",
            next_step="give another --calibration, or leave it out",
        )
    tools = _tools()
    with staging_folder(out, progress) as folder:
        reusable = find_reusable(out, source, plan, tools=tools, calibration=calibration, corpus=corpus)
        if reusable is not None:
            progress(f"{reusable.folder} was prepared from the same checkpoint, recipe and tools: taken as it is")
            return reusable
        (folder / "reference").mkdir()
        work = _Work(checkpoint=source, plan=plan, folder=folder, corpus=corpus, progress=progress)
        _build_float_graphs(work)
        quality, text, chosen = _build_compiled_graphs(work, calibration)
        accuracy = measured_accuracy(folder, plan, source.facts, corpus, _graph_spec, progress)
        compiled = _compile_all(work)
        (folder / "rope.bin").write_bytes(rope_file_bytes(source.facts, context))
        shutil.copyfile(source.tokenizer_path, folder / TOKENIZER)
        manifest = ArtifactManifest(
            schema=ARTIFACT_SCHEMA,
            model=source.facts,
            recipe=_recipe(plan, chosen, text),
            target=Target(
                part=soc.part,
                soc_number=soc.soc_number,
                htp_arch=soc.htp_arch,
                vtcm_mb=soc.vtcm_mb,
                optimization_level=OPTIMIZATION_LEVEL,
            ),
            contexts=tuple(result.context for result in compiled),
            tools={**tools, "qnn_build_id": compiled[0].facts.build_id},
            checkpoint_sha256=source.sha256,
            files_sha256=_hash_files(folder),
            quality=quality,
            accuracy=accuracy,
            notes=source.notes,
        )
        write_json(folder / MANIFEST_NAME, manifest)
        publish(folder, out / manifest.name)
    progress(f"artifact {out / manifest.name} is ready")
    return load_artifact(out / manifest.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    checkpoint: Checkpoint
    plan: Plan
    folder: Path
    corpus: Corpus | None
    progress: Progress

    def decoder(self, folder: Path, leg: Leg) -> Decoder:
        """The graphs of a leg, from ``folder / "reference"``, on the CPU."""
        runners = []
        for n_tokens in self.plan.graph_sizes:
            path = folder / reference_file(leg, n_tokens)
            runners.append(CpuGraph(path, _graph_spec(path, n_tokens)))
        return Decoder(
            runners,
            self.checkpoint.facts,
            context_length=self.plan.context_length,
            mask_value=mask_value(self.plan.precision),
        )

    def measure(self, decoder: Decoder, graph: str) -> tuple[PerplexityFigure, ...]:
        """The perplexity of one graph as a tuple of one, or nothing where there is no held-out text."""
        if self.corpus is None:
            return ()
        runs_per_window = math.ceil(len(self.corpus.windows[0]) / self.plan.prefill_tokens)
        n_windows = min(len(self.corpus.windows), max(MIN_WINDOWS, MAX_GRAPH_RUNS // runs_per_window))
        self.progress(f"perplexity of {graph} over {n_windows} windows")
        figure = measure_perplexity(
            decoder, self.corpus, engine=ENGINE, graph=graph, windows=range(n_windows), progress=self.progress
        )
        self.progress(f"perplexity of {graph}: {figure.perplexity:.4f} over {figure.n_windows} windows, {ENGINE}")
        return (figure,)


def _graph_spec(path: Path, n_tokens: int) -> GraphSpec:
    import onnx

    from harness.model.io_specs import io_specs

    inputs, outputs = io_specs(onnx.load(path, load_external_data=False))
    return GraphSpec(name=path.stem, n_tokens=n_tokens, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)


def _build_float_graphs(work: _Work) -> None:
    from harness.model.graph import FloatType, RmsNorm, build_graph
    from harness.model.storage import save_models

    plan = work.plan
    legs = [(Leg.FP32, FloatType.FLOAT32)]
    if plan.precision is Precision.FP16:
        legs.append((Leg.GRAPH, FloatType.FLOAT16))
    for leg, float_type in legs:
        work.progress(f"building the {float_type} graphs: {' and '.join(f'AR-{n}' for n in plan.graph_sizes)}")
        models = {
            reference_file(leg, n_tokens).removeprefix("reference/"): build_graph(
                work.checkpoint,
                n_tokens=n_tokens,
                context_length=plan.context_length,
                float_type=float_type,
                rmsnorm=RmsNorm(plan.rmsnorm),
            )
            for n_tokens in plan.graph_sizes
        }
        save_models(work.folder / "reference", models, f"{leg}.data")


def _build_compiled_graphs(
    work: _Work, calibration: Path | None
) -> tuple[tuple[PerplexityFigure, ...], CalibrationText | None, KvPrecision]:
    """Leave the graphs to compile in ``reference/graph_*``; their quality, what they were calibrated on, and the KV."""
    fp32 = work.decoder(work.folder, Leg.FP32)
    quality = work.measure(fp32, Leg.FP32)
    if work.plan.precision is Precision.FP16:
        kv, _ = choose_kv(work.plan, quality)
        return quality + work.measure(work.decoder(work.folder, Leg.GRAPH), kv), None, kv
    text = _calibration_text(work, calibration, fp32)
    candidates = _quantize(work, text)
    for candidate, folder in candidates.items():
        quality += work.measure(work.decoder(folder, Leg.GRAPH), candidate)
    chosen, reason = choose_kv(work.plan, quality)
    work.progress(f"KV cache: {chosen}: {reason}")
    for path in (candidates[chosen] / "reference").iterdir():
        path.rename(work.folder / "reference" / path.name)
    shutil.rmtree(work.folder / "candidates")
    return quality, text, chosen


def _calibration_text(work: _Work, calibration: Path | None, fp32: Decoder) -> CalibrationText:
    from harness.model.calibrate import self_generated_text, text_from_file

    if calibration is None:
        return self_generated_text(fp32, progress=work.progress)
    return text_from_file(
        calibration,
        work.checkpoint.tokenizer_path,
        work.checkpoint.facts,
        context_length=work.plan.context_length,
    )


def _quantize(work: _Work, text: CalibrationText) -> Mapping[KvPrecision, Path]:
    """One folder per KV precision, each with ``reference/graph_*``."""
    import onnx

    from harness.model.calibrate import collect_ranges
    from harness.model.overrides import Laid, encodings_of, lay_over
    from harness.model.quantize import encoding_table, quantize_graph
    from harness.model.quantized_io import check_quantized_io, to_kv8
    from harness.model.storage import save_models

    facts, plan = work.checkpoint.facts, work.plan
    floats = {n: onnx.load(work.folder / reference_file(Leg.FP32, n)) for n in plan.graph_sizes}
    ranges = collect_ranges(
        floats[plan.prefill_tokens],
        text,
        facts,
        context_length=plan.context_length,
        mask_value=mask_value(plan.precision),
        progress=work.progress,
    )
    scheme = SCHEMES[plan.precision]
    table = encoding_table(ranges, facts.n_layers, scheme)
    work.progress(f"quantising to {plan.precision}: {len(table)} activations calibrated on {text.n_tokens} tokens")
    prefill = floats[plan.prefill_tokens]
    laid = Laid(table=table, weights=_four_bit_weights(work, prefill, text), floats=())
    if plan.overrides is not None:
        laid = lay_over(read_encodings(plan.overrides), prefill, table, laid.weights, facts.n_layers)
        _require_float(plan, laid)
    quantized = {n: quantize_graph(model, laid.table, scheme, laid.weights, laid.floats) for n, model in floats.items()}
    encodings = encodings_of(prefill, laid.table, laid.floats, quantized[plan.prefill_tokens])
    write_encodings(work.folder / ENCODINGS_NAME, encodings)
    candidates = dict.fromkeys(KV_CHOICES[plan.precision], quantized)
    if scheme.activation_bits != 8:
        candidates[KvPrecision.KV8] = {n: to_kv8(model, facts.n_layers) for n, model in quantized.items()}
    folders = {}
    for kv, models in candidates.items():
        folders[kv] = work.folder / "candidates" / kv
        (folders[kv] / "reference").mkdir(parents=True)
        named = {reference_file(Leg.GRAPH, n).removeprefix("reference/"): model for n, model in models.items()}
        save_models(folders[kv] / "reference", named, f"{Leg.GRAPH}.data")
        for n_tokens in plan.graph_sizes:
            spec = _graph_spec(folders[kv] / reference_file(Leg.GRAPH, n_tokens), n_tokens)
            check_quantized_io(spec.inputs, spec.outputs, facts.n_layers)
    return folders


def _require_float(plan: Plan, laid: Laid) -> None:
    """Tensors left in float are float operators on the HTP."""
    if laid.floats:
        check_precision(Precision.W8A16_FP16ATTN, plan.soc)


def _four_bit_weights(work: _Work, model: onnx.ModelProto, text: CalibrationText) -> Mapping[str, FixedWeight]:
    from harness.model.gptq import gptq_weights
    from harness.model.held import keep_grids
    from harness.model.quantize import four_bit_names, four_bit_weights

    plan, scheme = work.plan, SCHEMES[work.plan.precision]
    if plan.weights == "rtn":
        rounded = four_bit_weights(model, scheme)
    else:
        rounded = gptq_weights(
            model,
            four_bit_names(model),
            text,
            work.checkpoint.facts,
            block=scheme.block,
            context_length=plan.context_length,
            mask_value=scheme.mask_value,
            progress=work.progress,
        )
    return keep_grids(work.checkpoint, rounded, block=scheme.block, progress=work.progress)


def _compile_all(work: _Work) -> list[Compiled]:
    results = []
    for n_tokens in work.plan.graph_sizes:
        work.progress(f"compiling AR-{n_tokens} for {work.plan.soc.part} (HTP v{work.plan.soc.htp_arch})")
        path = work.folder / reference_file(Leg.GRAPH, n_tokens)
        spec = _graph_spec(path, n_tokens)
        results.append(
            compile_graph(
                path,
                soc=work.plan.soc,
                fp16=work.plan.precision in (Precision.FP16, Precision.W8A16_FP16ATTN),
                n_tokens=n_tokens,
                inputs=spec.inputs,
                outputs=spec.outputs,
                binary=work.folder / f"ar{n_tokens}.bin",
            )
        )
    return results


def _recipe(plan: Plan, kv: KvPrecision, text: CalibrationText | None) -> Recipe:
    return Recipe(
        precision=plan.precision,
        kv=kv,
        context_length=plan.context_length,
        prefill_tokens=plan.prefill_tokens,
        rmsnorm=plan.rmsnorm,
        mask_value=mask_value(plan.precision),
        calibration_method=None
        if text is None
        else f"minmax x {SCHEMES[plan.precision].range_headroom:g}, {text.method}",
        calibration_samples=len(text.sequences) if text is not None else None,
        calibration_tokens=text.n_tokens if text is not None else None,
        calibration_text_sha256=text.sha256 if text is not None else None,
        weights=recorded_weights(plan),
        overrides_sha256=overrides_sha256(plan),
    )


def _corpus(source: Checkpoint, heldout: Path | None, context: int) -> Corpus | None:
    path = heldout
    if path is None and (source.folder / HELDOUT_NAME).is_file():
        path = source.folder / HELDOUT_NAME
    if path is None:
        return None
    return load_corpus(path, source.tokenizer_path, source.facts, context_length=context)


def _tools() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in _TOOLS}
    return {"snapgate": __version__, "python": platform.python_version(), **versions}


def _require_onnx() -> None:
    if importlib.util.find_spec("onnx") is None:
        raise HostError(
            "building graphs needs onnx, which is not installed", next_step="pip install 'snapgate[prepare]'"
        )


def _hash_files(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}
