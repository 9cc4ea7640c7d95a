"""Hand-made journals through the whole gate: journal, limits, verdict, exit code, documents."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from harness.record.vocabulary import EXIT_CODES, Family, Status
from harness.results.documents import junit_xml, to_markdown, verdict_json, write_documents
from harness.results.gate import gate

EXPECTED = {
    "perf_pass": (Status.PASS, 0, Status.PASS),
    "perf_fail": (Status.FAIL, 10, Status.FAIL),
    "perf_inconclusive": (Status.INCONCLUSIVE, 13, Status.INCONCLUSIVE),
    "perf_invalid_constant": (Status.INVALID, 12, Status.INVALID),
    "perf_invalid_emulated": (Status.INVALID, 12, Status.INVALID),
    "infra": (Status.INFRA, 11, Status.PASS),
    "roof_pass": (Status.PASS, 0, Status.PASS),
    "roof_fail": (Status.FAIL, 10, Status.FAIL),
    "roof_invalid": (Status.PASS, 0, Status.PASS),
}
"""Journal to: status of the run, exit code, status of decode_tps (two healthy runs of ``infra`` are fast enough)."""
ELEMENT = {
    Status.PASS: None,
    Status.FAIL: "failure",
    Status.INFRA: "error",
    Status.INVALID: "skipped",
    Status.INCONCLUSIVE: "skipped",
    Status.NOT_COVERED: "skipped",
}


def decode_verdict(verdict):
    (found,) = [v for v in verdict.verdicts if v.metric == "decode_tps"]
    return found


def test_the_committed_journals_are_what_the_generator_writes(make, journals, tmp_path):
    make.write(tmp_path)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    committed = {p.relative_to(journals): p.read_bytes() for p in journals.rglob("*.jsonl")}
    assert written == committed


def test_every_journal_has_an_expected_verdict(journals):
    assert {path.name for path in journals.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_and_exit_code_of_each_journal(name, journals, performance_limits):
    status, exit_code, decode = EXPECTED[name]
    verdict = gate(journals / name, performance_limits)
    assert verdict.status is status
    assert EXIT_CODES[verdict.status] == exit_code
    assert decode_verdict(verdict).status is decode


@pytest.mark.parametrize(
    ("name", "status", "exit_code", "percent"),
    [
        ("roof_pass", Status.PASS, 0, 80.0),
        ("roof_fail", Status.FAIL, 10, 1e11 / 30e-3 / 62.5e9),
        ("roof_invalid", Status.INVALID, 12, 125.0),
    ],
)
def test_a_gate_on_efficiency_passes_fails_and_refuses(name, status, exit_code, percent, journals):
    """10^9 bytes a token at 50, 33.3 and 50 tokens/s, of 62.5, 62.5 and 40 GB/s; over 100 % is no measurement."""
    verdict = gate(journals / name, journals.parent / "limits_efficiency.toml")
    (found,) = [v for v in verdict.verdicts if v.metric == "decode_efficiency_percent"]
    assert found.value == pytest.approx(percent, rel=1e-6)
    assert found.status is status
    assert EXIT_CODES[verdict.status] == exit_code
    if status is Status.INVALID:
        assert found.reason.startswith("measurement_fault")


@pytest.mark.parametrize("name", EXPECTED)
def test_junit_shows_each_verdict_as_pytest_would(name, journals, performance_limits):
    verdict = gate(journals / name, performance_limits)
    suite = ET.fromstring(junit_xml(verdict)).find("testsuite")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert len(cases) == len(verdict.verdicts)
    for v in verdict.verdicts:
        case = cases[f"{v.metric}[SYNTHETIC-1]"]
        marks = [child.tag for child in case if child.tag != "properties"]
        assert marks == ([ELEMENT[v.status]] if ELEMENT[v.status] else [])
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        assert properties["verdict"] == v.status
        assert properties["source"] == "synthetic"
    counts = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    assert counts["failures"] == sum(v.status is Status.FAIL for v in verdict.verdicts)
    assert counts["errors"] == sum(v.status is Status.INFRA for v in verdict.verdicts)
    assert counts["tests"] == len(verdict.verdicts)


def test_a_failing_speed_says_by_how_much(journals, performance_limits):
    """Gaps of 29.8 to 30.2 ms are 33.1 to 33.6 tokens/s; the limit is 40."""
    found = decode_verdict(gate(journals / "perf_fail", performance_limits))
    assert found.value == pytest.approx(1000 / 30.0)
    assert 1000 / 30.2 <= found.interval[0] <= found.interval[1] <= 1000 / 29.8 + 1e-9
    assert found.n_samples == 6
    assert "outside ≥ 40" in found.reason


def test_the_inconclusive_interval_holds_the_limit(journals, performance_limits):
    found = decode_verdict(gate(journals / "perf_inconclusive", performance_limits))
    assert found.interval[0] < 40.0 < found.interval[1]


def test_constant_output_at_500_tokens_a_second_is_invalid_and_says_why(journals, performance_limits):
    found = decode_verdict(gate(journals / "perf_invalid_constant", performance_limits))
    assert found.value == pytest.approx(500.0)
    assert "non_constant_output" in found.reason
    assert "prompt_sensitivity" in found.reason


def test_constant_output_fails_a_gate_that_requires_accuracy(journals, performance_limits):
    required = {Family.ACCURACY, Family.PERFORMANCE}
    verdict = gate(journals / "perf_invalid_constant", performance_limits, required=required)
    assert verdict.status is Status.FAIL
    assert any(place.startswith("non_constant_output @") for place in verdict.decided_by)


def test_emulated_speed_is_named_so(journals, performance_limits):
    found = decode_verdict(gate(journals / "perf_invalid_emulated", performance_limits))
    assert found.reason == "emulated"


def test_a_lost_phone_is_named_in_the_verdict(journals, performance_limits):
    verdict = gate(journals / "infra", performance_limits)
    assert verdict.decided_by == ("runs_completed @ synthetic-llama-w8a16-kv8-SM8650",)
    assert "run infra-2: PhoneLostError: the phone went away twice" in to_markdown(verdict)


@pytest.mark.parametrize("name", EXPECTED)
def test_synthetic_data_is_never_a_release_verdict(name, journals, performance_limits):
    verdict = gate(journals / name, performance_limits, release=True)
    assert verdict.status is Status.INVALID
    assert verdict.decided_by == ("synthetic data",)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_document_of_synthetic_data_is_watermarked(name, journals, performance_limits):
    verdict = gate(journals / name, performance_limits)
    assert "SYNTHETIC DATA" in to_markdown(verdict)
    assert verdict_json(verdict)["synthetic"] is True
    assert "SYNTHETIC DATA" in verdict_json(verdict)["watermark"]
    properties = {p.get("name"): p.get("value") for p in ET.fromstring(junit_xml(verdict)).iter("property")}
    assert "SYNTHETIC DATA" in properties["watermark"]


def test_the_documents_are_written_whole(journals, performance_limits, tmp_path):
    verdict = gate(journals / "perf_fail", performance_limits)
    out = tmp_path / "out"
    write_documents(verdict, markdown=out / "v.md", json_file=out / "v.json", junit=out / "v.xml")
    assert sorted(p.name for p in out.iterdir()) == ["v.json", "v.md", "v.xml"]
    data = json.loads((out / "v.json").read_text())
    assert data["schema"] == "snapgate.verdict/1"
    assert data["status"] == "FAIL"
    assert data["exit_code"] == 10
    assert len(data["verdicts"]) == len(verdict.verdicts)
    assert (out / "v.md").read_text().startswith("# SnapGate verdict: FAIL (exit code 10)\n")
