"""``snapgate gate --ab``: from a journal of interleaved runs to a verdict and an exit code."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.errors import UserError
from harness.journal import Journal, read_journal
from harness.record.run import RunError
from harness.record.vocabulary import Source, Status
from harness.results.ab import AB_METRICS, judge_ab

GENERATOR = Path(__file__).resolve().parents[2] / "data" / "make_ab_journals.py"
EXPECTED = {
    "ab_pass": 0,
    "ab_faster": 0,
    "ab_fail": 10,
    "ab_infra": 11,
    "ab_invalid_emulated": 12,
    "ab_invalid_constant": 10,
    "ab_inconclusive": 13,
    "ab_short": 13,
}


@pytest.fixture(scope="module")
def ab():
    spec = importlib.util.spec_from_file_location("make_ab_journals", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(ab, tmp_path_factory):
    path = tmp_path_factory.mktemp("ab")
    ab.write(path)
    return path


def by_metric(verdict):
    return {v.metric: v for v in verdict.verdicts}


def test_every_golden_comparison_has_an_expected_verdict(ab):
    assert set(ab.JOURNALS) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_exit_code_of_each_golden_comparison(folder, name, capsys):
    assert main(["gate", "--ab", "--journal", str(folder / name)]) == EXPECTED[name]
    assert "SYNTHETIC DATA" in capsys.readouterr().out


def test_a_journal_keeps_its_arms(ab, folder):
    assert read_journal(folder / "ab_pass").arms == ab.comparison("ab_pass", **ab.JOURNALS["ab_pass"]).arms


def test_a_slower_candidate_fails_by_what_was_planted(ab):
    found = by_metric(judge_ab(ab.comparison("x", noise=0.001, slower=0.03)))
    assert {name for name, v in found.items() if v.status is Status.FAIL} == {"decode_tps", "itl_p50_ms", "itl_p90_ms"}
    assert found["decode_tps"].value == pytest.approx(3.0, abs=0.2)
    assert found["decode_tps"].interval[0] < 3.0 < found["decode_tps"].interval[1]
    assert found["ttft_ms"].status is Status.PASS


def test_what_is_worse_has_one_sign_for_times_and_rates(ab):
    found = by_metric(judge_ab(ab.comparison("x", noise=0.001, slower=0.03)))
    assert found["decode_tps"].value == pytest.approx(found["itl_p50_ms"].value, abs=0.01)


def test_a_drift_over_the_session_is_no_difference(ab):
    """Each run 1 % slower than the one before: 24 runs end 26 % slower."""
    assert judge_ab(ab.comparison("x", noise=0.001, drift=0.01)).status is Status.PASS


def test_a_larger_smallest_effect_lets_the_same_harm_pass(ab):
    journal = ab.comparison("x", noise=0.001, slower=0.03)
    assert judge_ab(journal, smallest=0.05).status is Status.PASS


def test_an_inconclusive_comparison_says_when_to_look_again(ab):
    found = by_metric(judge_ab(ab.comparison("x", noise=0.02)))
    assert found["decode_tps"].reason.endswith("look again after 20 pairs")


def test_at_the_end_of_the_budget_it_says_so(ab):
    found = by_metric(judge_ab(ab.comparison("x", noise=0.1, n_pairs=41)))
    assert found["decode_tps"].reason.endswith("the budget of pairs is used up")
    assert found["decode_tps"].n_samples == 40


def test_what_comes_after_a_decision_is_not_looked_at(ab):
    verdict = judge_ab(ab.comparison("x", noise=0.002, slower=0.2))
    assert verdict.status is Status.FAIL
    assert "latency: decided after 8 pairs; 4 more were not looked at" in verdict.notes


def changed(journal, index, **changes):
    runs = list(journal.runs)
    runs[index] = dataclasses.replace(runs[index], **changes)
    return dataclasses.replace(journal, runs=tuple(runs))


def test_a_lost_pair_is_left_out_and_the_rest_is_judged(ab):
    lost = RunError(status=Status.INFRA, kind="PhoneLostError", message="gone")
    verdict = judge_ab(changed(ab.comparison("x", noise=0.001), 2, error=lost))
    assert by_metric(verdict)["decode_tps"].status is Status.PASS
    assert "latency: 1 of 12 pairs are left out, the first is 1: PhoneLostError" in verdict.notes
    assert by_metric(verdict)["decode_tps"].n_samples == 8


def test_a_candidate_that_fails_on_its_own_fails_the_gate(ab):
    failed = RunError(status=Status.FAIL, kind="RunnerError", message="graph refused")
    journal = ab.comparison("x", noise=0.001)
    assert judge_ab(changed(journal, 1, error=failed)).status is Status.FAIL
    assert by_metric(judge_ab(changed(journal, 0, error=failed)))["decode_tps"].status is Status.PASS


def test_a_reboot_between_two_runs_voids_the_comparison(ab):
    journal = ab.comparison("x", noise=0.001)
    later = dataclasses.replace(journal.runs[7].device, boot_id="another")
    runs = tuple(dataclasses.replace(run, device=later) if i > 6 else run for i, run in enumerate(journal.runs))
    verdict = judge_ab(dataclasses.replace(journal, runs=runs))
    assert verdict.status is Status.INVALID
    assert by_metric(verdict)["decode_tps"].reason == "reboot: phone SYNTHETIC-1 booted before run x-07"


def unbalanced(arm):
    return dataclasses.replace(arm, arm="AB"[arm.position % 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda j: changed(j, 3, device=dataclasses.replace(j.runs[3].device, serial="OTHER")), "mixes phones"),
        (lambda j: changed(j, 3, workload="other"), "mixes workloads"),
        (lambda j: changed(j, 3, artifact_id="c" * 16), "several artifacts"),
        (lambda j: dataclasses.replace(j, arms=j.arms[:1] * 2), "not well formed"),
        (
            lambda j: dataclasses.replace(j, arms=tuple(unbalanced(a) for a in j.arms)),
            "not in balanced order",
        ),
        (lambda j: dataclasses.replace(j, arms=()), "holds no A/B comparison"),
    ],
)
def test_a_comparison_that_compares_nothing_is_refused(ab, change, message):
    with pytest.raises(UserError, match=message):
        judge_ab(change(ab.comparison("x", noise=0.001)))


def test_arms_without_a_second_run_make_no_pair(ab):
    journal = ab.comparison("x", noise=0.001)
    verdict = judge_ab(dataclasses.replace(journal, arms=journal.arms[:-1]))
    assert "latency: pair 11 is not whole" in verdict.notes


@pytest.mark.parametrize("smallest", [0.0, 1.0, -0.01])
def test_a_smallest_effect_out_of_range_is_refused(ab, smallest):
    with pytest.raises(UserError, match="smallest effect"):
        judge_ab(ab.comparison("x", noise=0.001), smallest=smallest)


def test_synthetic_data_never_releases(ab):
    assert judge_ab(ab.comparison("x", noise=0.001), release=True).status is Status.INVALID


def test_a_journal_of_phones_is_not_marked_synthetic(ab):
    journal = ab.comparison("x", noise=0.001)
    runs = tuple(dataclasses.replace(run, source=Source.PHONE) for run in journal.runs)
    sessions = tuple(dataclasses.replace(session, source=None) for session in journal.sessions)
    verdict = judge_ab(Journal(sessions=sessions, runs=runs, arms=journal.arms), release=True)
    assert verdict.status is Status.PASS
    assert {v.source for v in verdict.verdicts} == {Source.PHONE}


def test_the_documents_for_ci_are_written(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["gate", "--ab", "--journal", str(folder / "ab_fail"), "--out", str(out)]) == 10
    assert sorted(path.name for path in out.iterdir()) == ["junit.xml", "verdict.json", "verdict.md"]
    data = json.loads((out / "verdict.json").read_text())
    assert data["exit_code"] == 10
    assert {v["metric"] for v in data["verdicts"]} == set(AB_METRICS)


def test_the_smallest_effect_is_given_in_percent(folder, capsys):
    command = ["gate", "--ab", "--journal", str(folder / "ab_fail"), "--smallest-effect"]
    assert main([*command, "10"]) == 0
    assert main([*command, "150"]) == 20
