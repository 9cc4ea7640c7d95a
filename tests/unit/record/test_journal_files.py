"""The journal on disk: appended, merged, and honest about damage."""

from __future__ import annotations

import json

import pytest

from harness.errors import UserError
from harness.journal import JOURNAL_SCHEMA, JournalWriter, NotCovered, Session, read_journal
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
