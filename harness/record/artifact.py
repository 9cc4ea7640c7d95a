"""The artifact: a folder with context binaries for one SoC and ``manifest.json``, which this module describes.

Layout of the folder::

    manifest.json           ArtifactManifest
    ar64.bin, ar1.bin       context binaries (emulation: one per graph; a phone may hold both graphs in one)
    rope.bin                float32 cos table (context, head_dim/2), then the sin table of the same shape
    embeddings.bin          float32 (vocabulary, hidden); only where the graphs take ``input_embeds``
    tokenizer.json          as in the checkpoint
    reference/              ONNX graphs for the host reference: fp32_ar64.onnx, graph_ar64.onnx, fp32_ar1.onnx, ...
                            (none where a large model was prepared layer by layer)

Shards: a model too large for one context is cut between layers. Graphs of equal ``n_tokens`` are then the shards of one
step and run in the order in which ``contexts`` lists them (``ar64_shard1.bin``, ``ar64_shard2.bin``, ...). An output of
one that has the name of an input of a later one is handed on as it is: same dtype, shape, scale, zero point. The first
takes ``input_ids``, the last puts out ``logits``, each has the KV cache of its own layers; mask and RoPE go to all. The
graphs that were compiled are ``reference/graph_ar64_shard1.onnx`` and so on; the fp32 reference stays whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import ArtifactError
from harness.record.codec import read_json, read_raw, to_sparse_json
from harness.record.vocabulary import DTYPE_BYTES, DType
from harness.soc import BY_PART, KvPrecision, Precision

MANIFEST_NAME: Final = "manifest.json"
ARTIFACT_SCHEMA: Final = "snapgate.artifact/1"
_ALWAYS_THERE: Final = ("rope.bin", "tokenizer.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One graph input or output. real = scale * (q - zero_point); both are None for int32 and float tensors."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None

    @property
    def n_elements(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def n_bytes(self) -> int:
        return self.n_elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """One AR-N graph of a context binary. ``name`` is the graph's name inside the binary."""

    name: str
    n_tokens: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    epcontext_nodes: int
    """Nodes in the compiled ONNX that run on the HTP: 1 when nothing was split."""
    cpu_nodes: int
    """Nodes that run on the CPU: 0, unless the graph is a piece that was cut out for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    file: str
    sha256: str
    n_bytes: int
    graphs: tuple[GraphSpec, ...]
    on_cpu: tuple[str, ...] = ()
    """``operator (node): reason`` of what the HTP refuses: this is then no binary, but an ONNX file for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    kind: str
    """As the checkpoint calls it: ``linear``, ``llama3``; ``factors`` where a GGUF file holds only the divisors."""
    divisors: tuple[float, ...]
    """head_dim / 2 numbers: frequency i of the plain table is divided by number i."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    name: str
    architecture: str
    n_layers: int
    hidden_size: int
    intermediate_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    rope_theta: float
    rms_norm_eps: float
    tied_embeddings: bool
    bos_id: int | None
    """What stands in front of every prompt; None: nothing does."""
    eos_ids: tuple[int, ...]
    n_parameters: int
    rope_scaling: RopeScaling | None = None
    """None: the plain frequencies."""
    sliding_window: int | None = None
    """Tokens a position sees, itself included; None: all before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides the bytes of the artifact, besides checkpoint, SoC and tool versions."""

    precision: Precision
    kv: KvPrecision
    context_length: int
    prefill_tokens: int
    rmsnorm: str
    """``operator`` (one RMSNormalization node) or ``basic`` (Pow, ReduceMean, Add, Sqrt, Div, Mul)."""
    mask_value: float
    """Additive attention mask for positions that must not be seen."""
    calibration_method: str | None
    calibration_samples: int | None
    calibration_tokens: int | None
    calibration_text_sha256: str | None
    weights: str | None = None
    """How weights were rounded: ``rtn`` (to nearest) or, for four bits, ``gptq``; None: they are floats."""
    overrides_sha256: str | None = None
    """Of the user's encodings file; None: there was none."""
    attention: str = "multi-head"
    """``multi-head``, or ``per-head``: each query head has nodes and scales of its own."""
    linear: str = "matmul"
    """``matmul``, or ``conv``: Conv with a 1x1 kernel."""
    logits: str = "all"
    """Of an AR-N step: ``all`` N rows, or the ``last`` one."""
    embeddings: str = "graph"
    """``graph``: looked up in the graph; ``host``: the graph takes ``input_embeds``, rows of ``embeddings.bin``."""
    other_prefill_tokens: tuple[int, ...] = ()
    """Further AR-N graphs, smaller than ``prefill_tokens``."""
    contexts: str = "separate"
    """A context binary for each AR-N graph; ``one`` for all; ``shared``: one for all, with one set of weights."""
    compiler: str = "onnxruntime-qnn"
    """Or ``qairt``: the tools of a QAIRT SDK."""
    refused: str = "error"
    """``cpu``: graphs are cut around operators that the HTP refuses, which run on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    part: str
    soc_number: int
    htp_arch: int
    vtcm_mb: int | None
    optimization_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityFigure:
    """exp(mean NLL), natural logarithm. ``engine`` says what ran: "onnxruntime-cpu" and which graph."""

    engine: str
    graph: str
    """``fp32``, ``kv16`` or the like: which graph was evaluated."""
    perplexity: float
    n_windows: int
    n_scored_tokens: int
    corpus_sha256: str
    window_nll: tuple[float, ...] = ()
    """Sum of the NLL of each window, in order: two figures over the same windows are compared window by window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyFigures:
    """The graph that was compiled against the fp32 graph, on the same held-out tokens, by onnxruntime on the CPU."""

    layer_snr_db: tuple[float, ...]
    """Residual stream behind each layer."""
    logits_snr_db: float
    top1_agreement: float
    """Share of positions where both graphs choose the same token."""
    n_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactManifest:
    schema: str
    model: ModelFacts
    recipe: Recipe
    target: Target
    contexts: tuple[ContextFile, ...]
    tools: dict[str, str]
    """Name to version: snapgate, python, onnxruntime, onnxruntime-qnn, qnn_build_id, onnx, numpy."""
    checkpoint_sha256: dict[str, str]
    """File name to sha256 of every checkpoint file that was read."""
    files_sha256: dict[str, str]
    """Path below the artifact folder to sha256: every file but the manifest itself."""
    quality: tuple[PerplexityFigure, ...]
    accuracy: AccuracyFigures | None = None
    """None: not measured, for want of held-out text or of a whole model."""
    notes: tuple[str, ...] = ()
    """What the checkpoint's files contradict or leave doubtful, in sentences; nothing of it stopped the preparation."""
    defects: tuple[str, ...] = ()
    """Known defects of the arch that the decode graph shows on the emulator; whether a phone has them is unknown."""

    @property
    def artifact_id(self) -> str:
        """The first 16 hex digits of the sha256 of the manifest as canonical JSON without default values."""
        text = json.dumps(to_sparse_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.model.name}-{self.recipe.precision}-{self.recipe.kv}-{self.target.part}"

    @property
    def bytes_per_token(self) -> int | None:
        """Estimate of what one decode step moves: the AR-1 binaries read once, the cache read, its new column written.

        None where there is no AR-1 graph. A binary that also holds the prefill graph counts whole.
        """
        steps = [(context, graph) for context in self.contexts for graph in context.graphs if graph.n_tokens == 1]
        if not steps:
            return None
        return sum(
            context.n_bytes + sum(tensor.n_bytes for tensor in (*graph.inputs, *graph.outputs))
            for context, graph in steps
        )

    @property
    def runner_lacks(self) -> str | None:
        """What the graphs need that the native runner does not do, and with which option it would; None: nothing."""
        if self.recipe.embeddings != "graph":
            return "embeddings looked up on the host (prepare with --embeddings graph)"
        if self.recipe.logits != "all":
            return "prefill steps with logits of their last token only (prepare with --logits all)"
        on_cpu = [told for context in self.contexts for told in context.on_cpu]
        if on_cpu:
            return f"operators on the CPU: {'; '.join(dict.fromkeys(on_cpu))} (rewrite them, and leave --refused out)"
        return None

    @property
    def n_shards(self) -> int:
        """Pieces of the model that run one after the other; 1 where it is whole."""
        return len(self.chain(1))

    def graph(self, n_tokens: int) -> tuple[ContextFile, GraphSpec]:
        """The AR-``n_tokens`` graph, its first shard where there are several."""
        return self.chain(n_tokens)[0]

    def chain(self, n_tokens: int) -> tuple[tuple[ContextFile, GraphSpec], ...]:
        """The shards of the AR-``n_tokens`` step, in the order in which they run; one where the model is whole."""
        found = tuple(
            (context, graph) for context in self.contexts for graph in context.graphs if graph.n_tokens == n_tokens
        )
        if found:
            return found
        sizes = sorted(g.n_tokens for c in self.contexts for g in c.graphs)
        raise ArtifactError(
            f"{self.name} has no AR-{n_tokens} graph",
            found=str(sizes),
            expected=str(n_tokens),
            next_step="prepare the artifact again",
        )


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    folder: Path
    manifest: ArtifactManifest

    def path(self, relative: str) -> Path:
        """A file of the artifact. A path that leaves the folder is refused."""
        path = (self.folder / relative).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise ArtifactError(
                f"{self.folder} names a file outside itself",
                found=relative,
                expected="files below the artifact folder",
                next_step="prepare the artifact again",
            )
        return path


def load_artifact(folder: Path, *, verify: bool = True, hash_of: Callable[[Path], str] = sha256_of) -> Artifact:
    """Read ``folder/manifest.json``; with ``verify``, hash every file it names, by ``hash_of``."""
    manifest_path = folder / MANIFEST_NAME
    if not manifest_path.is_file():
        raise ArtifactError(
            f"{folder} is not an artifact",
            found=f"no {MANIFEST_NAME}",
            next_step="make one with: snapgate prepare CHECKPOINT --soc gen3",
        )
    schema = read_raw(manifest_path).get("schema")
    if schema != ARTIFACT_SCHEMA:
        raise ArtifactError(
            f"{manifest_path} has another schema",
            found=repr(schema),
            expected=ARTIFACT_SCHEMA,
            next_step="prepare the artifact again, with this version of SnapGate",
        )
    manifest = read_json(manifest_path, ArtifactManifest)
    artifact = Artifact(folder=folder, manifest=manifest)
    if verify:
        _check_manifest(manifest, manifest_path)
        for relative, expected in manifest.files_sha256.items():
            path = artifact.path(relative)
            found = hash_of(path) if path.is_file() else "no such file"
            if found != expected:
                raise ArtifactError(
                    f"{path} is damaged", found=found, expected=expected, next_step="prepare the artifact again"
                )
    return artifact


def _check_manifest(manifest: ArtifactManifest, path: Path) -> None:
    """That a manifest agrees with itself and with the SoC table: an edited one is refused before it costs a run."""

    def refuse(what: str, found: object, expected: object) -> ArtifactError:
        return ArtifactError(
            f"{path}: {what}", found=str(found), expected=str(expected), next_step="prepare the artifact again"
        )

    soc, recipe = BY_PART.get(manifest.target.part), manifest.recipe
    if soc is None or soc.htp_arch != manifest.target.htp_arch:
        raise refuse(
            "target is no known SoC with its HTP arch",
            f"{manifest.target.part}, HTP v{manifest.target.htp_arch}",
            "one of " + ", ".join(BY_PART) if soc is None else f"{soc.part}, HTP v{soc.htp_arch}",
        )
    if not 1 <= recipe.prefill_tokens < recipe.context_length <= manifest.model.max_context:
        raise refuse(
            "prefill, context and the model's longest context contradict each other",
            f"{recipe.prefill_tokens}, {recipe.context_length}, {manifest.model.max_context}",
            "1 <= prefill < context <= longest",
        )
    hashed = manifest.files_sha256
    for context in manifest.contexts:
        if hashed.get(context.file) != context.sha256:
            raise refuse(
                f"{context.file} does not go by one hash",
                f"{context.sha256} as a context",
                hashed.get(context.file, "none, for it is not listed"),
            )
    for name in _ALWAYS_THERE:
        if name not in hashed:
            raise refuse(f"{name} has no hash", f"{len(hashed)} other files", "a sha256 for every file")
    for n_tokens in {1, recipe.prefill_tokens}:
        manifest.graph(n_tokens)
