"""The rules that turn a measurement into a status, and statuses into the run's."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from harness.measure.metrics import METRICS
from harness.record.run import Cell
from harness.record.verdict import Limit, Measurement
from harness.record.vocabulary import Family, Source, Status
from harness.results.documents import junit_xml, to_markdown, verdict_json
from harness.results.judge import judge
from harness.soc import KvPrecision, Precision

GEN3 = Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")
ELITE = Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8750")


def measured(metric="decode_tps", value=50.0, **changes):
    fields = {
        "metric": metric,
        "cell": GEN3,
        "source": Source.PHONE,
        "serial": "P1",
        "value": value,
        "samples": (49.0, 50.0, 51.0),
        "interval": (49.0, 51.0) if METRICS[metric].sampled else None,
        "run_ids": ("r1",),
        "reason": None,
        "refuted_by": (),
        "error": None,
    }
    return Measurement(**{**fields, **changes})


def limit(metric="decode_tps", minimum=None, maximum=None):
    return Limit(metric=metric, minimum=minimum, maximum=maximum, reason="test", date="2026-01-01")


def status_of(measurement, *limits, required=(Family.PERFORMANCE, Family.ACCURACY)):
    verdict = judge([measurement], limits, required=required)
    (found,) = [v for v in verdict.verdicts if v.serial is not None]
    return found.status


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((40.0, 51.0), Status.PASS),  # touches the limit from the good side
        ((49.0, 51.0), Status.PASS),
        ((39.9, 51.0), Status.INCONCLUSIVE),
        ((30.0, 40.0), Status.INCONCLUSIVE),  # touches from the bad side: 40 itself would pass
        ((30.0, 39.9), Status.FAIL),
    ],
)
def test_a_sampled_metric_is_judged_by_its_whole_interval(interval, expected):
    assert status_of(measured(interval=interval), limit(minimum=40.0)) is expected


def test_a_maximum_is_judged_from_above():
    assert status_of(measured("ttft_ms", interval=(90.0, 110.0)), limit("ttft_ms", maximum=120.0)) is Status.PASS
    assert status_of(measured("ttft_ms", interval=(90.0, 110.0)), limit("ttft_ms", maximum=80.0)) is Status.FAIL


@pytest.mark.parametrize("value", [50.0, 1.0])
def test_two_samples_are_too_few_for_speed_whether_good_or_bad(value):
    m = measured(value=value, samples=(value, value), interval=(value, value))
    assert status_of(m, limit(minimum=40.0)) is Status.INCONCLUSIVE


@pytest.mark.parametrize(("value", "expected"), [(36.5, Status.PASS), (36.49, Status.FAIL)])
def test_an_exact_metric_is_judged_by_its_value_from_one_sample(value, expected):
    m = measured("decode_snr_db", value, samples=(value,))
    assert status_of(m, limit("decode_snr_db", minimum=36.5)) is expected


def test_a_maximum_over_repetitions_has_no_interval_and_is_judged_by_its_value():
    m = measured("itl_max_ms", 30.0, interval=None)
    assert status_of(m, limit("itl_max_ms", maximum=29.0)) is Status.FAIL
    assert status_of(m, limit("itl_max_ms", maximum=31.0)) is Status.PASS


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_never_passes(metric, bad):
    for bound in (limit(metric, minimum=-1e300), limit(metric, maximum=1e300)):
        verdict = judge([measured(metric, bad)], [bound], required=[METRICS[metric].family])
        assert verdict.status is Status.FAIL
        verdict_json(verdict)
        to_markdown(verdict)
        junit_xml(verdict)


def test_a_sample_or_an_interval_that_is_no_number_never_passes():
    assert status_of(measured(samples=(49.0, math.nan, 51.0)), limit(minimum=40.0)) is Status.FAIL
    assert status_of(measured(interval=(math.nan, 51.0)), limit(minimum=40.0)) is Status.FAIL


def test_a_nan_is_a_failure_even_without_a_limit():
    assert judge([measured("relative_l2", math.nan)], [], required=[Family.ACCURACY]).status is Status.FAIL


def test_nothing_measured_is_not_covered_and_not_a_pass():
    verdict = judge([], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    assert verdict.status is Status.NOT_COVERED
    assert verdict.decided_by == ("nothing required was measured",)


def test_a_metric_without_a_limit_is_not_covered():
    verdict = judge([measured()], [], required=[Family.PERFORMANCE])
    assert verdict.status is Status.NOT_COVERED
    assert verdict.verdicts[0].reason == "no limit"


def test_a_required_limit_without_a_measurement_is_not_covered():
    verdict = judge([measured()], [limit(minimum=40.0), limit("ttft_ms", maximum=1.0)], required=[Family.PERFORMANCE])
    assert verdict.status is Status.NOT_COVERED
    assert verdict.decided_by == ("ttft_ms @ m-w8a16-kv8-SM8650",)


def test_a_limit_of_a_family_that_is_not_required_may_go_unmeasured():
    limits = [limit(minimum=40.0), limit("decode_snr_db", minimum=1.0)]
    assert judge([measured()], limits, required=[Family.PERFORMANCE]).status is Status.PASS


def test_a_required_family_of_which_nothing_was_measured_is_not_covered():
    verdict = judge([measured()], [limit(minimum=40.0)], required=[Family.PERFORMANCE, Family.MEMORY])
    assert verdict.status is Status.NOT_COVERED
    assert verdict.decided_by == ("peak_rss_bytes @ m-w8a16-kv8-SM8650",)


def test_what_a_phone_lacks_and_another_phone_of_the_cell_has_is_no_gap():
    lacking = measured(value=None, samples=(), interval=None, serial="P2", reason="no stamps")
    verdict = judge([measured(), lacking], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    assert verdict.status is Status.PASS


def test_a_value_that_could_not_be_measured_anywhere_is_a_gap():
    lacking = measured(value=None, samples=(), interval=None, reason="no stamps")
    verdict = judge([lacking], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    assert verdict.status is Status.NOT_COVERED
    assert verdict.verdicts[0].reason == "no stamps"


def test_one_bad_phone_of_two_decides():
    slow = measured(value=10.0, interval=(9.0, 11.0), serial="P2")
    assert judge([measured(), slow], [limit(minimum=40.0)], required=[Family.PERFORMANCE]).status is Status.FAIL


def test_each_cell_is_judged_and_the_worse_one_decides():
    bad = measured(value=10.0, interval=(9.0, 11.0), cell=ELITE)
    verdict = judge([measured(), bad], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    assert {(v.cell.part, v.status) for v in verdict.verdicts} == {("SM8650", Status.PASS), ("SM8750", Status.FAIL)}
    assert verdict.decided_by == ("decode_tps @ m-w8a16-kv8-SM8750",)


def test_a_gap_in_one_cell_is_not_filled_by_another():
    other = measured("ttft_ms", cell=ELITE, interval=(1.0, 2.0))
    verdict = judge([measured(), other], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    assert verdict.status is Status.NOT_COVERED
    assert verdict.decided_by == ("decode_tps @ m-w8a16-kv8-SM8750",)


def test_a_refuted_figure_is_invalid_however_good():
    assert status_of(measured(refuted_by=("clock: slept",)), limit(minimum=40.0)) is Status.INVALID


def test_wrong_output_fails_accuracy_and_only_voids_speed():
    wrong = ("non_constant_output: all tokens are 0",)
    assert status_of(measured("top1_agreement", 1.0, refuted_by=wrong), limit("top1_agreement", minimum=0.9)) is (
        Status.FAIL
    )
    assert status_of(measured(refuted_by=wrong), limit(minimum=40.0)) is Status.INVALID


def test_cpu_placement_fails_placement_without_any_limit():
    m = measured("cpu_nodes", 3.0, refuted_by=("cpu_placement: 3 nodes on the CPU",))
    assert judge([m], [], required=[Family.PLACEMENT]).status is Status.FAIL


@pytest.mark.parametrize("status", [Status.FAIL, Status.INFRA])
def test_a_failed_run_decides_whatever_is_required(status):
    failed = measured("runs_completed", 0.5, error=status, reason="run r2: PhoneLostError: gone")
    verdict = judge([measured(), failed], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    assert verdict.status is status


def test_a_metric_that_is_missing_because_the_lab_failed_is_infra():
    failed = measured("runs_completed", 0.0, error=Status.INFRA, reason="run r1: PhoneLostError: gone")
    verdict = judge([failed], [limit(minimum=40.0)], required=[Family.PERFORMANCE])
    (missing,) = [v for v in verdict.verdicts if v.metric == "decode_tps"]
    assert missing.status is Status.INFRA
    assert missing.reason == "not measured: run r1: PhoneLostError: gone"


@pytest.mark.parametrize(
    ("present", "decides"),
    [
        ([Status.PASS, Status.NOT_COVERED], Status.NOT_COVERED),
        ([Status.NOT_COVERED, Status.INCONCLUSIVE], Status.INCONCLUSIVE),
        ([Status.INCONCLUSIVE, Status.INVALID], Status.INVALID),
        ([Status.INVALID, Status.INFRA], Status.INFRA),
        ([Status.INFRA, Status.FAIL], Status.FAIL),
    ],
)
def test_the_worst_required_status_decides(present, decides):
    make = {
        Status.PASS: measured("decode_tps"),
        Status.NOT_COVERED: measured("ttft_ms", value=None, samples=(), interval=None),
        Status.INCONCLUSIVE: measured("tpot_ms", samples=(1.0,)),
        Status.INVALID: measured("load_ms", refuted_by=("clock: slept",)),
        Status.INFRA: measured("itl_p50_ms", error=Status.INFRA),
        Status.FAIL: measured("itl_p90_ms", error=Status.FAIL),
    }
    limits = [limit(make[s].metric, minimum=1.0) for s in present]
    assert judge([make[s] for s in present], limits, required=[Family.PERFORMANCE]).status is decides


def test_release_requires_speed_and_an_emulator_cannot_give_it():
    accurate = measured("decode_snr_db", 50.0, source=Source.VIRTUAL)
    placed = measured("cpu_nodes", 0.0, source=Source.VIRTUAL)
    emulated = measured(source=Source.VIRTUAL, refuted_by=("emulated",))
    limits = [limit("decode_snr_db", minimum=40.0), limit("cpu_nodes", maximum=0.0)]
    daily = judge([accurate, placed, emulated], limits)
    assert daily.status is Status.PASS
    assert "speed: not judged (emulated)" in daily.notes
    release = judge([accurate, placed, emulated], limits, release=True)
    assert release.status is Status.INVALID
    assert release.decided_by == ("decode_tps @ m-w8a16-kv8-SM8650",)


def test_release_without_any_speed_is_not_covered():
    found = [measured("decode_snr_db", 50.0), measured("cpu_nodes", 0.0)]
    limits = [limit("decode_snr_db", minimum=40.0), limit("cpu_nodes", maximum=0.0)]
    assert judge(found, limits).status is Status.PASS
    assert judge(found, limits, release=True).status is Status.NOT_COVERED


def test_a_damaged_journal_is_infra_at_best():
    verdict = judge([measured()], [limit(minimum=40.0)], required=[Family.PERFORMANCE], damaged=["a.jsonl: cut short"])
    assert verdict.status is Status.INFRA
    assert verdict.decided_by == ("journal: a.jsonl: cut short",)
    bad = measured(value=10.0, interval=(9.0, 11.0))
    worse = judge([bad], [limit(minimum=40.0)], required=[Family.PERFORMANCE], damaged=["a.jsonl: cut short"])
    assert worse.status is Status.FAIL


def test_a_message_with_control_characters_and_pipes_survives_in_every_document():
    m = measured("runs_completed", 0.0, error=Status.FAIL, reason="a\x00b | c\nd\x1b")
    verdict = judge([m], [])
    case = ET.fromstring(junit_xml(verdict)).find(".//failure")
    assert "a�b | c" in case.get("message")
    (row,) = [line for line in to_markdown(verdict).splitlines() if "runs_completed | m-" in line]
    assert "\\|" in row
