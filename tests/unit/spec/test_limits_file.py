"""``limits.toml``: what is read, what is refused, and which limit judges a cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.measure.metrics import METRICS
from harness.record.run import Cell
from harness.record.verdict import Against
from harness.soc import SOCS, KvPrecision, Precision
from harness.spec.limits import limit_for, load_limits

KNOWN = {"decode_tps": "higher", "ttft_ms": "lower", "dsp_arch_matches": "equal"}
CELL = Cell(model="tiny-llama", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")
SHIPPED = Path(__file__).resolve().parents[3] / "suites" / "limits.toml"


BASELINE = {"against": '"baseline"', "slack_percent": "5", "max_age_days": "30", "minimum": None, "slack": None}


def load(tmp_path, text):
    path = tmp_path / "limits.toml"
    path.write_text(text, encoding="utf-8")
    return load_limits(path, metrics=KNOWN)


def entry(**changes):
    fields = {"metric": '"decode_tps"', "minimum": "40.0", "reason": '"r"', "date": "2026-01-01"}
    fields |= {"source": '"s"', "slack": '"none"', **changes}
    return "[[limit]]\n" + "".join(f"{key} = {value}\n" for key, value in fields.items() if value is not None)


def test_a_limit_is_read_as_written(tmp_path):
    (limit,) = load(tmp_path, entry(model='"m"', precision='"fp16"', kv='"kvfp16"', soc='"gen3"', maximum="50"))
    assert (limit.metric, limit.minimum, limit.maximum, limit.reason, limit.date) == (
        "decode_tps", 40.0, 50.0, "r", "2026-01-01",
    )  # fmt: skip
    assert (limit.model, limit.precision, limit.kv, limit.soc) == ("m", "fp16", "kvfp16", "gen3")


def test_a_date_may_be_a_string(tmp_path):
    assert load(tmp_path, entry(date='"2026-02-03"'))[0].date == "2026-02-03"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": '"decode_tsp"'}, "unknown metric.*decode_tsp.*did you mean decode_tps"),
        ({"metric": None}, "metric is missing"),
        ({"metric": "5"}, "metric is not a text"),
        ({"reason": None}, "reason is missing"),
        ({"reason": '" "'}, "reason is not a text"),
        ({"date": None}, "date is missing"),
        ({"date": '"soon"'}, "date is not a date"),
        ({"date": "2026-01-01T00:00:00"}, "date is not a date"),
        ({"minimum": None}, "no bound"),
        ({"minimum": "nan"}, "minimum is not a number"),
        ({"minimum": "-inf"}, "minimum is not a number"),
        ({"minimum": "true"}, "minimum is not a number"),
        ({"minimum": '"40"'}, "minimum is not a number"),
        ({"maximum": "nan"}, "maximum is not a number"),
        ({"source": None}, "source is missing"),
        ({"slack": None}, "slack is missing"),
        ({"slack": '""'}, "slack is not a text"),
        ({"against": '"yesterday"'}, "unknown against"),
        ({"max_age_days": "3.0"}, "max_age_days means nothing for a limit against a value"),
        ({"against": '"baseline"'}, "minimum means nothing for a limit against a baseline"),
        ({**BASELINE, "slack_percent": None}, "slack_percent is missing"),
        ({**BASELINE, "slack_percent": "0"}, "slack_percent out of range"),
        ({**BASELINE, "max_age_days": "-1"}, "max_age_days out of range"),
        ({**BASELINE, "phone": '"any"'}, "unknown phone"),
        ({"proof": '"yes"'}, "proof is not one"),
        ({"proof": '{ of = "a", passed_on = [1], failed_on = [] }'}, "proof is not one"),
        ({"maximum": "39.0"}, "nothing can pass"),
        ({"minimum": None, "maximum": "50.0"}, "better is higher.*no minimum"),
        ({"metric": '"ttft_ms"'}, "better is lower.*no maximum"),
        ({"metric": '"dsp_arch_matches"'}, "better is equal.*no maximum"),
        ({"soc": '"gen9"'}, "unknown SoC.*gen9"),
        ({"precision": '"fp17"'}, "unknown precision.*fp17"),
        ({"kv": '"kv9"'}, "unknown kv.*kv9"),
        ({"model": '""'}, "model is not a text"),
        ({"minimun": "4"}, "unknown key.*minimun.*did you mean minimum"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_line(tmp_path, changes, message):
    text = "# a comment\n\n" + entry(metric='"dsp_arch_matches"', minimum="1", maximum="1") + "\n" + entry(**changes)
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path, text)
    assert "limits.toml:12" in str(caught.value)


def test_an_unknown_table_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"unknown key.*limits"):
        load(tmp_path, "[[limits]]\n")


def test_a_limit_table_that_is_no_list_is_refused(tmp_path):
    with pytest.raises(UserError, match="not a list of tables"):
        load(tmp_path, "[limit]\nmetric = 'decode_tps'\n")


def test_broken_toml_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(UserError, match=r"limits\.toml cannot be read as TOML.*line 1"):
        load(tmp_path, "[[limit\n")
    with pytest.raises(UserError, match="No such file or directory"):
        load_limits(tmp_path / "none.toml", metrics=KNOWN)


def test_a_header_inside_a_text_gives_no_wrong_line(tmp_path):
    text = entry(reason='"""\n[[limit]]\n"""') + entry(metric='"wrong"')
    with pytest.raises(UserError, match=r"limit 2 \(wrong\): unknown metric"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("fields", "matching"),
    [
        ({}, True),
        ({"soc": '"gen3"'}, True),
        ({"soc": '"GEN3"'}, True),
        ({"soc": '"SM8650"'}, True),
        ({"soc": '"sm8650"'}, True),
        ({"soc": '"gen2"'}, False),
        ({"model": '"tiny-llama"'}, True),
        ({"model": '"llama"'}, False),
        ({"precision": '"w8a16"'}, True),
        ({"precision": '"fp16"'}, False),
        ({"kv": '"kv8"'}, True),
        ({"kv": '"kv16"'}, False),
        ({"model": '"*"', "precision": '"*"', "kv": '"*"', "soc": '"*"'}, True),
    ],
)
def test_a_limit_matches_by_its_fields(tmp_path, fields, matching):
    assert (limit_for(load(tmp_path, entry(**fields)), "decode_tps", CELL) is not None) is matching


def test_the_most_specific_limit_wins_in_any_order(tmp_path):
    specific = entry(minimum="3.0", model='"tiny-llama"', soc='"gen3"')
    general = entry(minimum="1.0") + entry(minimum="2.0", soc='"gen3"')
    for text in (specific + general, general + specific):
        assert limit_for(load(tmp_path, text), "decode_tps", CELL).minimum == 3.0


def test_of_two_equally_specific_limits_the_later_wins(tmp_path):
    text = entry(minimum="1.0", soc='"gen3"') + entry(minimum="2.0", kv='"kv8"')
    assert limit_for(load(tmp_path, text), "decode_tps", CELL).minimum == 2.0


def test_a_limit_against_a_baseline_stands_beside_one_by_value(tmp_path):
    limits = load(tmp_path, entry(**BASELINE) + entry())
    found = limit_for(limits, "decode_tps", CELL, Against.BASELINE)
    assert (found.slack_percent, found.max_age_days, found.phone) == (5.0, 30.0, "same")
    assert limit_for(limits, "decode_tps", CELL).minimum == 40.0


def test_a_gate_is_tested_once_it_has_passed_good_and_failed_bad_data_as_it_is_now(tmp_path):
    (limit,) = load(tmp_path, entry())
    assert limit.untested == "never tried on known-good and known-bad data"

    def proved(passed, failed, of=limit.fingerprint):
        text = entry(proof=f'{{ of = "{of}", passed_on = {passed}, failed_on = {failed} }}')
        return load(tmp_path, text)[0].untested

    assert proved(["g"], ["b"]) is None
    assert proved(["g"], []) == "has never failed on known-bad data"
    assert proved([], ["b"]) == "has never passed on known-good data"
    assert proved(["g"], ["b"], of="0" * 12) == "changed since it was tried on known-good and known-bad data"
    (changed,) = load(tmp_path, entry(minimum="41"))
    assert changed.fingerprint != limit.fingerprint
    (reworded,) = load(tmp_path, entry(reason='"another"', date="2027-01-01"))
    assert reworded.fingerprint == limit.fingerprint


def test_the_shipped_limits_are_valid_and_name_no_speed():
    limits = load_limits(SHIPPED, metrics={name: metric.better for name, metric in METRICS.items()})
    assert {METRICS[limit.metric].family for limit in limits} == {"accuracy", "placement"}


@pytest.mark.parametrize("part", [soc.part for soc in SOCS])
@pytest.mark.parametrize(
    ("precision", "kv", "exact", "identity"),
    [
        (Precision.FP16, KvPrecision.KVFP16, True, False),
        (Precision.W8A16, KvPrecision.KV8, False, True),
        (Precision.W8A16, KvPrecision.KV16, False, True),
    ],
)
def test_exact_tokens_are_a_gate_for_fp16_only_and_identity_for_w8a16_only(part, precision, kv, exact, identity):
    limits = load_limits(SHIPPED, metrics={name: metric.better for name, metric in METRICS.items()})
    cell = Cell(model="tiny-llama", precision=precision, kv=kv, part=part)
    assert (limit_for(limits, "greedy_exact_fraction", cell) is not None) is exact
    assert (limit_for(limits, "prefill_decode_identical", cell) is not None) is identity
    margin = limit_for(limits, "greedy_mismatch_max_margin", cell)
    assert margin.maximum == (0.0 if exact else 0.1)


def test_limits_that_an_older_run_left_are_read_without_source_and_slack(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text(
        '[[limit]]\nmetric = "decode_tps"\nminimum = 40.0\nreason = "measured"\ndate = 2026-11-01\n', encoding="utf-8"
    )
    with pytest.raises(UserError, match="source is missing"):
        load_limits(path, metrics=KNOWN)
    (limit,) = load_limits(path, metrics=KNOWN, stored=True)
    assert (limit.minimum, limit.source, limit.slack) == (40.0, None, None)
    path.write_text('[[limit]]\nmetric = "decode_tps"\nminimum = 40.0\ndate = 2026-11-01\n', encoding="utf-8")
    with pytest.raises(UserError, match="reason is missing"):
        load_limits(path, metrics=KNOWN, stored=True)
