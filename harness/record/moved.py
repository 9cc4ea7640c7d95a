"""What one token costs at the least: bytes that a decode step moves, operations of a prompt token."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from harness.record.artifact import ArtifactManifest
from harness.soc import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesPerToken:
    """Of one decode step: the AR-1 graph, all its shards"""

    weights: int
    kv: int
    """Past keys and values in, the token's own out"""
    activations: int
    """Every other input and output: mask, rope, token id, logits, and what a shard hands to the next"""

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.activations


def bytes_per_token(manifest: ArtifactManifest) -> BytesPerToken:
    """Raises ``ArtifactError`` when there is no AR-1 graph."""
    tensors = [tensor for _, graph in manifest.chain(1) for tensor in (*graph.inputs, *graph.outputs)]
    kv = sum(tensor.n_bytes for tensor in tensors if tensor.name.startswith(("past_key_", "past_value_")))
    return BytesPerToken(
        weights=_weight_bytes(manifest),
        kv=kv,
        activations=sum(tensor.n_bytes for tensor in tensors) - kv,
    )


def _weight_bytes(manifest: ArtifactManifest) -> int:
    """Of an embedding table that is not also the head, a token reads one row. Four-bit models keep an 8-bit head."""
    model = manifest.model
    table = model.vocab_size * model.hidden_size
    used = model.n_parameters if model.tied_embeddings else model.n_parameters - table + model.hidden_size
    precision = manifest.recipe.precision
    if precision is Precision.FP16:
        return used * 2
    if precision in (Precision.W4A16, Precision.W4A16_B32):
        return int((used - table) * Fraction(1, 2)) + table
    return used


def operations_per_token(manifest: ArtifactManifest) -> int:
    """A multiplication and an addition for each weight of the linear layers, head included; attention comes on top."""
    model = manifest.model
    table = model.vocab_size * model.hidden_size
    norms = model.hidden_size * (2 * model.n_layers + 1)
    return 2 * (model.n_parameters - norms - (0 if model.tied_embeddings else table))
