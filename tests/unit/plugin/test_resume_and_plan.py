"""A stopped session goes on where it stopped; and what a session would run is told before it runs."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli.verify import stored_journal
from harness.errors import ArtifactError, HostError, UserError
from harness.journal import End, Finished, Journal, JournalWriter, NotCovered, Plan, read_journal
from harness.plugin.case import Case
from harness.plugin.options import PhoneChoice, Settings, Spread
from harness.plugin.phones import NO_PHONES, PhoneList
from harness.plugin.plan import PlannedRun, plan_lines
from harness.plugin.resume import (
    comparison_so_far,
    recalled,
    refuse_another_reference,
    resume_entry,
    stopped_session,
)
from harness.plugin.share import Share
from harness.record.comparison import ReferenceFacts
from harness.record.run import Cell, RunError
from harness.record.vocabulary import Status
from harness.results.gate import judge_journal
from harness.run.tuning import read_tuning
from harness.soc import KvPrecision, Precision

DATA = Path(__file__).resolve().parents[2] / "data"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
OTHER = Cell(model="other", precision=Precision.FP16, kv=KvPrecision.KVFP16, part="SM8550")


def load(name):
    spec = importlib.util.spec_from_file_location(name, DATA / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make():
    return load("make_journals")


@pytest.fixture(scope="module")
def ab():
    return load("make_ab_journals")


def settings(results, **changes):
    plain = Settings(
        phones=PhoneChoice.AUTO,
        require_device=False,
        spread=Spread.ANY,
        release=False,
        adb_host="127.0.0.1",
        adb_port=1,
        results=results,
        artifacts=results,
        models=results,
        limits=results,
        journal=None,
    )
    return dataclasses.replace(plain, **changes)


def stopped(make, tmp_path, *, cut=True):
    """Three runs: the first finished, the second without its comparisons, the third broken off; a cell without a phone;
    a last line that was cut short."""
    runs = make.three_runs("s", (20.0, 20.1, 19.9, 20.2, 19.8, 20.0))
    broken = RunError(status=Status.INFRA, kind="KeyboardInterrupt", message="broken off")
    runs[2] = dataclasses.replace(runs[2], error=broken)
    session = dataclasses.replace(make.session("s"), required=("accuracy", "placement"))
    path = tmp_path / "journal" / "s-main.jsonl"
    writer = JournalWriter(path)
    for entry in (
        session,
        Plan(session_id="s", cells=(runs[0].cell, OTHER)),
        runs[0],
        Finished(session_id="s", cell=runs[0].cell, serial=None, workload="latency", run_id=runs[0].run_id),
        NotCovered(session_id="s", cell=OTHER, status=Status.NOT_COVERED, reason="no phone"),
        runs[1],
        runs[2],
    ):
        writer.append(entry)
    writer.close()
    if cut:
        with path.open("ab") as stream:
            stream.write(b'{"kind":"ru')
    return runs


def test_what_was_left_half_done_no_longer_counts_and_what_was_finished_does(make, tmp_path):
    runs = stopped(make, tmp_path)
    before = stopped_session(settings(tmp_path, resume="last"))
    assert before.damaged == ("s-main.jsonl: last line cut short after 11 bytes",)
    entry = resume_entry(before, NOW)
    assert entry.superseded == (runs[1].run_id, runs[2].run_id)
    again = NotCovered(session_id="s", cell=OTHER, status=Status.NOT_COVERED, reason="no phone")
    writer = JournalWriter(tmp_path / "journal" / "s-part2.jsonl")
    for item in (entry, again, End(session_id="s", broken=())):
        writer.append(item)
    writer.close()
    after = read_journal(tmp_path / "journal", session_id="s")
    assert [run.run_id for run in after.runs] == [runs[0].run_id]
    assert after.not_covered == (again,), "the same thing happened again, once"
    assert after.damaged == ()
    assert after.gaps == ()
    note = "the session was stopped and resumed once; 2 unfinished runs were made again"
    assert note in judge_journal(after, ()).notes


def test_the_files_of_a_resumed_session_read_one_by_one_make_the_same_journal(make, tmp_path):
    stopped(make, tmp_path)
    before = stopped_session(settings(tmp_path, resume="last"))
    again = NotCovered(session_id="s", cell=OTHER, status=Status.NOT_COVERED, reason="no phone")
    writer = JournalWriter(tmp_path / "journal" / "s-part2.jsonl")
    for item in (resume_entry(before, NOW), again, End(session_id="s", broken=())):
        writer.append(item)
    writer.close()
    names = {f"journal/{name}.jsonl": "0" * 64 for name in ("s-main", "s-part2")}
    manifest = SimpleNamespace(root=".", journal=names)
    assert stored_journal(tmp_path, manifest) == read_journal(tmp_path / "journal")


def test_a_run_that_failed_by_the_models_fault_is_never_superseded(make, tmp_path):
    journal = Journal(
        sessions=(make.session("s"),),
        runs=tuple(
            dataclasses.replace(run, error=RunError(status=Status.FAIL, kind="RunnerError", message="refused"))
            for run in make.three_runs("s", (20.0,) * 6)
        ),
    )
    assert resume_entry(journal, NOW).superseded == ()


def test_a_finished_run_is_recalled_for_its_own_case_and_artifact_only(make, tmp_path):
    runs = stopped(make, tmp_path, cut=False)
    journal = stopped_session(settings(tmp_path, resume="s"))
    case = Case(cell=runs[0].cell, serial=None)
    assert recalled(journal, case, "latency", runs[0].artifact_id)[0] == runs[0]
    for other, name in (
        (case, "accuracy"),
        (Case(cell=OTHER, serial=None), "latency"),
        (Case(cell=runs[0].cell, serial="A"), "latency"),
    ):
        with pytest.raises(KeyError):
            recalled(journal, other, name, runs[0].artifact_id)
    with pytest.raises(ArtifactError, match="not the one that the session began with"):
        recalled(journal, case, "latency", "f" * 16)


def test_a_session_that_ended_or_was_run_otherwise_is_not_resumed(make, tmp_path):
    stopped(make, tmp_path, cut=False)
    with pytest.raises(UserError, match="requires other families"):
        stopped_session(settings(tmp_path, resume="last", release=True))
    with pytest.raises(UserError, match="another kind of run"):
        stopped_session(settings(tmp_path, resume="last", ab=tmp_path))
    slow = read_tuning(["prefetch=off"], 2.0)
    with pytest.raises(UserError, match=r"sets the runner otherwise; found: pace_tps=2, prefetch=off; expected: none"):
        stopped_session(settings(tmp_path, resume="last", tuning=slow))
    with pytest.raises(UserError, match="has no session x"):
        stopped_session(settings(tmp_path, resume="x"))
    writer = JournalWriter(tmp_path / "journal" / "s.jsonl")
    writer.append(End(session_id="s", broken=()))
    writer.close()
    with pytest.raises(UserError, match="came to its end"):
        stopped_session(settings(tmp_path, resume="last"))


def test_each_part_of_a_session_writes_files_of_its_own():
    first = Share(session_id="s", phones=NO_PHONES)
    second = dataclasses.replace(first, part=1)
    assert [first.journal_name(), first.journal_name("gw0")] == ["s.jsonl", "s-gw0.jsonl"]
    assert [second.journal_name(), second.journal_name("gw0")] == ["s-part2.jsonl", "s-gw0-part2.jsonl"]
    assert Share.from_json(second.to_json()) == second


def test_arms_of_a_comparison_are_kept_and_its_warm_ups_are_not(ab, make):
    whole = ab.comparison("s", noise=0.01, n_pairs=3)
    warm_up = ab.arm_run(__import__("random").Random(1), "w", "s", "A", gap_ms=20.0)
    journal = dataclasses.replace(whole, runs=(warm_up, *whole.runs))
    assert resume_entry(journal, NOW).superseded == ("w",)
    assert comparison_so_far(journal, Case(cell=warm_up.cell, serial=None)) == Journal()


def phone(make, serial="A", *, virtual=False, part="SM8650"):
    return dataclasses.replace(make.device(virtual=virtual), serial=serial, part=part)


def phones(*found):
    return PhoneList(adb_host="", adb_port=0, phones=found, unusable=(), notes=(), lease_dir=None)


def history(make, tmp_path, serial, seconds, *, virtual=False):
    writer = JournalWriter(tmp_path / "journal" / f"h-{serial}.jsonl")
    for n, wall_s in enumerate(seconds):
        run = make.three_runs(f"h{serial}{n}", (20.0,) * 6, virtual=virtual)[0]
        device = dataclasses.replace(run.device, serial=serial, virtual=virtual)
        writer.append(dataclasses.replace(run, wall_s=wall_s, device=device))
    writer.close()
    return run.cell, run.workload


def test_time_is_the_median_of_earlier_runs_on_the_same_phone_else_on_its_like_else_unknown(make, tmp_path):
    cell, workload = history(make, tmp_path, "A", [30.0, 50.0, 40.0])
    history(make, tmp_path, "B", [100.0])
    history(make, tmp_path, "V", [7.0], virtual=True)
    run = PlannedRun(case=Case(cell=cell, serial=None), workload=workload, n_tests=3)

    def told(*found, **changes):
        return plan_lines([run], settings(tmp_path, **changes), phones(*found))

    assert told(phone(make, "A"))[0].endswith("A                      40 s")
    assert told(phone(make, "B"))[0].endswith("B                      1 min 40 s")
    assert told(phone(make, "C"))[0].endswith("45 s"), "median of 30, 40, 50, 100"
    assert told(phones=PhoneChoice.VIRTUAL)[0].endswith("a virtual phone        7 s")
    other = dataclasses.replace(run, workload="endurance")
    lines = plan_lines([run, other], settings(tmp_path), phones(phone(make, "A")))
    assert lines[1].endswith("time unknown: no earlier run")
    assert lines[2].startswith("2 runs; phone time 40 s and 1 runs of unknown time")


def test_a_cell_without_a_phone_is_named_and_takes_no_time(make, tmp_path):
    cell, workload = history(make, tmp_path, "A", [30.0])
    run = PlannedRun(case=Case(cell=cell, serial=None), workload=workload, n_tests=1)
    lines = plan_lines([run], settings(tmp_path), phones(phone(make, "A", part="SM8550")))
    assert "no phone of this SoC" in lines[0]
    assert "phone time 0 s" in lines[1]


def test_an_ab_comparison_takes_from_the_first_look_to_the_budget(make, tmp_path):
    cell, _ = history(make, tmp_path, "A", [30.0])
    journal = read_journal(tmp_path / "journal")
    writer = JournalWriter(tmp_path / "journal" / "h2.jsonl")
    writer.append(dataclasses.replace(journal.runs[0], run_id="x", workload="ab"))
    writer.close()
    run = PlannedRun(case=Case(cell=cell, serial=None), workload="ab", n_tests=6)
    (line, _) = plan_lines([run], settings(tmp_path), phones(phone(make, "A")))
    assert line.endswith("9 min 00 s to 41 min 00 s"), "2 + 16 runs, 2 + 80 runs"
    (line, _) = plan_lines([run], settings(tmp_path, ab_budget_s=600.0), phones(phone(make, "A")))
    assert line.endswith("9 min 00 s to 10 min 00 s")


def test_what_a_stopped_session_finished_is_shown_as_such(make, tmp_path):
    runs = stopped(make, tmp_path)
    run = PlannedRun(case=Case(cell=runs[0].cell, serial=None), workload="latency", n_tests=4)
    lines = plan_lines([run], settings(tmp_path, resume="last"), phones(phone(make)))
    assert lines[0].endswith("finished: not run again")


@pytest.mark.parametrize(
    ("workload", "names", "is_finished"),
    [
        ("endurance", [f"endurance-{n}" for n in range(7)], True),
        ("endurance", [f"endurance-{n}" for n in range(6)], False),
        ("sustained", ["sustained-0"], False),
        ("sustained", ["sustained-0", "cooldown"], True),
        ("longest", ["longest-512"], True),
        ("longest", ["sweep"], False),
    ],
)
def test_a_suite_of_several_runs_is_finished_with_its_last(make, tmp_path, workload, names, is_finished):
    runs = stopped(make, tmp_path)
    writer = JournalWriter(tmp_path / "journal" / "more.jsonl")
    for name in names:
        writer.append(Finished(session_id="s", cell=runs[0].cell, serial=None, workload=name, run_id=runs[0].run_id))
    writer.close()
    run = PlannedRun(case=Case(cell=runs[0].cell, serial=None), workload=workload, n_tests=1)
    virtual = dataclasses.replace(phone(make), virtual=True)
    lines = plan_lines([run], settings(tmp_path, resume="last"), phones(virtual))
    assert lines[0].endswith("finished: not run again") is is_finished


HERE = ReferenceFacts(
    reference_id="here", artifact_id="a", onnxruntime_version="1.23.0", cpu_model="This", cpu_flags=("avx2",),
    n_threads=2, optimization_level="disabled",
)  # fmt: skip
QUANTISED = Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"onnxruntime_version": "1.22.0"}, ("onnxruntime_version 1.22.0", "1.23.0")),
        ({"cpu_flags": ("avx2", "avx512_vnni")}, ("cpu_flags avx2, avx512_vnni", "avx2")),
        ({"n_threads": 8}, ("n_threads 8", "2")),
    ],
)
def test_a_reference_of_another_host_is_refused_for_quantised_models_only(change, told):
    there = dataclasses.replace(HERE, reference_id="there", cpu_model="That", **change)
    with pytest.raises(HostError, match=r"made on another host \(That\)") as refused:
        refuse_another_reference([HERE, there], HERE, QUANTISED)
    assert (refused.value.found, refused.value.expected) == told
    assert "start a new session here" in refused.value.next_step
    refuse_another_reference([there], HERE, OTHER)


def test_a_reference_of_another_host_of_the_same_class_is_taken():
    there = dataclasses.replace(HERE, reference_id="there", cpu_model="That")
    refuse_another_reference([there], HERE, QUANTISED)
