"""Checkpoint to artifact: the whole preparation for one SoC."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness import __version__
from harness.compiler.build import Builder, Built
from harness.compiler.by_layer import LayerBuilder, bundled_text
from harness.compiler.compile import OPTIMIZATION_LEVEL
from harness.compiler.copies import give_own
from harness.compiler.exports import ENCODINGS_NAME
from harness.compiler.finished import find_finished, note_finished, preparation_key
from harness.compiler.libraries import library_folder
from harness.compiler.one_context import built_library
from harness.compiler.qairt import find_sdk, sdk_tools
from harness.compiler.recipe import Plan, check_plan, is_by_layer, overrides_sha256, recorded_weights
from harness.compiler.remembered import RememberedHashes
from harness.compiler.reuse import find_reusable
from harness.compiler.stages import Measured, Meter, Stage, Stages
from harness.compiler.staging import publish, staging_folder
from harness.errors import HostError, UserError
from harness.model.checkpoint import TOKENIZER, Checkpoint, load_checkpoint
from harness.model.embeddings import EMBEDDINGS_FILE
from harness.model.encodings_file import read_encodings
from harness.model.form import Compiler, Contexts
from harness.model.perplexity import Corpus, load_corpus, read_text
from harness.model.recipes import SCHEMES, mask_value
from harness.model.reference import reference_file, reference_files
from harness.model.rope import rope_file_bytes
from harness.record.artifact import (
    ARTIFACT_SCHEMA,
    MANIFEST_NAME,
    Artifact,
    ArtifactManifest,
    Recipe,
    Target,
    load_artifact,
    sha256_of,
)
from harness.record.codec import write_json
from harness.record.comparison import Leg
from harness.soc import KvPrecision, Precision, Soc

if TYPE_CHECKING:
    from harness.model.calibrate import CalibrationText

Progress = Callable[[str], None]

HELDOUT_NAME: Final = "heldout.txt"
_TAKEN: Final = "{} was prepared from the same checkpoint, recipe and tools: taken as it is"
_TOOLS: Final = ("onnxruntime", "onnxruntime-qnn", "onnx", "numpy", "tokenizers")


def prepare(
    checkpoint: Path,
    *,
    soc: Soc,
    precision: Precision,
    kv: KvPrecision | None = None,
    context: int = 512,
    prefill: int | Sequence[int] = 64,
    rmsnorm: str = "operator",
    attention: str = "multi-head",
    linear: str = "matmul",
    logits: str = "all",
    embeddings: str = "graph",
    contexts: str = "separate",
    compiler: str = "onnxruntime-qnn",
    sdk: Path | None = None,
    refused: str = "error",
    weights: str = "rtn",
    overrides: Path | None = None,
    shards: int | None = None,
    build: str = "auto",
    out: Path,
    calibration: Path | None = None,
    heldout: Path | None = None,
    progress: Progress = lambda _: None,
    measured: Callable[[tuple[Measured, ...]], None] = lambda _: None,
) -> Artifact:
    """Build the artifact ``out / manifest.name``, or take the one that is there if it came from the same inputs.

    ``calibration``: plain text for quantised precisions; without it the float model writes its own. ``heldout``: text
    for perplexity, never calibrated on; default ``heldout.txt`` beside the checkpoint, and without one no perplexity
    is measured. ``prefill``: tokens a prefill step, of one graph or several. ``shards``: pieces the model is cut into;
    default as few as the HTP's limits allow. ``build``: ``whole``; ``by-layer``, which keeps one layer's floats and one
    shard's graphs at a time, so that the artifact has no references; ``auto`` by size. ``contexts``: see
    ``harness.model.form.Contexts``.
    ``compiler``: ``qairt`` for the tools of the QAIRT SDK in ``sdk``. ``refused``: see ``harness.model.form.Refused``.
    ``kv`` None: for 16-bit activations, kv8 where it costs at most 0.1 % of perplexity against kv16, else kv16.
    ``measured`` is told what every stage took, unless a finished artifact is taken. On failure nothing half-written
    stays; stages that were finished do, and the next preparation goes on from them.
    """
    library_folder()
    _require_onnx()
    hashes = RememberedHashes()
    tools_of_sdk = find_sdk(sdk, hashes.sha256_of) if compiler == Compiler.QAIRT else None
    if contexts == Contexts.ONE and tools_of_sdk is None:
        built_library()
    sizes = (prefill,) if isinstance(prefill, int) else tuple(sorted(prefill, reverse=True))
    plan = Plan(
        soc=soc,
        precision=precision,
        kv=kv,
        context_length=context,
        prefill_tokens=sizes[0],
        other_prefill_tokens=sizes[1:],
        rmsnorm=rmsnorm,
        attention=attention,
        linear=linear,
        logits=logits,
        embeddings=embeddings,
        contexts=contexts,
        compiler=compiler,
        refused=refused,
        weights=weights,
        overrides=overrides,
        shards=shards,
        build=build,
    )
    tools = _tools()
    all_tools = {**tools, **sdk_tools(tools_of_sdk)}
    texts = {"calibration": calibration, "heldout": heldout or _own_heldout(checkpoint)}
    key = preparation_key(checkpoint, plan, texts=texts, tools=all_tools, hash_of=hashes.sha256_of)
    finished = find_finished(out, key, hashes.sha256_of)
    if finished is not None:
        for note in finished.manifest.notes:
            progress(f"note: {note}")
        progress(_TAKEN.format(finished.folder))
        return finished
    source = load_checkpoint(checkpoint, progress=progress, hash_of=hashes.sha256_of)
    for note in source.notes:
        progress(f"note: {note}")
    check_plan(plan, source.facts)
    by_layer = is_by_layer(plan, source.facts)
    corpus = _corpus(source, heldout, context)
    if by_layer and calibration is None and precision is not Precision.FP16:
        calibration = bundled_text()
        progress(f"note: calibrated on {calibration.name}: a model prepared layer by layer writes no text of its own")
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
    with staging_folder(out, progress) as folder:
        reusable = find_reusable(
            out, source, plan, tools=all_tools, calibration=calibration, corpus=corpus, hash_of=hashes.sha256_of
        )
        if reusable is not None:
            note_finished(out, key, reusable)
            progress(_TAKEN.format(reusable.folder))
            return reusable
        meter = Meter(progress=progress)
        stages = Stages(out, meter)
        builder = (LayerBuilder if by_layer else Builder)(
            checkpoint=source,
            plan=plan,
            corpus=corpus,
            calibration=calibration,
            tools=tools,
            stages=stages,
            meter=meter,
            progress=progress,
            sdk=tools_of_sdk,
        )
        built = builder.run()
        files = _Files(folder, progress)
        _gather(files, built)
        (folder / "rope.bin").write_bytes(rope_file_bytes(source.facts, context))
        shutil.copyfile(source.tokenizer_path, folder / TOKENIZER)
        written = ["rope.bin", TOKENIZER]
        if builder.embeddings is not None:
            builder.embeddings.astype("<f4").tofile(folder / EMBEDDINGS_FILE)
            written.append(EMBEDDINGS_FILE)
        for name in written:
            files.sha256[name] = sha256_of(folder / name)
        manifest = ArtifactManifest(
            schema=ARTIFACT_SCHEMA,
            model=source.facts,
            recipe=_recipe(plan, built.kv, built.text),
            target=Target(
                part=soc.part,
                soc_number=soc.soc_number,
                htp_arch=soc.htp_arch,
                vtcm_mb=soc.vtcm_mb,
                optimization_level=OPTIMIZATION_LEVEL,
            ),
            contexts=tuple(compiled.context for _, compiled in built.binaries),
            tools={**all_tools, "qnn_build_id": _build_id(built)},
            checkpoint_sha256=source.sha256,
            files_sha256=dict(sorted(files.sha256.items())),
            quality=built.quality,
            accuracy=built.accuracy,
            notes=source.notes,
            defects=built.defects,
        )
        write_json(folder / MANIFEST_NAME, manifest)
        publish(folder, out / manifest.name)
        artifact = load_artifact(out / manifest.name, verify=False)
        stages.drop_others()
        note_finished(out, key, artifact)
        hashes.settle(out / manifest.name / name for name in manifest.files_sha256)
    measured(tuple(meter.measured))
    progress(f"artifact {artifact.folder} is ready")
    return artifact


class _Files:
    """The files of an artifact that is being put together."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder, self._progress = folder, progress
        self.sha256: dict[str, str] = {}

    def link(self, stage: Stage, name: str) -> None:
        """A binary: nobody minds its second name."""
        give_own(stage.path / name, self._folder / name, limit_bytes=0)
        self.sha256[name] = stage.files_sha256[name]

    def take(self, stage: Stage, name: str, target: str) -> None:
        path = self._folder / target
        path.parent.mkdir(exist_ok=True)
        if not give_own(stage.path / name, path):
            self._progress(
                f"note: {target} shares its {path.stat().st_size / 2**30:.0f} GiB with the cache of stages by a hard "
                "link; onnx.load refuses such files, a copy of the artifact (cp -r) it takes"
            )
        self.sha256[target] = stage.files_sha256[name]


def _gather(files: _Files, built: Built) -> None:
    for n_tokens, (stage, names) in built.compiled.items():
        if built.fp32 is not None:
            files.take(built.fp32, f"{Leg.FP32}_ar{n_tokens}.onnx", reference_file(Leg.FP32, n_tokens))
        for name, target in zip(names, reference_files(Leg.GRAPH, n_tokens, len(names)), strict=True):
            files.take(stage, name, target)
    for kept, leg in ((built.fp32, Leg.FP32), (built.graphs, Leg.GRAPH)):
        if kept is not None:
            files.take(kept, f"{leg}.data", f"reference/{leg}.data")
    if built.encodings is not None:
        files.take(built.encodings, ENCODINGS_NAME, ENCODINGS_NAME)
    for stage, compiled in built.binaries:
        if compiled.facts is None:
            continue  # one of the graphs above
        files.link(stage, compiled.context.file)


def _build_id(built: Built) -> str:
    return next(compiled.facts.build_id for _, compiled in built.binaries if compiled.facts is not None)


def _recipe(plan: Plan, kv: KvPrecision, text: CalibrationText | None) -> Recipe:
    return Recipe(
        precision=plan.precision,
        kv=kv,
        context_length=plan.context_length,
        prefill_tokens=plan.prefill_tokens,
        rmsnorm=plan.rmsnorm,
        attention=plan.attention,
        linear=plan.linear,
        logits=plan.logits,
        embeddings=plan.embeddings,
        contexts=plan.contexts,
        compiler=plan.compiler,
        refused=plan.refused,
        other_prefill_tokens=plan.other_prefill_tokens,
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
    path = heldout or _own_heldout(source.folder)
    if path is None:
        return None
    return load_corpus(path, source.tokenizer_path, source.facts, context_length=context)


def _own_heldout(checkpoint: Path) -> Path | None:
    path = (checkpoint if checkpoint.is_dir() else checkpoint.parent) / HELDOUT_NAME
    return path if path.is_file() else None


def _tools() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in _TOOLS}
    return {"snapgate": __version__, "python": platform.python_version(), **versions}


def _require_onnx() -> None:
    if importlib.util.find_spec("onnx") is None:
        raise HostError(
            "building graphs needs onnx, which is not installed", next_step="pip install 'snapgate[prepare]'"
        )
