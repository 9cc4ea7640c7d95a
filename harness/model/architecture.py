"""What a checkpoint of one architecture holds, as data: tensor names, their shapes, and the options we build.

A new architecture is one more entry of ``ARCHITECTURES``; no code asks for an architecture by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from harness.record.artifact import ModelFacts


class Role(StrEnum):
    """What a weight does. Matrices are kept as Hugging Face keeps them: (out_features, in_features)."""

    EMBEDDING = "embedding"
    INPUT_NORM = "input_norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    OUTPUT = "output"
    POST_NORM = "post_norm"
    GATE = "gate"
    UP = "up"
    DOWN = "down"
    FINAL_NORM = "final_norm"
    HEAD = "head"


class Extent(StrEnum):
    """A symbolic dimension."""

    VOCAB = "vocabulary"
    HIDDEN = "hidden"
    QUERIES = "n_heads * head_dim"
    KEYS = "n_kv_heads * head_dim"
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
class Architecture:
    name: str
    hidden_act: str
    rope_types: tuple[str, ...]
    must_be_false: tuple[str, ...]
    """Options of config.json that would need operators we do not build."""
    weights: Mapping[Role, WeightRule]


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        architecture.name: architecture
        for architecture in (
            Architecture(
                name="LlamaForCausalLM",
                hidden_act="silu",
                rope_types=("default",),
                must_be_false=("attention_bias", "mlp_bias"),
                weights=MappingProxyType(
                    {
                        Role.EMBEDDING: WeightRule(
                            name="model.embed_tokens.weight", shape=(Extent.VOCAB, Extent.HIDDEN)
                        ),
                        Role.INPUT_NORM: WeightRule(
                            name="model.layers.{layer}.input_layernorm.weight", shape=(Extent.HIDDEN,)
                        ),
                        Role.QUERY: WeightRule(
                            name="model.layers.{layer}.self_attn.q_proj.weight", shape=(Extent.QUERIES, Extent.HIDDEN)
                        ),
                        Role.KEY: WeightRule(
                            name="model.layers.{layer}.self_attn.k_proj.weight", shape=(Extent.KEYS, Extent.HIDDEN)
                        ),
                        Role.VALUE: WeightRule(
                            name="model.layers.{layer}.self_attn.v_proj.weight", shape=(Extent.KEYS, Extent.HIDDEN)
                        ),
                        Role.OUTPUT: WeightRule(
                            name="model.layers.{layer}.self_attn.o_proj.weight", shape=(Extent.HIDDEN, Extent.QUERIES)
                        ),
                        Role.POST_NORM: WeightRule(
                            name="model.layers.{layer}.post_attention_layernorm.weight", shape=(Extent.HIDDEN,)
                        ),
                        Role.GATE: WeightRule(
                            name="model.layers.{layer}.mlp.gate_proj.weight", shape=(Extent.INNER, Extent.HIDDEN)
                        ),
                        Role.UP: WeightRule(
                            name="model.layers.{layer}.mlp.up_proj.weight", shape=(Extent.INNER, Extent.HIDDEN)
                        ),
                        Role.DOWN: WeightRule(
                            name="model.layers.{layer}.mlp.down_proj.weight", shape=(Extent.HIDDEN, Extent.INNER)
                        ),
                        Role.FINAL_NORM: WeightRule(name="model.norm.weight", shape=(Extent.HIDDEN,)),
                        Role.HEAD: WeightRule(name="lm_head.weight", shape=(Extent.VOCAB, Extent.HIDDEN)),
                    }
                ),
            ),
        )
    }
)


def tensor_name(facts: ModelFacts, role: Role, layer: int | None = None) -> str:
    """The checkpoint's name of a weight. With tied embeddings the head is the embedding table."""
    weights = ARCHITECTURES[facts.architecture].weights
    if role is Role.HEAD and facts.tied_embeddings:
        role = Role.EMBEDDING
    return weights[role].name.format(layer=layer)


def expected_shapes(facts: ModelFacts) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint with these facts must hold, by its name, with its shape."""
    extents = {
        Extent.VOCAB: facts.vocab_size,
        Extent.HIDDEN: facts.hidden_size,
        Extent.QUERIES: facts.n_heads * facts.head_dim,
        Extent.KEYS: facts.n_kv_heads * facts.head_dim,
        Extent.INNER: facts.intermediate_size,
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for role, rule in ARCHITECTURES[facts.architecture].weights.items():
        if role is Role.HEAD and facts.tied_embeddings:
            continue
        shape = tuple(extents[extent] for extent in rule.shape)
        for layer in range(facts.n_layers) if rule.per_layer else (0,):
            shapes[rule.name.format(layer=layer)] = shape
    return shapes
