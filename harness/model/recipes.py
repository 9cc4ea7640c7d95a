"""What each precision means for a graph: bits of weights and activations, and what stays in float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.soc import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a float graph becomes a QDQ graph."""

    activation_bits: int
    weight_bits: int
    block: int | None
    """Inputs that share a scale with each other, per output channel; None: all of them."""
    float_attention: bool
    mask_value: float
    """Additive mask. A float type's own minimum would wreck the mask's scale."""
    score_headroom: float
    """How far below the smallest real score a masked score is still told apart: e^-20 = 2e-9 is nothing to a softmax
    of 8 bits (steps of 4e-3), e^-40 = 4e-18 to one of 16."""
    range_headroom: float
    """Calibrated ranges are widened by this much: other text exceeds them by up to a third in the bundled model, a
    saturated value is lost, and a quarter costs a third of one bit. Of 8 bits there is none to spare."""


def _scheme(*, weight_bits: int, block: int | None = None, float_attention: bool = False) -> Scheme:
    return Scheme(
        activation_bits=16,
        weight_bits=weight_bits,
        block=block,
        float_attention=float_attention,
        mask_value=-100.0,
        score_headroom=40.0,
        range_headroom=1.25,
    )


SCHEMES: Final[Mapping[Precision, Scheme]] = MappingProxyType(
    {
        Precision.W8A16: _scheme(weight_bits=8),
        Precision.W8A16_FP16ATTN: _scheme(weight_bits=8, float_attention=True),
        Precision.W8A8: Scheme(
            activation_bits=8,
            weight_bits=8,
            block=None,
            float_attention=False,
            mask_value=-50.0,
            score_headroom=20.0,
            range_headroom=1.0,
        ),
        Precision.W4A16: _scheme(weight_bits=4),
        Precision.W4A16_B32: _scheme(weight_bits=4, block=32),
    }
)
FLOAT_MASK_VALUE: Final = -100.0


def mask_value(precision: Precision) -> float:
    """The additive attention mask that graphs of ``precision`` are calibrated for and run with."""
    return SCHEMES[precision].mask_value if precision in SCHEMES else FLOAT_MASK_VALUE
