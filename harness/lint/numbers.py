"""Rules about numbers: scales, masks, ranges, zero points, biases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from harness.lint.findings import Finding, Severity, View

HALF_MAX: Final = 65504.0
MASKED: Final = -20.0
"""An additive mask below this hides a position: e^-20 = 2e-9."""
SOFTMAX_ERROR: Final = 0.5
"""A rounding error in the scores that changes a weight of the softmax by half is an error, by a sixth a warning."""
SOFTMAX_WARNING: Final = 1 / 6


def _weight_error(scale: float) -> float:
    """The relative error of a softmax weight when a score is off by half a step."""
    return math.expm1(min(scale / 2, 700.0))


def softmax_effect(extent: float) -> str:
    """Of scores over a range of ``extent``, at each width."""
    errors = [f"{_weight_error(extent / (2**bits - 1)):.3g} at {bits} bits" for bits in (16, 8)]
    return f"half a step changes a softmax weight by a factor of 1 + {' and 1 + '.join(errors)}"


def mask_scale(view: View) -> Iterator[Finding]:
    """A mask constant so large that the scale it forces on the scores swallows their differences."""
    for softmax in view.nodes("Softmax"):
        encoding = view.reads(softmax.input[0])
        if encoding is not None:
            error = _weight_error(encoding.scale)
            if error > SOFTMAX_WARNING:
                yield Finding(
                    rule="mask-scale",
                    severity=Severity.ERROR if error > SOFTMAX_ERROR else Severity.WARNING,
                    graph=view.name,
                    tensors=(softmax.input[0],),
                    found=f"scale {encoding.scale:.4g}, range {encoding.low:.4g} to {encoding.high:.4g}",
                    expected=f"a scale of at most {2 * math.log1p(SOFTMAX_WARNING):.2f}",
                    effect=softmax_effect(encoding.high - encoding.low),
                    fix="a mask of -50 to -100, and a range that ends 20 to 40 below the smallest real score",
                )
            continue
        mask, lowest = _mask_of(view, softmax)
        if mask is None or lowest >= MASKED:
            continue
        if _weight_error(-lowest / (2**16 - 1)) > SOFTMAX_WARNING:
            yield Finding(
                rule="mask-scale",
                severity=Severity.ERROR if view.is_quantised else Severity.WARNING,
                graph=view.name,
                tensors=(mask, softmax.input[0]),
                found=f"mask {lowest:.4g}",
                expected="-50 to -100",
                effect=softmax_effect(-lowest),
                fix="use -100 in the mask; every position that must not be seen is then e^-100 away",
            )


def masked_rows(view: View) -> Iterator[Finding]:
    """A constant mask with a row that sees nothing."""
    for softmax in view.nodes("Softmax"):
        mask, hidden = _hidden(view, softmax)
        if hidden is None or hidden.ndim < 1 or hidden.shape[-1] < 2:
            continue
        rows = hidden.reshape(-1, hidden.shape[-1])
        blind = np.flatnonzero(rows.all(axis=1))
        if len(blind):
            yield Finding(
                rule="masked-rows",
                severity=Severity.ERROR,
                graph=view.name,
                tensors=(str(mask),),
                found=f"{len(blind)} of {len(rows)} rows hide every position, the first is row {blind[0]}",
                expected="at least one visible position a row",
                effect=f"such a row attends to all {rows.shape[1]} positions alike, or gives NaN with an infinite mask",
                fix="let each row see its own position",
            )


def _mask_of(view: View, softmax: onnx.NodeProto) -> tuple[str | None, float]:
    """The constant that is added to a softmax's input, or put in its place, and its smallest value."""
    maker = view.maker.get(_before_quantisation(view, softmax.input[0]))
    if maker is None or maker.op_type not in ("Add", "Where"):
        return None, 0.0
    for name in maker.input if maker.op_type == "Add" else maker.input[1:]:
        values = view.values(name)
        if values is not None and values.size:
            return name, float(values.min())
    return None, 0.0


def _hidden(view: View, softmax: onnx.NodeProto) -> tuple[str | None, NDArray[np.bool_] | None]:
    """Which positions of each row a constant mask hides; None: that is not constant."""
    mask, lowest = _mask_of(view, softmax)
    maker = view.maker.get(_before_quantisation(view, softmax.input[0]))
    if mask is None or maker is None:
        return None, None
    if maker.op_type == "Add":
        values = view.values(mask)
        return mask, None if values is None else values < MASKED
    condition = view.values(maker.input[0])
    if condition is None or lowest >= MASKED:
        return mask, None
    return maker.input[0], (condition != 0) if mask == maker.input[1] else (condition == 0)


def _before_quantisation(view: View, name: str) -> str:
    for op in ("DequantizeLinear", "QuantizeLinear"):
        maker = view.maker.get(name)
        if maker is not None and maker.op_type == op:
            name = maker.input[0]
    return name


def half_range(view: View) -> Iterator[Finding]:
    """FP16 numbers that can pass 65504: squares, and constants."""
    for tensor in view.graph.initializer:
        half = tensor.data_type == TensorProto.FLOAT16
        if half and any(not np.isfinite(piece).all() for piece in view.pieces(tensor.name)):
            yield _half(view, (tensor.name,), "a constant that is infinite or NaN", "finite numbers", Severity.ERROR)
    for node in view.nodes("Pow", "Mul"):
        squared = node.op_type == "Mul" and len(set(node.input)) == 1
        if node.op_type == "Pow":
            power = view.values(node.input[1])
            squared = power is not None and power.size == 1 and float(power.reshape(-1)[0]) == 2.0
        if not squared or view.writes(node.output[0]) is not None:
            continue
        encoding = view.reads(node.input[0])
        if encoding is not None:
            largest = max(-encoding.low, encoding.high)
            if largest**2 > HALF_MAX:
                yield _half(
                    view,
                    (node.input[0], node.output[0]),
                    f"{largest:.4g} squared is {largest**2:.4g}",
                    f"at most {HALF_MAX:g}",
                    Severity.ERROR,
                )
        elif view.element(node.input[0]) == TensorProto.FLOAT16:
            yield _half(
                view,
                (node.input[0], node.output[0]),
                "a square in FP16",
                "values within 255.9",
                Severity.WARNING,
            )


def squared_norms(view: View) -> Iterator[Finding]:
    """Norms computed in float whose sum of squares can pass 65504, whatever the root of it is."""
    for node in view.nodes("ReduceSumSquare", "ReduceL2"):
        before, after = view.shape(node.input[0]), view.shape(node.output[0])
        encoding = view.reads(node.input[0])
        half = view.element(node.input[0]) == TensorProto.FLOAT16
        if before is None or after is None or view.writes(node.output[0]) is not None or not (encoding or half):
            continue
        if not all(isinstance(extent, int) and extent > 0 for extent in (*before, *after)):
            continue
        n_summed = math.prod(int(e) for e in before) // math.prod(int(e) for e in after)
        within = f"values within {math.sqrt(HALF_MAX / n_summed):.4g}"
        names = (node.input[0], node.output[0])
        if encoding is None:
            yield _half(view, names, f"{n_summed} squares summed in FP16", within, Severity.WARNING)
            continue
        largest = max(-encoding.low, encoding.high)
        if n_summed * largest**2 > HALF_MAX:
            found = f"{n_summed} squares of up to {largest:.4g} add up to {n_summed * largest**2:.4g}"
            yield _half(view, names, found, f"at most {HALF_MAX:g}: {within}", Severity.ERROR)


def _half(view: View, tensors: tuple[str, ...], found: str, expected: str, severity: Severity) -> Finding:
    return Finding(
        rule="fp16-range",
        severity=severity,
        graph=view.name,
        tensors=tensors,
        found=found,
        expected=expected,
        effect="above 65504 FP16 is infinite, and what is normalised by it becomes 0 or NaN",
        fix="keep RMSNormalization one operator, or scale before squaring",
    )


def int4_zero_points(view: View) -> Iterator[Finding]:
    for node in view.nodes("DequantizeLinear"):
        if view.element(node.input[0]) not in (TensorProto.INT4, TensorProto.UINT4) or len(node.input) < 3:
            continue
        zeros = view.values(node.input[2])
        if zeros is None or not zeros.any():
            continue
        scale = view.values(node.input[1])
        shift = float(np.abs(zeros * scale).max()) if scale is not None else math.nan
        yield Finding(
            rule="int4-zero-point",
            severity=Severity.ERROR,
            graph=view.name,
            tensors=(node.input[0], node.input[2]),
            found=f"{np.count_nonzero(zeros)} of {zeros.size} zero points are not 0, up to {int(np.abs(zeros).max())}",
            expected="0 everywhere",
            effect=f"the HTP ignores them without an error: weights are off by up to {shift:.4g}",
            fix="quantise four-bit weights symmetrically",
        )


def bias_overflow(view: View) -> Iterator[Finding]:
    """A bias that does not fit int32 at the product of its operands' scales."""
    for node in view.nodes("Gemm", "Conv", "ConvTranspose"):
        if len(node.input) < 3 or not node.input[2]:
            continue
        bias, x, weight = view.values(node.input[2]), view.reads(node.input[0]), view.maker.get(node.input[1])
        if bias is None or x is None or weight is None or weight.op_type != "DequantizeLinear":
            continue
        scales = view.values(weight.input[1])
        if scales is None or not bias.size:
            continue
        steps = np.abs(bias) / (x.scale * scales)
        largest = float(steps.max())
        if largest > 2**31 - 1:
            yield Finding(
                rule="bias-overflow",
                severity=Severity.ERROR,
                graph=view.name,
                tensors=(node.input[2], node.input[0], node.input[1]),
                found=f"bias {float(np.abs(bias).max()):.4g} is {largest:.4g} steps of {x.scale * scales.min():.4g}",
                expected=f"at most {2**31 - 1} steps",
                effect=f"it is clipped to {(2**31 - 1) / largest:.1%} of its value",
                fix="widen the weight's scale of that channel, or add the bias with an Add of its own",
            )


def softmax_range(view: View) -> Iterator[Finding]:
    """An output encoding of a softmax that cannot hold the weights of the whole context."""
    for softmax in view.nodes("Softmax"):
        encoding, shape = view.writes(softmax.output[0]), view.shape(softmax.output[0])
        if encoding is None:
            continue
        if encoding.high < 0.99:
            yield _softmax(
                view,
                softmax,
                f"the range ends at {encoding.high:.4g}",
                "0 to 1",
                f"a weight of 1 is clipped to {encoding.high:.4g}",
            )
        if shape and isinstance(shape[-1], int) and shape[-1] > 0 and 1 / shape[-1] < encoding.scale / 2:
            yield _softmax(
                view,
                softmax,
                f"steps of {encoding.scale:.4g} over {shape[-1]} positions",
                f"a step of at most {2 / shape[-1]:.4g}",
                "attention spread evenly over the full context rounds to 0 everywhere",
            )


def _softmax(view: View, softmax: onnx.NodeProto, found: str, expected: str, effect: str) -> Finding:
    return Finding(
        rule="softmax-range",
        severity=Severity.WARNING,
        graph=view.name,
        tensors=(softmax.output[0],),
        found=found,
        expected=expected,
        effect=effect,
        fix="give the softmax's output 16 bits and the range 0 to 1",
    )
