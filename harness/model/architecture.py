"""What a checkpoint of one architecture holds, as data: tensor names, their shapes, and the options we build.

A new architecture is one more entry of ``ARCHITECTURES``; no code asks for an architecture by name. What a graph does
follows from the roles an entry has: with a query bias it adds one, with a query norm it normalises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harness.errors import UserError
from harness.record.artifact import ModelFacts


class Role(StrEnum):
    """What a weight does. Matrices are kept as Hugging Face keeps them: (out_features, in_features)."""

    EMBEDDING = "embedding"
    INPUT_NORM = "input_norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    QUERY_BIAS = "query_bias"
    KEY_BIAS = "key_bias"
    VALUE_BIAS = "value_bias"
    QUERY_NORM = "query_norm"
    KEY_NORM = "key_norm"
    OUTPUT = "output"
    POST_NORM = "post_norm"
    GATE = "gate"
    UP = "up"
    DOWN = "down"
    FINAL_NORM = "final_norm"
    HEAD = "head"


BIAS_OF: Final[Mapping[Role, Role]] = MappingProxyType(
    {Role.QUERY: Role.QUERY_BIAS, Role.KEY: Role.KEY_BIAS, Role.VALUE: Role.VALUE_BIAS}
)
"""The vector that is added to a matrix's product."""


class Extent(StrEnum):
    """A symbolic dimension."""

    VOCAB = "vocabulary"
    HIDDEN = "hidden"
    QUERIES = "n_heads * head_dim"
    KEYS = "n_kv_heads * head_dim"
    HEAD_DIM = "head_dim"
    INNER = "intermediate"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRule:
    """``name`` may contain ``{layer}``: then there is one such tensor per layer."""

    name: str
    shape: tuple[Extent, ...]

    @property
    def per_layer(self) -> bool:
        return "{layer}" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """Where config.json keeps the width of a sliding attention window."""

    key: str
    switch: str | None
    """An option that must be true for the window to count; absent is false. None: the width alone decides."""
    default: int | None
    """The width where the key is absent (``null`` always means no window)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    name: str
    hidden_act: str
    must_be_false: tuple[str, ...]
    """Options of config.json that would need tensors or operators we do not build."""
    window: WindowRule | None
    weights: Mapping[Role, WeightRule]
    default_head_dim: int | None = None
    """Where config.json does not say; None: hidden_size / num_attention_heads."""
    chat_families: tuple[str, ...] = ()
    """Chat formats that models of this architecture are trained on; empty: any."""


def _rule(name: str, *shape: Extent) -> WeightRule:
    return WeightRule(name=name, shape=shape)


_LAYER: Final = "model.layers.{layer}"
_ATTENTION: Final = f"{_LAYER}.self_attn"

_LLAMA_WEIGHTS: Final[Mapping[Role, WeightRule]] = MappingProxyType(
    {
        Role.EMBEDDING: _rule("model.embed_tokens.weight", Extent.VOCAB, Extent.HIDDEN),
        Role.INPUT_NORM: _rule(f"{_LAYER}.input_layernorm.weight", Extent.HIDDEN),
        Role.QUERY: _rule(f"{_ATTENTION}.q_proj.weight", Extent.QUERIES, Extent.HIDDEN),
        Role.KEY: _rule(f"{_ATTENTION}.k_proj.weight", Extent.KEYS, Extent.HIDDEN),
        Role.VALUE: _rule(f"{_ATTENTION}.v_proj.weight", Extent.KEYS, Extent.HIDDEN),
        Role.OUTPUT: _rule(f"{_ATTENTION}.o_proj.weight", Extent.HIDDEN, Extent.QUERIES),
        Role.POST_NORM: _rule(f"{_LAYER}.post_attention_layernorm.weight", Extent.HIDDEN),
        Role.GATE: _rule(f"{_LAYER}.mlp.gate_proj.weight", Extent.INNER, Extent.HIDDEN),
        Role.UP: _rule(f"{_LAYER}.mlp.up_proj.weight", Extent.INNER, Extent.HIDDEN),
        Role.DOWN: _rule(f"{_LAYER}.mlp.down_proj.weight", Extent.HIDDEN, Extent.INNER),
        Role.FINAL_NORM: _rule("model.norm.weight", Extent.HIDDEN),
        Role.HEAD: _rule("lm_head.weight", Extent.VOCAB, Extent.HIDDEN),
    }
)
_QKV_BIAS: Final[Mapping[Role, WeightRule]] = MappingProxyType(
    {
        Role.QUERY_BIAS: _rule(f"{_ATTENTION}.q_proj.bias", Extent.QUERIES),
        Role.KEY_BIAS: _rule(f"{_ATTENTION}.k_proj.bias", Extent.KEYS),
        Role.VALUE_BIAS: _rule(f"{_ATTENTION}.v_proj.bias", Extent.KEYS),
    }
)
_QK_NORM: Final[Mapping[Role, WeightRule]] = MappingProxyType(
    {
        Role.QUERY_NORM: _rule(f"{_ATTENTION}.q_norm.weight", Extent.HEAD_DIM),
        Role.KEY_NORM: _rule(f"{_ATTENTION}.k_norm.weight", Extent.HEAD_DIM),
    }
)
_QWEN_WINDOW: Final = WindowRule(key="sliding_window", switch="use_sliding_window", default=4096)

ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {
        architecture.name: architecture
        for architecture in (
            Architecture(
                name="LlamaForCausalLM",
                hidden_act="silu",
                must_be_false=("attention_bias", "mlp_bias"),
                window=None,
                weights=_LLAMA_WEIGHTS,
            ),
            Architecture(
                name="MistralForCausalLM",
                hidden_act="silu",
                must_be_false=("attention_bias",),
                window=WindowRule(key="sliding_window", switch=None, default=4096),
                weights=_LLAMA_WEIGHTS,
            ),
            Architecture(
                name="Qwen2ForCausalLM",
                hidden_act="silu",
                must_be_false=("mlp_bias",),
                window=_QWEN_WINDOW,
                weights=MappingProxyType({**_LLAMA_WEIGHTS, **_QKV_BIAS}),
                chat_families=("chatml",),
            ),
            Architecture(
                name="Qwen3ForCausalLM",
                hidden_act="silu",
                must_be_false=("attention_bias", "mlp_bias"),
                window=_QWEN_WINDOW,
                weights=MappingProxyType({**_LLAMA_WEIGHTS, **_QK_NORM}),
                default_head_dim=128,
                chat_families=("chatml",),
            ),
        )
    }
)

_EXPERTS: Final = "a router and experts in place of the feed-forward block"
_GEMMA: Final = "norm weights stored minus one, scaled embeddings, a GELU gate"
MISSING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BloomForCausalLM": "LayerNorm with bias, ALiBi instead of rotary positions",
        "CohereForCausalLM": "parallel attention and feed-forward, LayerNorm, scaled logits",
        "DeepseekV2ForCausalLM": f"latent attention, {_EXPERTS}",
        "DeepseekV3ForCausalLM": f"latent attention, {_EXPERTS}",
        "FalconForCausalLM": "parallel attention and feed-forward, LayerNorm, one fused QKV matrix",
        "GPT2LMHeadModel": "learnt positions, LayerNorm, GELU",
        "GPTNeoXForCausalLM": "parallel attention and feed-forward, LayerNorm, partial rotary positions",
        "GemmaForCausalLM": _GEMMA,
        "Gemma2ForCausalLM": f"{_GEMMA}, norms behind the blocks, capped logits, alternating windows",
        "Gemma3ForCausalLM": f"{_GEMMA}, norms behind the blocks, alternating windows",
        "GptOssForCausalLM": f"attention sinks, {_EXPERTS}",
        "GraniteForCausalLM": "multipliers of embedding, attention, residual and logits",
        "InternLM2ForCausalLM": "one fused QKV matrix, interleaved by group",
        "Llama4ForCausalLM": f"layers without positions, {_EXPERTS}",
        "Llama4ForConditionalGeneration": f"an image tower, layers without positions, {_EXPERTS}",
        "MiniCPMForCausalLM": "scaled embeddings, residuals and logits",
        "MixtralForCausalLM": _EXPERTS,
        "MllamaForConditionalGeneration": "an image tower and cross-attention layers",
        "Olmo2ForCausalLM": "norms behind the blocks, QK-norm over all heads at once",
        "OlmoForCausalLM": "LayerNorm without weights",
        "OPTForCausalLM": "learnt positions, LayerNorm, ReLU",
        "Phi3ForCausalLM": "fused QKV and gate-up matrices, longrope",
        "PhiForCausalLM": "parallel attention and feed-forward, LayerNorm, partial rotary positions",
        "Qwen2MoeForCausalLM": _EXPERTS,
        "Qwen2VLForConditionalGeneration": "an image tower and positions in three axes",
        "Qwen2_5_VLForConditionalGeneration": "an image tower and positions in three axes",
        "Qwen3MoeForCausalLM": _EXPERTS,
        "Qwen3NextForCausalLM": f"linear attention layers, {_EXPERTS}",
        "SmolLM3ForCausalLM": "layers without positions",
        "StableLmForCausalLM": "LayerNorm, partial rotary positions",
        "Starcoder2ForCausalLM": "LayerNorm with bias, GELU without a gate",
    }
)
"""What known architectures have that no description here has, for the refusal."""


def rules_of(facts: ModelFacts) -> Mapping[Role, WeightRule]:
    return ARCHITECTURES[facts.architecture].weights


def tensor_name(facts: ModelFacts, role: Role, layer: int | None = None) -> str:
    """The checkpoint's name of a weight. With tied embeddings the head is the embedding table."""
    if role is Role.HEAD and facts.tied_embeddings:
        role = Role.EMBEDDING
    return rules_of(facts)[role].name.format(layer=layer)


def expected_shapes(facts: ModelFacts) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint with these facts must hold, by its name, with its shape."""
    extents = {
        Extent.VOCAB: facts.vocab_size,
        Extent.HIDDEN: facts.hidden_size,
        Extent.QUERIES: facts.n_heads * facts.head_dim,
        Extent.KEYS: facts.n_kv_heads * facts.head_dim,
        Extent.HEAD_DIM: facts.head_dim,
        Extent.INNER: facts.intermediate_size,
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for role, rule in rules_of(facts).items():
        if role is Role.HEAD and facts.tied_embeddings:
            continue
        shape = tuple(extents[extent] for extent in rule.shape)
        for layer in range(facts.n_layers) if rule.per_layer else (0,):
            shapes[rule.name.format(layer=layer)] = shape
    return shapes


def check_window(facts: ModelFacts, context_length: int) -> None:
    """Every graph sees its whole context: a model with a narrower window is refused where the two differ."""
    if facts.sliding_window is not None and context_length > facts.sliding_window:
        raise UserError(
            f"{facts.name} attends through a sliding window, which the graphs do not build",
            found=f"context {context_length}, sliding_window {facts.sliding_window}",
            expected=f"a context of at most {facts.sliding_window}: there the window hides nothing",
            next_step=f"--context {facts.sliding_window}, or less",
        )
