"""The journal on disk: appended, merged, and honest about damage."""

from __future__ import annotations

import dataclasses
import json
import resource
import signal
from pathlib import Path

import pytest

from harness.errors import HostError, UserError
from harness.journal import JOURNAL_SCHEMA, End, JournalWriter, NotCovered, Plan, Session, read_journal
from harness.record.comparison import SelfCheck
from harness.record.run import Cell
from harness.record.vocabulary import Status
from harness.soc import KvPrecision, Precision

CELL = Cell(model="m", precision=Precision.FP16, kv=KvPrecision.KVFP16, part="SM8650")


def session(session_id="s"):
    return Session(
        session_id=session_id, schema=JOURNAL_SCHEMA, started_at="2026-01-01T00:00:00+00:00", source=None,
        versions={"python": "3.11"}, command=("pytest",), required=("accuracy",), phones=(), notes=(),
    )  # fmt: skip


def check(run_id):
    return SelfCheck(run_id=run_id, cell=CELL, name="clock", passed=None, detail="d")


def write(path, *entries):
    writer = JournalWriter(path)
    for entry in entries:
        writer.append(entry)
    writer.close()


def test_entries_come_back_as_written(tmp_path):
    missing = NotCovered(session_id="s", cell=CELL, status=Status.NOT_COVERED, reason="no phone")
    write(tmp_path / "j" / "s.jsonl", session(), check("r1"), missing)
    journal = read_journal(tmp_path / "j")
    assert journal.sessions == (session(),)
    assert journal.self_checks == (check("r1"),)
    assert journal.not_covered == (missing,)
    assert journal.runs == ()
    assert journal.damaged == ()


def test_files_of_all_workers_are_merged_in_the_order_of_their_names(tmp_path):
    write(tmp_path / "s-gw1.jsonl", check("b"))
    write(tmp_path / "s-gw0.jsonl", check("a"))
    write(tmp_path / "s.jsonl", session())
    assert [c.run_id for c in read_journal(tmp_path).self_checks] == ["a", "b"]


def test_opening_again_appends(tmp_path):
    write(tmp_path / "s.jsonl", check("a"))
    write(tmp_path / "s.jsonl", check("b"))
    assert [c.run_id for c in read_journal(tmp_path / "s.jsonl").self_checks] == ["a", "b"]


def test_one_session_is_picked_by_its_id(tmp_path):
    write(tmp_path / "one.jsonl", session("one"))
    write(tmp_path / "two-gw0.jsonl", check("r"))
    write(tmp_path / "two.jsonl", session("two"))
    journal = read_journal(tmp_path, session_id="two")
    assert [s.session_id for s in journal.sessions] == ["two"]
    assert len(journal.self_checks) == 1


def test_a_last_line_cut_short_is_dropped_and_named(tmp_path):
    path = tmp_path / "s.jsonl"
    write(path, check("a"), check("b"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    journal = read_journal(tmp_path)
    assert [c.run_id for c in journal.self_checks] == ["a"]
    assert len(journal.damaged) == 1
    assert journal.damaged[0].startswith("s.jsonl: last line cut short after ")


@pytest.mark.parametrize(
    "line", [b"", b"not json", b"[]", b"5", b'{"kind":"session"}', b'{"kind":"moon","entry":{}}', b"\xff\xfe"]
)
def test_a_damaged_line_in_the_middle_is_an_error_with_its_place(tmp_path, line):
    path = tmp_path / "s.jsonl"
    write(path, check("a"))
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    with pytest.raises(UserError, match=r"s\.jsonl:2 is not a journal entry"):
        read_journal(tmp_path)


def test_an_entry_of_another_shape_is_an_error_with_its_place(tmp_path):
    path = tmp_path / "s.jsonl"
    write(path, check("a"))
    body = json.loads(path.read_text())
    body["entry"]["colour"] = "red"
    path.write_text(json.dumps(body) + "\n")
    with pytest.raises(UserError, match=r"s\.jsonl:1 is not a valid SelfCheck.*colour"):
        read_journal(tmp_path)


def test_no_journal_is_an_error_with_the_next_step(tmp_path):
    with pytest.raises(UserError, match=r"no journal in .*pytest suites"):
        read_journal(tmp_path)


def run_of(path, run_id, session_id):
    """A run of a golden journal under another name."""
    run = read_journal(path).runs[0]
    return dataclasses.replace(run, run_id=run_id, session_id=session_id)


GOLDEN = Path(__file__).resolve().parents[2] / "data" / "journals" / "perf_pass"


def test_a_session_of_a_newer_schema_is_refused_before_its_fields_are_looked_at(tmp_path):
    write(tmp_path / "s.jsonl", dataclasses.replace(session(), schema="snapgate.journal/2"))
    text = (tmp_path / "s.jsonl").read_text()
    (tmp_path / "s.jsonl").write_text(text.replace('"required"', '"needed"'))
    with pytest.raises(UserError, match=r"s\.jsonl:1: .*another version.*snapgate\.journal/2.*snapgate\.journal/1"):
        read_journal(tmp_path)


def test_json_nested_too_deep_is_an_error_with_its_place(tmp_path):
    (tmp_path / "s.jsonl").write_bytes(b"[" * 100_000 + b"\n")
    with pytest.raises(UserError, match=r"s\.jsonl:1 is not a journal entry"):
        read_journal(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path):
    (tmp_path / "s.jsonl").mkdir()
    with pytest.raises(UserError, match=r"s\.jsonl cannot be read; found: Is a directory"):
        read_journal(tmp_path)


@pytest.mark.parametrize("wanted", ["tw", "*", "**", "two-gw0", "../two", "three"])
def test_a_session_id_is_taken_whole_and_never_as_a_pattern(tmp_path, wanted):
    write(tmp_path / "two.jsonl", session("two"))
    write(tmp_path / "two-gw0.jsonl", check("r"))
    with pytest.raises(UserError, match=r"has no session .*found: .*two"):
        read_journal(tmp_path, session_id=wanted)


def test_a_file_is_not_taken_for_another_session(tmp_path):
    write(tmp_path / "two.jsonl", session("two"))
    with pytest.raises(UserError, match="has no session one; found: two"):
        read_journal(tmp_path / "two.jsonl", session_id="one")


def test_a_planned_session_without_an_end_has_a_gap(tmp_path):
    write(tmp_path / "s.jsonl", session())
    write(tmp_path / "s-main.jsonl", Plan(session_id="s", cells=(CELL,)))
    assert read_journal(tmp_path).gaps == ("session s did not come to its end",)
    write(tmp_path / "s.jsonl", End(session_id="s", broken=()))
    assert read_journal(tmp_path).gaps == ()


def test_tests_that_broke_are_a_gap(tmp_path):
    write(tmp_path / "s.jsonl", session(), End(session_id="s", broken=("suites/a.py::test_b", "suites/a.py::test_c")))
    assert read_journal(tmp_path).gaps == ("session s: 2 tests broke without a verdict, first suites/a.py::test_b",)


def test_a_run_of_another_session_and_a_run_twice_are_gaps(tmp_path):
    write(tmp_path / "s.jsonl", session(), run_of(GOLDEN, "r", "s"), run_of(GOLDEN, "r", "s"), run_of(GOLDEN, "q", "t"))
    assert read_journal(tmp_path).gaps == (
        "entries of session t, which the journal does not open",
        "run r stands in the journal 2 times",
    )


def test_a_results_folder_that_cannot_be_made_is_the_hosts_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"journal .*s\.jsonl cannot be written.*--results"):
        JournalWriter(tmp_path / "file" / "s.jsonl")


def test_an_entry_that_does_not_fit_the_disk_leaves_no_half_line(tmp_path):
    path = tmp_path / "s.jsonl"
    write(path, check("a"))
    writer = JournalWriter(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, before[1]))
        with pytest.raises(HostError, match=r"s\.jsonl cannot be written; found: File too large"):
            writer.append(check("b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    writer.append(check("c"))
    writer.close()
    journal = read_journal(tmp_path)
    assert [c.run_id for c in journal.self_checks] == ["a", "c"]
    assert journal.damaged == ()
