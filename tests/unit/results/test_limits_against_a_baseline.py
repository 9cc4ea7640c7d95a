"""Limits with ``against = "baseline"``: whose baseline, how old, how much worse; and gates that were never tried."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from harness.cli.main import main
from harness.journal import End, Journal, JournalWriter, Plan
from harness.record.codec import write_json
from harness.record.verdict import Against, GateProof, Limit
from harness.record.vocabulary import Family, Source, Status
from harness.results.baseline import promote
from harness.results.documents import to_markdown
from harness.results.gate import judge_journal, read_limits

PROMOTED = datetime(2026, 1, 1, tzinfo=UTC)
BASES = (20.0, 20.1, 19.9, 20.2, 19.8, 20.0)
LIMIT = Limit(
    metric="decode_tps",
    against=Against.BASELINE,
    slack_percent=5.0,
    max_age_days=30.0,
    reason="no release is slower",
    date="2026-01-01",
    source="s",
)
SPEED = frozenset({Family.PERFORMANCE})


def journal_of(make, *, slower=0.0, days=0.0, serial="PHONE-1", name="s"):
    bases = tuple(base * (1 + slower / 100) for base in BASES)
    runs = []
    for run in make.three_runs(name, bases):
        started = (datetime.fromisoformat(run.started_at) + timedelta(days=days)).isoformat()
        device = dataclasses.replace(run.device, serial=serial)
        runs.append(dataclasses.replace(run, source=Source.PHONE, started_at=started, device=device))
    session = dataclasses.replace(make.session(name), source=None)
    cells = tuple({run.cell for run in runs})
    return Journal(
        sessions=(session,),
        runs=tuple(runs),
        plans=(Plan(session_id=name, cells=cells),),
        ends=(End(session_id=name, broken=()),),
    )


def judged(make, new, limit=LIMIT, *, old=None, limits=()):
    baseline = promote(old or journal_of(make), reason="release 1", now=PROMOTED)
    journal = dataclasses.replace(new, baselines=(baseline,))
    verdict = judge_journal(journal, [limit, *limits], required=SPEED)
    (found,) = [v for v in verdict.verdicts if v.limit == limit]
    return verdict, found


@pytest.mark.parametrize(
    ("percent", "status"),
    [(0, Status.PASS), (-20, Status.PASS), (5, Status.INCONCLUSIVE), (12, Status.FAIL)],
)
def test_the_whole_interval_of_the_harm_decides_the_run(make, percent, status):
    verdict, found = judged(make, journal_of(make, slower=percent, days=1))
    assert (verdict.status, found.status, found.required) == (status, status, True)
    assert found.unit == "% worse"
    assert found.reason.find("the baseline is 1.0 days old") > 0


def test_a_baseline_that_is_too_old_decides_nothing_whenever_it_is_judged(make):
    verdict, found = judged(make, journal_of(make, slower=12, days=31))
    assert verdict.status is Status.INCONCLUSIVE
    assert "31.0 days old, at most 30 count" in found.reason
    assert judged(make, journal_of(make, slower=12, days=29))[1].status is Status.FAIL


def test_another_phone_is_incomparable_unless_the_limit_takes_any_of_the_soc(make):
    other = journal_of(make, slower=12, serial="PHONE-2")
    _, found = judged(make, other)
    assert found.status is Status.NOT_COVERED
    assert "incomparable: serial is PHONE-2, the baseline's PHONE-1" in found.reason
    assert judged(make, other, dataclasses.replace(LIMIT, phone="soc"))[1].status is Status.FAIL


def test_without_a_baseline_the_gate_is_not_covered(make):
    verdict = judge_journal(journal_of(make), [LIMIT], required=SPEED)
    (found,) = [v for v in verdict.verdicts if v.limit == LIMIT]
    assert (verdict.status, found.status) == (Status.NOT_COVERED, Status.NOT_COVERED)
    assert found.reason == "no baseline was given: name one with --baseline"


def test_a_limit_by_value_and_one_against_a_baseline_both_have_to_hold(make):
    floor = Limit(metric="decode_tps", minimum=1.0, reason="r", date="2026-01-01")
    verdict, found = judged(make, journal_of(make, slower=12, days=1), limits=[floor])
    assert verdict.status is Status.FAIL
    assert found.status is Status.FAIL
    assert {v.status for v in verdict.verdicts if v.limit == floor} == {Status.PASS}


def test_a_metric_that_was_not_measured_is_not_covered(make):
    steady = dataclasses.replace(LIMIT, metric="itl_p99_ms")
    journal = journal_of(make)
    runs = tuple(dataclasses.replace(run, log=dataclasses.replace(run.log, generations=())) for run in journal.runs)
    verdict, found = judged(make, dataclasses.replace(journal, runs=runs), steady, old=journal)
    assert (verdict.status, found.status) == (Status.NOT_COVERED, Status.NOT_COVERED)


def test_the_baseline_is_read_from_the_session_or_from_the_command(make, tmp_path, capsys):
    baseline = promote(journal_of(make), reason="release 1", now=PROMOTED)
    write_json(tmp_path / "baseline.json", baseline)
    new = journal_of(make, slower=12, days=1)
    for name, given in (("with", [baseline]), ("without", [])):
        writer = JournalWriter(tmp_path / name / "s.jsonl")
        for entry in (*new.sessions, *given, *new.plans, *new.runs, *new.ends):
            writer.append(entry)
        writer.close()
    limits = tmp_path / "limits.toml"
    limits.write_text(
        '[[limit]]\nmetric = "decode_tps"\nagainst = "baseline"\nslack_percent = 5\nmax_age_days = 30\n'
        'reason = "r"\ndate = 2026-01-01\nsource = "s"\n'
    )
    command = ["gate", "--release", "--limits", str(limits), "--journal"]
    assert main([*command, str(tmp_path / "with")]) == 10
    assert main([*command, str(tmp_path / "without")]) == 14
    assert main([*command, str(tmp_path / "without"), "--baseline", str(tmp_path / "baseline.json")]) == 10
    assert "gate untested: never tried on known-good and known-bad data" in capsys.readouterr().out


def test_an_untested_gate_is_named_beside_the_verdict_and_in_its_row(make):
    verdict, _ = judged(make, journal_of(make, days=1))
    assert verdict.status is Status.PASS
    assert "1 of 1 gates are untested (see `snapgate limits list`): decode_tps" in verdict.notes
    assert "gate untested: never tried" in to_markdown(verdict)
    proof = GateProof(of=LIMIT.fingerprint, passed_on=("g",), failed_on=("b",))
    verdict, _ = judged(make, journal_of(make, days=1), dataclasses.replace(LIMIT, proof=proof))
    assert not any("untested" in note for note in verdict.notes)
    assert "untested" not in to_markdown(verdict)


def test_gates_are_tried_on_good_and_bad_sessions_and_the_file_keeps_the_result(journals, performance_limits, tmp_path):
    limits = tmp_path / "limits.toml"
    limits.write_text("# kept \u2028 on one line\n" + performance_limits.read_text())
    command = ["limits", "prove", "--limits", str(limits), "--good", str(journals / "perf_pass")]
    assert main([*command, "--bad", str(journals / "perf_fail"), "--write"]) == 0
    proved = {limit.metric: limit for limit in read_limits(limits)}
    assert proved["decode_tps"].untested is None
    assert proved["decode_tps"].proof.failed_on == ("perf_fail",)
    assert proved["ttft_ms"].untested == "has never failed on known-bad data"
    assert limits.read_text().startswith("# kept \u2028 on one line\n")
    text = limits.read_text()
    assert main([*command, "--bad", str(journals / "perf_fail"), "--write"]) == 0
    assert limits.read_text() == text


def test_what_earlier_sessions_proved_is_kept_when_asked_for(journals, performance_limits, tmp_path):
    limits = tmp_path / "limits.toml"
    limits.write_text(performance_limits.read_text())
    prove = ["limits", "prove", "--limits", str(limits), "--write"]
    assert main([*prove, "--good", str(journals / "perf_pass")]) == 0
    assert main([*prove, "--add", "--bad", str(journals / "perf_fail")]) == 0
    proved = {limit.metric: limit for limit in read_limits(limits)}
    assert proved["decode_tps"].proof.passed_on == ("perf_pass",)
    assert proved["decode_tps"].untested is None
    limits.write_text(limits.read_text().replace("minimum = 40.0", "minimum = 41.0"))
    assert main([*prove, "--add", "--bad", str(journals / "perf_fail")]) == 0
    proved = {limit.metric: limit for limit in read_limits(limits)}
    assert proved["decode_tps"].proof.passed_on == (), "another limit now"
    assert main([*prove, "--bad", str(journals / "perf_fail")]) == 0
    assert {limit.proof and limit.proof.passed_on for limit in read_limits(limits)} <= {(), None}


def test_a_gate_that_fails_a_session_said_to_be_good_is_an_error(journals, performance_limits, capsys):
    command = ["limits", "prove", "--limits", str(performance_limits), "--good", str(journals / "perf_fail")]
    assert main(command) == 20
    assert "decode_tps of synthetic-llama: ≥ 40 on perf_fail" in capsys.readouterr().err


def test_a_refuted_session_proves_nothing(journals, performance_limits, tmp_path):
    limits = tmp_path / "limits.toml"
    limits.write_text(performance_limits.read_text())
    command = ["limits", "prove", "--limits", str(limits), "--good", str(journals / "perf_invalid_emulated")]
    assert main([*command, "--write"]) == 0
    assert {limit.untested for limit in read_limits(limits)} == {"never tried on known-good and known-bad data"}
