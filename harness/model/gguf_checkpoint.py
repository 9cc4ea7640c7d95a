"""A GGUF file as a checkpoint: hyperparameters and tokenizer from its metadata, tensors dequantised one at a time."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import CheckpointError
from harness.model.architecture import ARCHITECTURES, Architecture, Role
from harness.model.gguf_file import GgufFile
from harness.model.gguf_tokenizer import GgufTokenizer
from harness.model.hf_config import finish_facts, model_name, rope_scaling
from harness.model.options import Options
from harness.model.weight_source import QuantizedTensor
from harness.record.artifact import ModelFacts, RopeScaling

ROPE_FACTORS: Final = "rope_freqs.weight"
"""head_dim / 2 divisors of the frequencies: how converters write Llama 3.1's scaling."""
_SPLITS: Final = "split.count"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufRule:
    """How GGUF writes one of its architectures."""

    architecture: str
    """The description of ``ARCHITECTURES`` it is built as."""
    turned: tuple[Role, ...] = ()
    """Weights whose rows are stored in pairs (i, i + half of a head) beside each other."""


GGUF_ARCHITECTURES: Final[Mapping[str, GgufRule]] = {
    "llama": GgufRule(architecture="LlamaForCausalLM", turned=(Role.QUERY, Role.KEY)),
    "qwen2": GgufRule(architecture="Qwen2ForCausalLM"),
    "qwen3": GgufRule(architecture="Qwen3ForCausalLM"),
}
_BLOCK: Final = "blk.{layer}"
GGUF_NAMES: Final[Mapping[Role, str]] = {
    Role.EMBEDDING: "token_embd.weight",
    Role.INPUT_NORM: f"{_BLOCK}.attn_norm.weight",
    Role.QUERY: f"{_BLOCK}.attn_q.weight",
    Role.KEY: f"{_BLOCK}.attn_k.weight",
    Role.VALUE: f"{_BLOCK}.attn_v.weight",
    Role.QUERY_BIAS: f"{_BLOCK}.attn_q.bias",
    Role.KEY_BIAS: f"{_BLOCK}.attn_k.bias",
    Role.VALUE_BIAS: f"{_BLOCK}.attn_v.bias",
    Role.QUERY_NORM: f"{_BLOCK}.attn_q_norm.weight",
    Role.KEY_NORM: f"{_BLOCK}.attn_k_norm.weight",
    Role.OUTPUT: f"{_BLOCK}.attn_output.weight",
    Role.POST_NORM: f"{_BLOCK}.ffn_norm.weight",
    Role.GATE: f"{_BLOCK}.ffn_gate.weight",
    Role.UP: f"{_BLOCK}.ffn_up.weight",
    Role.DOWN: f"{_BLOCK}.ffn_down.weight",
    Role.FINAL_NORM: "output_norm.weight",
    Role.HEAD: "output.weight",
}


class GgufWeights:
    """A WeightSource. Its tokenizer.json lives in a temporary folder, for as long as this object does."""

    def __init__(self, file: GgufFile, architecture: Architecture, metadata: Options, tokenizer: GgufTokenizer) -> None:
        self._file = file
        self._stored: dict[str, str] = {}
        self._turned: dict[str, int] = {}
        kind, turned = metadata.text("general.architecture"), gguf_rule(metadata).turned
        heads = metadata.positive_int(f"{kind}.attention.head_count")
        n_heads = {Role.QUERY: heads, Role.KEY: metadata.positive_int(f"{kind}.attention.head_count_kv", heads)}
        for role, rule in architecture.weights.items():
            for layer in range(metadata.positive_int(f"{kind}.block_count")) if rule.per_layer else (0,):
                stored = GGUF_NAMES[role].format(layer=layer)
                name = rule.name.format(layer=layer)
                if stored in file.tensors:
                    self._stored[name] = stored
                if role in turned:
                    self._turned[name] = n_heads[role]
        # what has no place keeps its own name, so that it is seen and refused
        others = file.tensors.keys() - set(self._stored.values()) - {ROPE_FACTORS}
        self._stored |= {name: name for name in others}
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: file.tensors[stored].shape for name, stored in self._stored.items()
        }
        scratch = Path(tempfile.mkdtemp(prefix="snapgate-gguf-"))
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        self.tokenizer_path = scratch / "tokenizer.json"
        self.tokenizer_path.write_text(json.dumps(tokenizer.json, ensure_ascii=False), encoding="utf-8")

    @property
    def files(self) -> tuple[Path, ...]:
        return (self._file.path,)

    def origin(self, name: str) -> Path:  # noqa: ARG002
        return self._file.path

    def unreadable(self, name: str) -> tuple[str, str] | None:
        stored = self._stored[name]
        if self._file.readable(stored):
            return None
        return self._file.type_name(stored), "a type that the installed gguf package dequantises"

    def read(self, name: str) -> NDArray[np.float32]:
        values = self._file.read(self._stored[name])
        return turned_back(values, self._turned[name]) if name in self._turned else values

    def quantized(self, name: str) -> QuantizedTensor | None:  # noqa: ARG002
        return None


def turned_back(values: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Rows of each head from (0, half, 1, half + 1, ...) back to (0, 1, ..., half, half + 1, ...)."""
    n_rows = values.shape[0]
    pairs = values.reshape(n_heads, n_rows // n_heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def vocabulary_rows(file: GgufFile, n_tokens: int) -> int:
    """Rows of the embedding table, which may have more than the tokenizer's ``n_tokens``."""
    embedding = file.tensors.get(GGUF_NAMES[Role.EMBEDDING])
    return embedding.shape[0] if embedding is not None and embedding.shape else n_tokens


def gguf_facts(
    file: GgufFile, metadata: Options, vocab_size: int, *, bos_id: int | None, eos_ids: tuple[int, ...]
) -> ModelFacts:
    """Raises CheckpointError for metadata that is damaged or asks for what is not built."""
    kind, rule = metadata.values.get("general.architecture"), gguf_rule(metadata)
    _refuse_unbuilt(file, metadata, str(kind))
    n_heads = metadata.positive_int(f"{kind}.attention.head_count")
    n_kv_heads = metadata.positive_int(f"{kind}.attention.head_count_kv", n_heads)
    hidden_size = metadata.positive_int(f"{kind}.embedding_length")
    head_dim = metadata.positive_int(f"{kind}.attention.key_length", hidden_size // n_heads)
    if n_heads % n_kv_heads:
        raise metadata.wrong(f"{kind}.attention.head_count_kv", f"a divisor of the {n_heads} heads")
    if head_dim % 2:
        raise metadata.wrong(f"{kind}.attention.key_length", "an even number: RoPE turns pairs")
    for key in ("rope.dimension_count", "attention.value_length"):
        if metadata.positive_int(f"{kind}.{key}", head_dim) != head_dim:
            raise metadata.wrong(f"{kind}.{key}", f"{head_dim}, the width of a head")
    theta = metadata.positive_float(f"{kind}.rope.freq_base", 10000.0)
    facts = ModelFacts(
        name=model_name(file.path.with_suffix("")),
        architecture=ARCHITECTURES[rule.architecture].name,
        n_layers=metadata.positive_int(f"{kind}.block_count"),
        hidden_size=hidden_size,
        intermediate_size=metadata.positive_int(f"{kind}.feed_forward_length"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        max_context=metadata.positive_int(f"{kind}.context_length"),
        rope_theta=theta,
        rms_norm_eps=metadata.positive_float(f"{kind}.attention.layer_norm_rms_epsilon"),
        tied_embeddings=GGUF_NAMES[Role.HEAD] not in file.tensors,
        bos_id=bos_id,
        eos_ids=eos_ids,
        n_parameters=0,
        rope_scaling=_rope_scaling(file, metadata, str(kind), theta, head_dim),
        sliding_window=_window(metadata, f"{kind}.attention.sliding_window"),
    )
    return finish_facts(facts, file.path)


def gguf_rule(metadata: Options) -> GgufRule:
    name = metadata.values.get("general.architecture")
    rule = GGUF_ARCHITECTURES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise CheckpointError(
            f"{metadata.path}: unsupported architecture",
            found=f"general.architecture {name!r}",
            expected=" or ".join(map(repr, GGUF_ARCHITECTURES)),
            next_step="choose a checkpoint of a supported architecture",
        )
    return rule


def _refuse_unbuilt(file: GgufFile, metadata: Options, kind: str) -> None:
    if metadata.values.get(_SPLITS, 1) not in (0, 1):
        raise CheckpointError(
            f"{file.path} is one part of several",
            found=f"{_SPLITS} {metadata.values[_SPLITS]}",
            expected="a whole checkpoint in one file",
            next_step="join the parts with: gguf-split --merge",
        )
    if metadata.values.get(f"{kind}.expert_count", 0) != 0:
        raise metadata.wrong(f"{kind}.expert_count", "0: a router and experts are not built")


def _rope_scaling(file: GgufFile, metadata: Options, kind: str, theta: float, head_dim: int) -> RopeScaling | None:
    factors = file.tensors.get(ROPE_FACTORS)
    if factors is not None:
        if factors.shape != (head_dim // 2,) or not file.readable(ROPE_FACTORS):
            raise CheckpointError(
                f"tensor {ROPE_FACTORS} of {file.path} cannot be used",
                found=f"{file.type_name(ROPE_FACTORS)}, shape {factors.shape}",
                expected=f"{head_dim // 2} floats",
            )
        return RopeScaling(kind="factors", divisors=tuple(map(float, file.read(ROPE_FACTORS))))
    key = f"{kind}.rope.scaling.type"
    name = metadata.text(key, "none")
    if name == "none":
        return None
    if name != "linear":
        raise metadata.wrong(key, f"'none', 'linear', or the divisors in {ROPE_FACTORS}")
    numbers = {"factor": metadata.positive_float(f"{kind}.rope.scaling.factor")}
    return rope_scaling(name, numbers, theta, head_dim, file.path)


def _window(metadata: Options, key: str) -> int | None:
    return None if metadata.values.get(key) in (None, 0) else metadata.positive_int(key)
