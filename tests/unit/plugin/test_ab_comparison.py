"""The producer of A/B runs: order, extension, and every reason to stop, with runs whose speeds are given."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
import sys
from pathlib import Path

import pytest

from harness.journal import Journal
from harness.measure.paired import LOOKS, arm_order
from harness.measure.selfcheck import MIN_COMPARED_TOKENS
from harness.plugin.comparison import EMULATED, ORDER, PHONE, ab_workload, run_comparison
from harness.record.ab import ArmRun, Comparison, ComparisonEnd
from harness.record.run import Conditions, RunError
from harness.record.vocabulary import Status
from harness.results.ab import judge_ab
from harness.results.gate import judge_journal
from harness.run.settle import settle

GENERATOR = Path(__file__).resolve().parents[2] / "data" / "make_ab_journals.py"


@pytest.fixture(scope="module")
def ab():
    spec = importlib.util.spec_from_file_location("make_ab_journals", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Bench:
    """A phone on a bench whose runs take what they are told; keeps what was journalled, in order."""

    def __init__(self, ab, *, noise, slower=0.0, virtual=False, prefix="s", change=lambda record, _: record):
        self.ab, self.noise, self.slower, self.virtual, self.change = ab, noise, slower, virtual, change
        self.prefix = prefix
        self.rng = random.Random(3)
        self.now = 0.0
        self.order = ""
        self.n_settled = 0
        self.entries = [ab.make.session("s")]

    def plan(self, **changes):
        template = self.ab.arm_run(self.rng, "t", "s", "B", gap_ms=20.0)
        plan = Comparison(
            session_id="s",
            comparison="latency",
            cell=template.cell,
            serial=template.device.serial,
            workload=template.workload,
            artifacts={"A": self.ab.A_ID, "B": self.ab.B_ID},
            order=ORDER,
            warm_up_runs=1,
            warm_ups=1,
            repetitions=3,
            looks=LOOKS,
            budget_pairs=40,
            budget_s=1e6,
            settle_s=300.0,
            smallest_effect=0.01,
        )
        return dataclasses.replace(plan, **changes)

    def run_arm(self, arm):
        n = len(self.order)
        self.order += arm
        self.now += 60.0
        gap = 20.0 * 2.718281828459045 ** self.rng.gauss(0.0, self.noise) * (1 + self.slower if arm == "B" else 1)
        record = self.ab.arm_run(self.rng, f"{self.prefix}-{n:02}", "s", arm, gap_ms=gap, virtual=self.virtual)
        record = self.change(record, n)
        self.entries.append(record)
        return record

    def settle(self):
        self.n_settled += 1

    def run(self, done=None, **changes):
        plan = self.plan(**changes)
        return run_comparison(
            plan,
            run_arm=self.run_arm,
            settle=self.settle,
            append=self.entries.append,
            clock=lambda: self.now,
            done=done,
        )

    def journal(self):
        def of(kind):
            return tuple(e for e in self.entries if type(e).__name__ == kind)

        return Journal(
            sessions=of("Session"),
            runs=of("RunRecord"),
            arms=of("ArmRun"),
            comparisons=of("Comparison"),
            comparison_ends=of("ComparisonEnd"),
        )


def test_arms_alternate_after_a_warm_up_of_each_and_each_block_is_settled(ab):
    bench = Bench(ab, noise=0.002)
    bench.run(budget_pairs=8)
    assert bench.order == "AB" + "ABBABAABBAABABBA"
    assert bench.order[2:] == arm_order(8)
    assert bench.n_settled == 4


def test_the_plan_stands_before_the_first_run_and_each_arm_after_its_own(ab):
    bench = Bench(ab, noise=0.002)
    bench.run(budget_pairs=2)
    kinds = [type(entry).__name__ for entry in bench.entries]
    assert kinds == ["Session", "Comparison", "RunRecord", "RunRecord", *["RunRecord", "ArmRun"] * 4, "ComparisonEnd"]
    assert [e.position for e in bench.entries if isinstance(e, ArmRun)] == [0, 1, 2, 3]


def test_a_clear_slow_down_ends_at_the_first_look_and_fails(ab):
    bench = Bench(ab, noise=0.002, slower=0.2)
    bench.run()
    assert len(bench.journal().arms) == 2 * LOOKS[0]
    assert bench.journal().comparison_ends[0].reason == "decided: FAIL"
    assert judge_journal(bench.journal(), ()).status is Status.FAIL


def test_equal_artifacts_pass_once_that_is_shown(ab):
    bench = Bench(ab, noise=0.002)
    bench.run()
    assert bench.journal().comparison_ends[0].reason == "decided: PASS"
    assert len(bench.journal().arms) < 2 * LOOKS[-1]
    assert judge_journal(bench.journal(), ()).status is Status.PASS


def test_what_stays_undecided_uses_the_budget_of_pairs_and_is_inconclusive(ab):
    bench = Bench(ab, noise=0.1)
    bench.run()
    assert len(bench.journal().arms) == 80
    assert bench.journal().comparison_ends[0].reason == "the budget of 40 pairs is used up"
    assert judge_journal(bench.journal(), ()).status is Status.INCONCLUSIVE


def test_a_budget_of_time_ends_between_pairs(ab):
    """60 s a run: 2 of warm-up and 2 of each pair. After 5 pairs 720 s are over."""
    bench = Bench(ab, noise=0.1)
    bench.run(budget_s=720.0)
    assert len(bench.journal().arms) == 10
    assert bench.journal().comparison_ends[0].reason == "the budget of 720 s is used up"
    verdict = judge_journal(bench.journal(), ())
    assert verdict.status is Status.INCONCLUSIVE
    assert any("8 are needed" in v.reason for v in verdict.verdicts)


def test_an_emulator_is_invalid_after_one_block(ab):
    bench = Bench(ab, noise=0.002, virtual=True)
    bench.run()
    assert len(bench.journal().arms) == 4
    assert bench.journal().comparison_ends[0].reason == "no pair can be judged: emulated"
    assert judge_journal(bench.journal(), ()).status is Status.INVALID


def test_a_reboot_ends_the_comparison_at_once(ab):
    """Run 7 is position 5 (two warm-ups before position 0): the second run of pair 2."""

    def reboot(record, n):
        return record if n < 7 else dataclasses.replace(record, device=dataclasses.replace(record.device, boot_id="2"))

    bench = Bench(ab, noise=0.002, change=reboot)
    bench.run()
    assert len(bench.journal().arms) == 6
    verdict = judge_journal(bench.journal(), ())
    assert verdict.status is Status.INVALID
    assert "booted before run s-07" in verdict.verdicts[0].reason


def test_a_candidate_that_breaks_fails_and_ends_it(ab):
    broken = RunError(status=Status.FAIL, kind="RunnerError", message="graph refused")
    bench = Bench(
        ab,
        noise=0.002,
        change=lambda record, _: dataclasses.replace(record, error=broken if record.artifact_id == ab.B_ID else None),
    )
    bench.run()
    assert len(bench.journal().arms) == 4
    assert judge_journal(bench.journal(), ()).status is Status.FAIL


def test_the_smallest_effect_is_that_of_the_plan(ab):
    bench = Bench(ab, noise=0.001, slower=0.03)
    bench.run(smallest_effect=0.05)
    assert judge_journal(bench.journal(), ()).status is Status.PASS
    assert judge_ab(bench.journal(), smallest=0.01).status is Status.FAIL


def test_whole_pairs_of_an_earlier_part_are_not_run_again(ab):
    """Stopped after 3 pairs and one more run: the half pair is left out, and the fifth pair is the next."""
    whole = Bench(ab, noise=0.1)
    whole.run(budget_pairs=6)
    arms = whole.journal().arms[:7]
    ids = {arm.run_id for arm in arms}
    part = Journal(
        comparisons=whole.journal().comparisons,
        runs=tuple(run for run in whole.journal().runs if run.run_id in ids),
        arms=arms,
    )
    bench = Bench(ab, noise=0.1, prefix="later")
    result = bench.run(done=part, budget_pairs=6)
    assert [arm.position for arm in result.arms] == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert bench.order == "AB" + arm_order(6)[8:]
    assert not any(isinstance(entry, Comparison) for entry in bench.entries)


def test_a_comparison_that_was_planned_and_has_no_run_is_not_covered(ab):
    bench = Bench(ab, noise=0.1)
    journal = Journal(sessions=(ab.make.session("s"),), comparisons=(bench.plan(),))
    assert judge_journal(journal, ()).status is Status.NOT_COVERED


def test_the_order_and_the_end_are_said_beside_the_verdict(ab):
    bench = Bench(ab, noise=0.002)
    bench.run()
    notes = " ".join(judge_journal(bench.journal(), ()).notes)
    assert "order ABBA BAAB" in notes
    assert "1 warm-up run of each, 1 warm-up and 3 repetitions a run" in notes
    assert "ended after" in notes


@pytest.mark.parametrize(("size", "n_repetitions"), [(PHONE, 3), (EMULATED, 1)])
def test_two_prompts_show_in_every_run_that_output_depends_on_them(size, n_repetitions):
    workload = ab_workload(((1, 2), (1, 2, 3, 4)), size)
    assert [len(prompt.tokens) for prompt in workload.prompts] == [4, 2]
    assert workload.expects_prompt_sensitivity
    assert (workload.prompts[0].warmups, workload.prompts[0].repetitions) == (1, n_repetitions)
    assert min(prompt.n_gen for prompt in workload.prompts) >= MIN_COMPARED_TOKENS


def conditions(*violations):
    return Conditions(
        battery_percent=None,
        battery_celsius=None,
        charging=None,
        thermal_status=None,
        memory_available_bytes=None,
        storage_available_bytes=None,
        uptime_s=None,
        violations=violations,
    )


@pytest.mark.parametrize(
    ("readings", "n_waits"),
    [
        ([()], 0),
        ([("thermal status 2",), ("battery 41.0 °C > 40 °C",), ()], 2),
        ([("charging",)], 0),
        ([("charging", "thermal status 2")], 0),
        ([("battery 12 % < 20 %",)], 0),
        ([("thermal status 2",)] * 10, 3),
    ],
)
def test_heat_is_waited_for_and_what_no_wait_mends_is_not(readings, n_waits):
    now, left = [0.0], [conditions(*texts) for texts in readings]
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        now[0] += seconds

    last = settle(lambda: left.pop(0), longest_s=30.0, sleep=sleep, clock=lambda: now[0])
    assert len(waits) == n_waits
    assert last.violations == readings[min(n_waits, len(readings) - 1)]


def test_an_entry_of_each_kind_survives_the_journal(ab, tmp_path):
    from harness.journal import JournalWriter, read_journal

    bench = Bench(ab, noise=0.002)
    bench.run(budget_pairs=2)
    writer = JournalWriter(tmp_path / "s.jsonl")
    for entry in bench.entries:
        writer.append(entry)
    writer.close()
    assert read_journal(tmp_path) == bench.journal()
    assert isinstance(read_journal(tmp_path).comparison_ends[0], ComparisonEnd)
