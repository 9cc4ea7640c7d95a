"""What `make bench-runtime` runs: stand-in models of two shapes, and one real artifact of the bundled model."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx
import onnxruntime

from harness.compiler.libraries import EP_LIBRARY
from harness.compiler.messages import BinaryGraph
from harness.compiler.prepare import prepare
from harness.compiler.wrapper import wrapper_model
from harness.model.encoding import encode
from harness.model.rope import rope_tables
from harness.record.artifact import Artifact, GraphSpec, TensorSpec
from harness.record.codec import to_json
from harness.record.job import JOB_SCHEMA, Job, JobContext, JobLibraries, JobModel, Prompt
from harness.record.vocabulary import DType
from harness.soc import KvPrecision, Precision, find_soc

_QNN_TYPES = {DType.INT32: 0x032, DType.UFIXED8: 0x408, DType.UFIXED16: 0x416}
_ORT_TYPES = {DType.UFIXED8: 2, DType.UFIXED16: 4, DType.FLOAT16: 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    name: str
    title: str
    layers: int
    heads: int
    """Of keys and values"""
    dim: int
    vocabulary: int
    context: int
    prefill: int = 64
    n_prompt: int = 16
    kv_bytes: int = 1


SMALL = Shape(
    name="bundled", title="the bundled model's shape", layers=4, heads=2, dim=32, vocabulary=1024, context=512
)
LARGE = Shape(
    name="large",
    title="32 layers, 4096 wide, 8 KV heads, context 4096",
    layers=32,
    heads=8,
    dim=128,
    vocabulary=32000,
    context=4096,
)


def standin_job(shape: Shape, folder: Path, libraries: Path, *, backend: Path, n_gen: int) -> Path:
    """A job on the stand-in libraries of ``libraries``, with its files; 8-bit keys and values, greedy decoding."""
    folder.mkdir()
    contexts = []
    for n in (shape.prefill, 1):
        graph = _graph(shape, n)
        path = folder / f"ar{n}.bin"
        path.write_text(json.dumps(_binary(graph)))
        contexts.append(_context(path, (graph,)))
    rope = folder / "rope.bin"
    rope.write_bytes(bytes(shape.context * shape.dim * 4))
    job = Job(
        schema=JOB_SCHEMA,
        run_id="bench",
        nonce="1",
        libraries=_libraries(backend, libraries / "libFakeQnnSystem.so"),
        performance_mode="default",
        model=JobModel(
            n_layers=shape.layers,
            n_kv_heads=shape.heads,
            head_dim=shape.dim,
            vocab_size=shape.vocabulary,
            context_length=shape.context,
            mask_value=-100.0,
            eos_ids=(),
            soc_number=57,
            htp_arch=75,
            rope_table=PurePosixPath(rope),
            rope_sha256=hashlib.sha256(rope.read_bytes()).hexdigest(),
        ),
        contexts=tuple(contexts),
        prompts=(_prompt(tuple(range(1, shape.n_prompt + 1)), n_gen),),
    )
    return _written(job, folder)


def prepared(out: Path, checkpoint: Path) -> Artifact:
    """w8a16 with 8-bit keys and values for 8 Gen 3, context 256; made once."""
    own = out / "checkpoint" / checkpoint.name
    if not own.exists():
        # Without its held-out text, so that preparing measures no perplexity.
        shutil.copytree(checkpoint, own, ignore=shutil.ignore_patterns("heldout.txt"))
    return prepare(
        own,
        soc=find_soc("gen3"),
        precision=Precision.W8A16,
        kv=KvPrecision.KV8,
        context=256,
        prefill=16,
        calibration=checkpoint / "heldout.txt",
        out=out,
    )


def artifact_job(artifact: Artifact, folder: Path, libraries: Path, *, tokens: tuple[int, ...], n_gen: int) -> Path:
    """A job of an artifact on the emulator: greedy, token by token."""
    folder.mkdir()
    manifest = artifact.manifest
    model = manifest.model
    job = Job(
        schema=JOB_SCHEMA,
        run_id="bench",
        nonce="1",
        libraries=_libraries(libraries / "libQnnHtp.so", libraries / "libQnnSystem.so"),
        performance_mode="default",
        model=JobModel(
            n_layers=model.n_layers,
            n_kv_heads=model.n_kv_heads,
            head_dim=model.head_dim,
            vocab_size=model.vocab_size,
            context_length=manifest.recipe.context_length,
            mask_value=manifest.recipe.mask_value,
            eos_ids=model.eos_ids,
            soc_number=manifest.target.soc_number,
            htp_arch=manifest.target.htp_arch,
            rope_table=PurePosixPath(artifact.path("rope.bin")),
            rope_sha256=manifest.files_sha256["rope.bin"],
        ),
        contexts=tuple(
            JobContext(
                path=PurePosixPath(artifact.path(context.file)),
                sha256=context.sha256,
                n_bytes=context.n_bytes,
                graphs=context.graphs,
            )
            for context in manifest.contexts
        ),
        prompts=(_prompt(tokens, n_gen),),
    )
    return _written(job, folder)


def write_description(
    artifact: Artifact, folder: Path, libraries: Path, *, tokens: tuple[int, ...], n_gen: int
) -> Path:
    """The artifact's decode graph for a loop on onnxruntime-qnn: a model file around the binary, tables, and facts."""
    folder.mkdir()
    manifest = artifact.manifest
    model, context_length = manifest.model, manifest.recipe.context_length
    context, graph = manifest.graph(1)
    (folder / "context.bin").symlink_to(artifact.path(context.file).resolve())
    binary = BinaryGraph(name=graph.name, inputs=graph.inputs, outputs=graph.outputs)
    onnx.save(wrapper_model("context.bin", binary), folder / "wrapper.onnx")
    specs = {tensor.name: tensor for tensor in graph.inputs}
    cos, sin = rope_tables(model, context_length)
    encode(cos, specs["position_ids_cos"]).tofile(folder / "cos.bin")
    encode(sin, specs["position_ids_sin"]).tofile(folder / "sin.bin")
    mask = specs["attention_mask"]
    masked, visible = encode(np.array([manifest.recipe.mask_value, 0.0], np.float32), mask).view(np.uint16)
    key = specs["past_key_0_in"]
    capi = Path(onnxruntime.__file__).parent / "capi"
    lines = {
        "onnxruntime": next(capi.glob("libonnxruntime.so.*")),
        "provider": libraries / EP_LIBRARY,
        "backend": libraries / "libQnnHtp.so",
        "model": folder / "wrapper.onnx",
        "cos": folder / "cos.bin",
        "sin": folder / "sin.bin",
        "shape": f"{model.n_layers} {model.n_kv_heads} {model.head_dim} {context_length} {model.vocab_size}",
        "kv": f"{_ORT_TYPES[key.dtype]} {1 if key.dtype is DType.UFIXED8 else 2} {key.zero_point or 0}",
        "io": f"{_ORT_TYPES[mask.dtype]} {masked} {visible}",
        "tokens": " ".join(map(str, tokens)),
        "gen": n_gen,
    }
    path = folder / "description"
    path.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    return path


def _prompt(tokens: tuple[int, ...], n_gen: int) -> Prompt:
    return Prompt(prompt_id="bench", mode="generate", tokens=tokens, n_gen=n_gen, ignore_eos=True, step_with="token")


def _libraries(backend: Path, system: Path) -> JobLibraries:
    return JobLibraries(backend=PurePosixPath(backend), system=PurePosixPath(system))


def _written(job: Job, folder: Path) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(to_json(job)))
    return path


def _context(path: Path, graphs: tuple[GraphSpec, ...]) -> JobContext:
    content = path.read_bytes()
    return JobContext(
        path=PurePosixPath(path), sha256=hashlib.sha256(content).hexdigest(), n_bytes=len(content), graphs=graphs
    )


def _graph(shape: Shape, n: int) -> GraphSpec:
    def fixed(name: str, dims: tuple[int, ...], dtype: DType, scale: float, zero_point: int) -> TensorSpec:
        return TensorSpec(name=name, dtype=dtype, shape=dims, scale=float(np.float32(scale)), zero_point=zero_point)

    def kv(name: str, dims: tuple[int, ...]) -> TensorSpec:
        return fixed(name, dims, DType.UFIXED8, 0.5, 128)

    heads, dim, past = shape.heads, shape.dim, shape.context - n
    inputs = [
        TensorSpec(name="input_ids", dtype=DType.INT32, shape=(1, n)),
        fixed("attention_mask", (1, 1, n, shape.context), DType.UFIXED16, 100 / 65535, 65535),
        fixed("position_ids_cos", (1, 1, n, dim // 2), DType.UFIXED16, 2.0**-15, 32768),
        fixed("position_ids_sin", (1, 1, n, dim // 2), DType.UFIXED16, 2.0**-15, 32768),
    ]
    outputs = [fixed("logits", (1, n, shape.vocabulary), DType.UFIXED16, 0.001, 15000)]
    for layer in range(shape.layers):
        inputs.append(kv(f"past_key_{layer}_in", (heads, 1, dim, past)))
        inputs.append(kv(f"past_value_{layer}_in", (heads, 1, past, dim)))
        outputs.append(kv(f"past_key_{layer}_out", (heads, 1, dim, n)))
        outputs.append(kv(f"past_value_{layer}_out", (heads, 1, n, dim)))
    return GraphSpec(
        name=f"ar{n}", n_tokens=n, inputs=tuple(inputs), outputs=tuple(outputs), epcontext_nodes=1, cpu_nodes=0
    )


def _binary(graph: GraphSpec) -> dict[str, Any]:
    """What the stand-in reads as a context binary."""

    def tensor(spec: TensorSpec, identifier: int) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": identifier, "name": spec.name, "data_type": _QNN_TYPES[spec.dtype]}
        entry["dims"] = spec.shape
        if spec.scale is not None and spec.zero_point is not None:
            entry |= {"scale": spec.scale, "offset": -spec.zero_point}
        return entry

    return {
        "info_version": 3,
        "dsp_arch": 75,
        "soc_number": 57,
        "build_id": "standin-compiler-1",
        "masked_raw": 0,
        "graphs": [
            {
                "name": graph.name,
                "n_tokens": graph.n_tokens,
                "inputs": [tensor(spec, 10 + i) for i, spec in enumerate(graph.inputs)],
                "outputs": [tensor(spec, 10_000 + i) for i, spec in enumerate(graph.outputs)],
            }
        ],
    }
