"""Which session of a journal folder is judged, and with which families."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from harness.errors import UserError
from harness.journal import End, JournalWriter, Plan, read_journal
from harness.record.vocabulary import Family, Status
from harness.results.gate import gate


def test_the_newest_session_is_judged_and_said(make, journals, performance_limits, tmp_path):
    for name, started in (("old", "2026-01-01T00:00:00+00:00"), ("new", "2026-01-02T00:00:00+00:00")):
        writer = JournalWriter(tmp_path / f"{name}.jsonl")
        writer.append(dataclasses.replace(make.session(name), started_at=started))
        for run in make.three_runs(name, make.SLOW if name == "old" else make.STEADY):
            writer.append(run)
        writer.close()
    verdict = gate(tmp_path, performance_limits)
    assert verdict.status is Status.PASS
    assert "the newest of 2 sessions was judged: new" in verdict.notes
    assert {run_id for v in verdict.verdicts for run_id in v.run_ids} == {"new-0", "new-1", "new-2"}
    assert gate(tmp_path, performance_limits, session_id="old").status is Status.FAIL


def test_two_sessions_in_one_file_are_refused(journals, performance_limits, tmp_path):
    path = tmp_path / "both.jsonl"
    path.write_bytes(b"".join(p.read_bytes() for p in sorted(journals.glob("perf_[pf]a*/*.jsonl"))))
    with pytest.raises(UserError, match="several sessions"):
        gate(path, performance_limits)


def test_an_empty_folder_is_an_error(performance_limits, tmp_path):
    with pytest.raises(UserError, match="no journal"):
        gate(tmp_path, performance_limits)


def test_a_journal_without_runs_is_not_covered(make, performance_limits, tmp_path):
    writer = JournalWriter(tmp_path / "s.jsonl")
    writer.append(make.session("s"))
    writer.close()
    assert gate(tmp_path, performance_limits).status is Status.NOT_COVERED


def test_the_session_says_which_families_are_required_unless_the_caller_does(journals, performance_limits):
    assert gate(journals / "perf_pass", performance_limits).status is Status.PASS
    default = gate(journals / "perf_pass", performance_limits, required={Family.ACCURACY, Family.PLACEMENT})
    assert default.status is Status.NOT_COVERED


def test_an_unknown_required_family_is_refused(make, performance_limits, tmp_path):
    writer = JournalWriter(tmp_path / "s.jsonl")
    writer.append(make.session("s", required=("beauty",)))
    writer.close()
    with pytest.raises(UserError, match="beauty"):
        gate(tmp_path, performance_limits)


def test_a_journal_cut_short_is_infra(journals, performance_limits, tmp_path):
    shutil.copy(journals / "perf_pass" / "perf_pass.jsonl", tmp_path / "perf_pass.jsonl")
    with (tmp_path / "perf_pass.jsonl").open("ab") as stream:
        stream.write(b'{"kind":"run","entry":{"run_id"')
    verdict = gate(tmp_path, performance_limits)
    assert verdict.status is Status.INFRA
    assert any("cut short" in note for note in verdict.notes)


def test_a_session_that_was_stopped_never_passes(journals, performance_limits, tmp_path):
    """All that was required is there and good; only the end of the session is missing."""
    path = tmp_path / "perf_pass.jsonl"
    shutil.copy(journals / "perf_pass" / "perf_pass.jsonl", path)
    cell = read_journal(tmp_path).runs[0].cell
    writer = JournalWriter(path)
    writer.append(Plan(session_id="perf_pass", cells=(cell,)))
    verdict = gate(tmp_path, performance_limits)
    assert verdict.status is Status.INFRA
    assert verdict.decided_by == ("journal: session perf_pass did not come to its end",)
    writer.append(End(session_id="perf_pass", broken=()))
    writer.close()
    assert gate(tmp_path, performance_limits).status is Status.PASS


def test_a_run_that_stands_there_twice_never_passes(journals, performance_limits, tmp_path):
    lines = (journals / "perf_pass" / "perf_pass.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "perf_pass.jsonl").write_bytes(b"".join([*lines, lines[1]]))
    assert gate(tmp_path, performance_limits).status is Status.INFRA
