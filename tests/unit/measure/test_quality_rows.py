"""Rows of logits against the reference: figures by hand, and defined figures for rows that are no numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import special

from harness.errors import RunnerError
from harness.measure import quality
from harness.record.codec import to_json
from harness.record.comparison import Leg
from harness.record.run import Cell
from harness.record.runner import LogitsFile
from harness.soc import KvPrecision, Precision

CELL = Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")


def one(reference, logits):
    return quality.compare_rows(np.array([reference], dtype=float), np.array([logits], dtype=float))


def test_relative_l2_and_snr_by_hand():
    q = one([3.0, 4.0], [3.0, 4.5])  # error 0.5, size 5
    assert q.relative_l2[0] == pytest.approx(0.1)
    assert q.snr_db[0] == pytest.approx(20.0)


def test_kl_agrees_with_scipy_and_is_taken_from_the_reference():
    r, x = np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 0.0])
    q = one(r, x)
    assert q.kl_nats[0] == pytest.approx(special.rel_entr(special.softmax(r), special.softmax(x)).sum())
    assert q.kl_nats[0] != pytest.approx(special.rel_entr(special.softmax(x), special.softmax(r)).sum())


def test_argmax_and_margin():
    q = one([1.0, 5.0, 4.75], [1.0, 2.0, 9.0])
    assert (q.argmax[0], q.reference_argmax[0], q.reference_margin[0]) == (2, 1, 0.25)


def test_equal_rows_have_the_best_figures():
    q = one([1.0, 2.0], [1.0, 2.0])
    assert (q.relative_l2[0], q.snr_db[0], q.kl_nats[0]) == (0.0, 200.0, 0.0)


def test_an_all_zero_row_is_as_wrong_as_the_reference_is_large():
    q = one([1.0, 2.0, 2.0], [0.0, 0.0, 0.0])
    assert (q.relative_l2[0], q.snr_db[0]) == (1.0, 0.0)


def test_two_zero_rows_are_equal_and_a_zero_reference_is_never_near():
    assert one([0.0, 0.0], [0.0, 0.0]).snr_db[0] == 200.0
    q = one([0.0, 0.0], [1e-30, 0.0])
    assert (q.relative_l2[0], q.snr_db[0]) == (quality.RELATIVE_L2_WORST, -200.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["logits", "reference", "both"])
def test_a_row_that_is_not_finite_has_the_worst_figures_and_agrees_with_nothing(bad, side):
    good, broken = [1.0, 2.0, 3.0], [1.0, bad, 3.0]
    q = one(broken if side != "logits" else good, broken if side != "reference" else good)
    assert q.relative_l2[0] == quality.RELATIVE_L2_WORST
    assert q.snr_db[0] == -quality.SNR_CAP_DB
    assert q.kl_nats[0] == quality.KL_WORST_NATS
    assert q.argmax[0] == (quality.NO_TOKEN if side != "reference" else 2)
    assert q.reference_argmax[0] == (quality.NO_TOKEN if side != "logits" else 2)


def test_a_bad_row_does_not_spoil_its_neighbours():
    r = np.tile([3.0, 4.0], (130, 1))  # more rows than one block
    x = r + np.array([0.0, 0.5])
    x[70] = np.nan
    q = quality.compare_rows(r, x)
    assert q.snr_db.shape == (130,)
    assert np.delete(q.snr_db, 70) == pytest.approx(20.0)
    assert q.snr_db[70] == -200.0


def test_huge_finite_logits_give_finite_figures():
    q = one([1e308, -1e308], [-1e308, 1e308])
    assert np.isfinite([q.relative_l2[0], q.snr_db[0], q.kl_nats[0], q.reference_margin[0]]).all()
    assert q.snr_db[0] < 0


def test_no_rows_give_no_figures():
    assert quality.compare_rows(np.zeros((0, 3)), np.zeros((0, 3))).snr_db.shape == (0,)


def test_rows_of_another_shape_are_refused():
    with pytest.raises(RunnerError, match="shape"):
        quality.compare_rows(np.zeros((2, 3)), np.zeros((3, 3)))


def test_the_record_of_a_broken_comparison_can_be_journalled():
    record = quality.compare_logits(
        np.array([[1.0, 2.0]]), np.array([[np.nan, np.inf]]), run_id="r", reference_id="f", cell=CELL, leg=Leg.PHONE,
        prompt_id="p", phase="decode", positions=[7],
    )  # fmt: skip
    json.dumps(to_json(record), allow_nan=False)
    assert record.positions == (7,)
    assert record.argmax == (quality.NO_TOKEN,)


def logits_file(**changes):
    fields = {
        "file": "logits.bin", "offset_bytes": 4, "n_rows": 2, "n_columns": 3, "dtype": "ufixed16", "scale": 0.5,
        "zero_point": 10, "first_position": 0,
    }  # fmt: skip
    return LogitsFile(**{**fields, **changes})


def test_raw_logits_are_cut_out_at_their_offset_and_made_real():
    data = b"skip" + np.array([[10, 12, 14], [8, 10, 0]], dtype="<u2").tobytes()
    raw = quality.raw_logits(data, logits_file())
    assert raw.tolist() == [[10, 12, 14], [8, 10, 0]]
    assert quality.real_logits(raw, logits_file()).tolist() == [[0.0, 1.0, 2.0], [-1.0, 0.0, -5.0]]


@pytest.mark.parametrize(
    ("dtype", "code"), [("float16", "<f2"), ("float32", "<f4"), ("sfixed8", "i1"), ("ufixed8", "u1")]
)
def test_every_logits_dtype_is_read(dtype, code):
    rows = np.array([[1, 2, 3], [4, 5, 6]], dtype=code)
    spec = logits_file(offset_bytes=0, dtype=dtype, scale=2.0, zero_point=1)
    real = quality.real_logits(quality.raw_logits(rows.tobytes(), spec), spec)
    assert real[1].tolist() == ([4.0, 5.0, 6.0] if dtype.startswith("float") else [6.0, 8.0, 10.0])


def test_a_logits_file_that_is_too_short_is_refused():
    with pytest.raises(RunnerError, match=r"found: 15 bytes; expected: at least 16 bytes"):
        quality.raw_logits(b"0" * 15, logits_file())


def test_logits_of_an_unknown_type_or_without_a_scale_are_refused():
    with pytest.raises(RunnerError, match="unknown logits dtype"):
        quality.raw_logits(b"", logits_file(dtype="bfloat16"))
    with pytest.raises(RunnerError, match="without a scale"):
        quality.real_logits(np.zeros((1, 3), dtype=np.uint16), logits_file(scale=None))


def test_nll_by_hand():
    found = quality.nll_nats(np.array([[0.0, 0.0], [math.log(3.0), 0.0]]), [0, 1])
    assert found.tolist() == pytest.approx([math.log(2.0), math.log(4.0)])


def test_perplexity_is_the_exponential_of_the_mean():
    assert quality.perplexity(20.0, 10) == pytest.approx(math.e**2)
    assert quality.perplexity(0.0, 0) is None
    assert quality.perplexity(1e6, 1) == math.inf
    assert math.isnan(quality.perplexity(math.nan, 1))
