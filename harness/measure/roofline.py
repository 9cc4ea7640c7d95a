"""How near decoding comes to what memory allows: bytes that a token has to move, over the bandwidth of the memory.

The bytes are a floor: each weight that a token uses once, the KV cache as the static graph takes it (the whole context,
however little of it is filled), and the other inputs and outputs. Scales, spilled intermediates and weights fetched
twice come on top in reality, so an efficiency is never overstated, and one over 100 % is a fault of the measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from harness.record.artifact import ArtifactManifest
from harness.soc import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesPerToken:
    """Of one step of the AR-1 graph"""

    weights: int
    kv: int
    """Past keys and values in, the token's own out"""
    activations: int
    """Every other input and output: mask, rope, token id, logits"""

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.activations


def bytes_per_token(manifest: ArtifactManifest) -> BytesPerToken:
    """Raises ``ArtifactError`` when there is no AR-1 graph."""
    _, graph = manifest.graph(1)
    tensors = (*graph.inputs, *graph.outputs)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """``gb_per_s`` in 10^9 bytes; ``source`` keeps a peak from being taken for a measurement."""

    gb_per_s: float
    source: str

    def fastest_tps(self, moved: BytesPerToken) -> float:
        return self.gb_per_s * 1e9 / moved.total

    def efficiency_percent(self, moved: BytesPerToken, decode_tps: float) -> float:
        return 100.0 * decode_tps / self.fastest_tps(moved)


FAULT = "measurement_fault: more than 100 % of what the memory can move"


def fault(efficiency_percent: float) -> str | None:
    return FAULT if efficiency_percent > 100.0 else None
