"""How near decoding comes to what memory allows: bytes that a token has to move, over the bandwidth of the memory.

The bytes are a floor: each weight that a token uses once, the KV cache as the static graph takes it (the whole context,
however little of it is filled), and the other inputs and outputs. Scales, spilled intermediates and weights fetched
twice come on top in reality, so an efficiency is never overstated, and one over 100 % is a fault of the measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.moved import BytesPerToken


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
