"""How close rows of logits are to the reference. Total: NaN, Inf and all-zero rows give defined, finite, bad figures.

Figures are finite because a journal holds no NaN. The worst and best values are the constants below; a row that is not
finite has the worst of each and the argmax ``NO_TOKEN``, which agrees with nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import RunnerError
from harness.record.comparison import Leg, LogitsComparison
from harness.record.run import Cell
from harness.record.runner import LogitsFile

SNR_CAP_DB: Final = 200.0
"""Equal rows have +200 dB, rows that are not finite -200 dB."""
RELATIVE_L2_WORST: Final = 10.0 ** (SNR_CAP_DB / 20.0)
KL_WORST_NATS: Final = 1e4
NO_TOKEN: Final = -1
_ROWS_AT_ONCE: Final = 64

Rows = NDArray[Any]
"""Logits of any real dtype, shape (n_rows, n_columns)."""

_LOGITS_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "ufixed8": np.dtype("u1"),
    "ufixed16": np.dtype("<u2"),
    "sfixed8": np.dtype("i1"),
    "sfixed16": np.dtype("<i2"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuality:
    """One value per row; all finite."""

    relative_l2: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    kl_nats: NDArray[np.float64]
    argmax: NDArray[np.int64]
    reference_argmax: NDArray[np.int64]
    reference_margin: NDArray[np.float64]


def raw_logits(data: bytes, spec: LogitsFile) -> Rows:
    """The rows of ``spec`` in the graph's own dtype, cut out of the whole pulled file ``data``; not converted."""
    dtype = _LOGITS_DTYPES.get(spec.dtype)
    if dtype is None:
        raise RunnerError(f"{spec.file}: unknown logits dtype", found=spec.dtype, expected=", ".join(_LOGITS_DTYPES))
    needed = spec.offset_bytes + spec.n_rows * spec.n_columns * dtype.itemsize
    if spec.offset_bytes < 0 or spec.n_rows < 0 or spec.n_columns <= 0 or len(data) < needed:
        raise RunnerError(
            f"{spec.file} does not hold the logits that the runner announced",
            found=f"{len(data)} bytes",
            expected=f"at least {needed} bytes ({spec.n_rows} x {spec.n_columns} {spec.dtype} at {spec.offset_bytes})",
            next_step="pull the file again; if it is whole, the runner and the harness are of different versions",
        )
    rows: Rows = np.frombuffer(data, dtype=dtype, count=spec.n_rows * spec.n_columns, offset=spec.offset_bytes)
    return rows.reshape(spec.n_rows, spec.n_columns)


def real_logits(rows: Rows, spec: LogitsFile) -> NDArray[np.float64]:
    """real = scale * (q - zero_point) for fixed-point rows; float rows are only widened."""
    if spec.dtype.startswith("float"):
        return rows.astype(np.float64)
    if spec.scale is None or spec.zero_point is None:
        raise RunnerError(f"{spec.file}: {spec.dtype} logits without a scale", found=repr(spec), expected="a scale")
    return spec.scale * (rows.astype(np.float64) - spec.zero_point)


def compare_rows(reference: Rows, logits: Rows) -> RowQuality:
    """``logits`` against ``reference``, row by row, in float64; both (n_rows, n_columns)."""
    if reference.shape != logits.shape or reference.ndim != 2:
        raise RunnerError(
            "logits and reference differ in shape",
            found=str(logits.shape),
            expected=str(reference.shape),
            next_step="compare the same positions of the same prompt",
        )
    blocks = [
        _compare_block(reference[i : i + _ROWS_AT_ONCE], logits[i : i + _ROWS_AT_ONCE])
        for i in range(0, max(len(logits), 1), _ROWS_AT_ONCE)
    ]
    return RowQuality(
        relative_l2=np.concatenate([b.relative_l2 for b in blocks]),
        snr_db=np.concatenate([b.snr_db for b in blocks]),
        kl_nats=np.concatenate([b.kl_nats for b in blocks]),
        argmax=np.concatenate([b.argmax for b in blocks]),
        reference_argmax=np.concatenate([b.reference_argmax for b in blocks]),
        reference_margin=np.concatenate([b.reference_margin for b in blocks]),
    )


def _compare_block(reference: Rows, logits: Rows) -> RowQuality:
    r = reference.astype(np.float64)
    x = logits.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(r).all(axis=1) & np.isfinite(x).all(axis=1)
        error = np.sqrt(((x - r) ** 2).sum(axis=1))
        size = np.sqrt((r**2).sum(axis=1))
        # 0/0: both rows are zero, so they are equal.
        ratio = np.where(error == 0.0, 0.0, error / size)
        relative_l2 = _bounded(np.where(finite, ratio, np.nan), 0.0, RELATIVE_L2_WORST, worst=RELATIVE_L2_WORST)
        snr_db = np.clip(-20.0 * np.log10(relative_l2), -SNR_CAP_DB, SNR_CAP_DB)
        log_p = _log_softmax(r)
        kl = (np.exp(log_p) * (log_p - _log_softmax(x))).sum(axis=1)
        kl_nats = _bounded(np.where(finite, kl, np.nan), 0.0, KL_WORST_NATS, worst=KL_WORST_NATS)
    return RowQuality(
        relative_l2=relative_l2,
        snr_db=snr_db,
        kl_nats=kl_nats,
        argmax=argmax_of(x),
        reference_argmax=argmax_of(r),
        reference_margin=margin_of(r),
    )


def _bounded(values: NDArray[np.float64], low: float, high: float, *, worst: float) -> NDArray[np.float64]:
    bounded: NDArray[np.float64] = np.clip(np.where(np.isnan(values), worst, values), low, high)
    return bounded


def _log_softmax(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = rows - rows.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def argmax_of(rows: Rows) -> NDArray[np.int64]:
    """The first largest column per row; ``NO_TOKEN`` for a row with NaN or Inf."""
    if len(rows) == 0:
        return np.zeros(0, dtype=np.int64)
    finite = np.isfinite(rows.astype(np.float64)).all(axis=1)
    return np.where(finite, np.argmax(rows, axis=1), NO_TOKEN).astype(np.int64)


def margin_of(rows: Rows) -> NDArray[np.float64]:
    """Largest minus second largest logit per row; 0 for a row with NaN or Inf or with one column."""
    values = rows.astype(np.float64)
    if len(values) == 0 or values.shape[1] < 2:
        return np.zeros(len(values))
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(values).all(axis=1))
    top = np.partition(np.where(finite[:, None], values, 0.0), -2, axis=1)[:, -2:]
    with np.errstate(over="ignore"):
        margin: NDArray[np.float64] = np.minimum(top[:, 1] - top[:, 0], np.finfo(np.float64).max)
    return margin


def compare_logits(
    reference: Rows,
    logits: Rows,
    *,
    run_id: str | None,
    reference_id: str,
    cell: Cell,
    leg: Leg,
    prompt_id: str,
    phase: str,
    positions: Sequence[int],
) -> LogitsComparison:
    """The record of one comparison. Row i of both arrays belongs to ``positions[i]``; values are real numbers (see
    ``real_logits``), (n_positions, n_columns)."""
    if len(positions) != len(logits):
        raise RunnerError(
            f"{prompt_id}: logits and positions differ in number", found=str(len(logits)), expected=str(len(positions))
        )
    quality = compare_rows(reference, logits)
    return LogitsComparison(
        run_id=run_id,
        reference_id=reference_id,
        cell=cell,
        leg=leg,
        prompt_id=prompt_id,
        phase=phase,
        positions=tuple(int(p) for p in positions),
        relative_l2=tuple(quality.relative_l2.tolist()),
        snr_db=tuple(quality.snr_db.tolist()),
        kl_nats=tuple(quality.kl_nats.tolist()),
        argmax=tuple(quality.argmax.tolist()),
        reference_argmax=tuple(quality.reference_argmax.tolist()),
        reference_margin=tuple(quality.reference_margin.tolist()),
    )


def nll_nats(logits: Rows, tokens: Sequence[int]) -> NDArray[np.float64]:
    """-ln p(tokens[i]) under softmax of row i; NaN where the row is not finite."""
    if len(logits) != len(tokens):
        raise RunnerError("one token per row of logits is needed", found=str(len(tokens)), expected=str(len(logits)))
    with np.errstate(all="ignore"):
        log_p = _log_softmax(logits.astype(np.float64))
    return -log_p[np.arange(len(tokens)), np.asarray(tokens, dtype=np.int64)]


def perplexity(nll_sum: float, n_scored: int) -> float | None:
    """exp(nll_sum / n_scored), natural logarithm. None for no token; inf where it is too large for a float."""
    if n_scored <= 0:
        return None
    try:
        return math.exp(nll_sum / n_scored)
    except OverflowError:
        return math.inf
