"""The ONNX Runtime reference on the host's CPU, graph optimisations off, a fixed number of threads.

Imports neither ``onnx`` nor onnxruntime-qnn: a host that only runs and gates can compute references.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from harness.errors import ArtifactError, NoReferenceError
from harness.model.decoder import Decoder
from harness.model.embeddings import table_of, with_embeddings
from harness.model.engine import load_onnxruntime
from harness.model.interface import MASK
from harness.model.shards import as_one
from harness.record.artifact import Artifact, GraphSpec, TensorSpec
from harness.record.codec import to_json
from harness.record.comparison import Leg, ReferenceFacts
from harness.record.vocabulary import DType

ENGINE: Final = "onnxruntime-cpu"
DEFAULT_THREADS: Final = 2
"""Fixed, not the host's core count: the number of threads may change the order of sums."""
INTEGER_KERNEL_FLAGS: Final = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")

_ORT_DTYPES: Final[Mapping[str, DType]] = {
    "tensor(int32)": DType.INT32,
    "tensor(float16)": DType.FLOAT16,
    "tensor(float)": DType.FLOAT32,
    "tensor(uint8)": DType.UFIXED8,
    "tensor(uint16)": DType.UFIXED16,
    "tensor(int8)": DType.SFIXED8,
    "tensor(int16)": DType.SFIXED16,
}


class CpuGraph:
    """An ONNX graph on the CPU. ``spec`` gives scales where the graph is quantised; without it, floats are assumed.

    ``folder``: where the data file of a model in memory lies.
    """

    def __init__(
        self,
        model: Path | bytes,
        spec: GraphSpec | None = None,
        *,
        folder: Path | None = None,
        n_threads: int = DEFAULT_THREADS,
    ) -> None:
        onnxruntime = load_onnxruntime()

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = n_threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        source = str(model) if isinstance(model, Path) else model
        try:
            self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as exc:
            name = str(model) if isinstance(model, Path) else "the model in memory"
            raise ArtifactError(
                f"onnxruntime cannot load {name}", found=str(exc), next_step="prepare the artifact again"
            ) from exc
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._spec = spec if spec is not None else self._float_spec()

    @property
    def spec(self) -> GraphSpec:
        return self._spec

    def run(self, feed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(zip(self._outputs, self._session.run(self._outputs, dict(feed)), strict=True))

    def _float_spec(self) -> GraphSpec:
        def tensors(arguments: Any) -> tuple[TensorSpec, ...]:
            return tuple(
                TensorSpec(name=a.name, dtype=_ORT_DTYPES[a.type], shape=tuple(int(d) for d in a.shape))
                for a in arguments
            )

        inputs = tensors(self._session.get_inputs())
        n_tokens = next(tensor.shape[2] for tensor in inputs if tensor.name == MASK)
        return GraphSpec(
            name=f"ar{n_tokens}",
            n_tokens=n_tokens,
            inputs=inputs,
            outputs=tensors(self._session.get_outputs()),
            epcontext_nodes=0,
            cpu_nodes=0,
        )


def reference_file(leg: Leg, n_tokens: int, shard: int | None = None) -> str:
    """Where an artifact keeps the ONNX graph of a leg; shards are counted from 1, None is a graph that is whole."""
    if leg not in (Leg.FP32, Leg.GRAPH):
        raise ArtifactError(f"the {leg} leg has no reference graph", expected=f"{Leg.FP32} or {Leg.GRAPH}")
    return f"reference/{leg}_ar{n_tokens}{'' if shard is None else f'_shard{shard}'}.onnx"


def reference_files(leg: Leg, n_tokens: int, n_shards: int) -> tuple[str, ...]:
    """The graphs of one step in the order in which they run. The fp32 leg is always whole."""
    if n_shards == 1 or leg is Leg.FP32:
        return (reference_file(leg, n_tokens),)
    return tuple(reference_file(leg, n_tokens, shard) for shard in range(1, n_shards + 1))


def require_references(artifact: Artifact, *legs: Leg) -> None:
    """Raises ``NoReferenceError``: the artifact was prepared without them."""
    manifest = artifact.manifest
    for leg in legs:
        for n_tokens in (1, manifest.recipe.prefill_tokens):
            for name in reference_files(leg, n_tokens, len(manifest.chain(n_tokens))):
                if not artifact.path(name).is_file():
                    raise NoReferenceError(
                        f"{artifact.folder} holds no {leg} reference graph",
                        found=f"no {artifact.path(name).name}",
                        next_step="prepare the artifact again with --build whole: layer by layer, none are kept",
                    )


def load_reference(artifact: Artifact, leg: Leg, *, n_threads: int = DEFAULT_THREADS) -> Decoder:
    """The prefill and decode graphs of a leg: ``fp32``, or ``graph``, the very graph that was compiled. Raises
    ``NoReferenceError``."""
    require_references(artifact, leg)
    manifest = artifact.manifest
    table = table_of(artifact)
    runners = []
    for n_tokens in sorted({1, manifest.recipe.prefill_tokens}, reverse=True):
        chain = manifest.chain(n_tokens)
        specs = [graph for _, graph in chain] if leg is Leg.GRAPH else [None]
        shards = []
        for name, spec in zip(reference_files(leg, n_tokens, len(chain)), specs, strict=True):
            shards.append(CpuGraph(artifact.path(name), spec, n_threads=n_threads))
        runners.append(with_embeddings(as_one(shards), table))
    return Decoder(
        runners,
        manifest.model,
        context_length=manifest.recipe.context_length,
        mask_value=manifest.recipe.mask_value,
    )


def reference_facts(artifact: Artifact, *, n_threads: int = DEFAULT_THREADS) -> ReferenceFacts:
    """What decides the reference's numbers. ``reference_id`` is a hash of the rest."""
    onnxruntime = load_onnxruntime()

    cpu_model, cpu_flags = _cpu()
    facts = ReferenceFacts(
        reference_id="",
        artifact_id=artifact.manifest.artifact_id,
        onnxruntime_version=onnxruntime.__version__,
        cpu_model=cpu_model,
        cpu_flags=cpu_flags,
        n_threads=n_threads,
        optimization_level="disabled",
    )
    text = json.dumps(to_json(facts), sort_keys=True, separators=(",", ":"))
    return replace(facts, reference_id=hashlib.sha256(text.encode()).hexdigest()[:16])


def _cpu(path: Path = Path("/proc/cpuinfo")) -> tuple[str, tuple[str, ...]]:
    """Model name, and those flags that choose other integer kernels. ``unknown`` where the kernel does not say."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown", ()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    flags = set(fields.get("flags", "").split())
    return fields.get("model name", "unknown"), tuple(flag for flag in INTEGER_KERNEL_FLAGS if flag in flags)
