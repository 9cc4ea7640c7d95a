"""``snapgate recompute``: the figures of a journal from its stamps, in three forms."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.journal import read_journal
from harness.results.derive import derive
from harness.results.summary import CHOICES, FORMATS, summary

JOURNALS = Path(__file__).resolve().parents[2] / "data" / "journals"


def test_json_has_exactly_the_figures_that_are_judged():
    journal = read_journal(JOURNALS / "perf_fail")
    rows = json.loads(summary(journal, form="json"))["rows"]
    found = [(row["metric"], row["value"], row["ci_low"]) for row in rows]
    assert found == [(m.metric, m.value, m.interval[0] if m.interval else None) for m in derive(journal)]


def test_csv_keeps_full_precision():
    journal = read_journal(JOURNALS / "perf_fail")
    rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(summary(journal, form="csv")))}
    assert float(rows["decode_tps"]["value"]) == 1000 / 30.0
    assert rows["decode_tps"]["run_ids"] == "perf_fail-0 perf_fail-1 perf_fail-2"


def test_the_table_says_what_refutes_a_figure():
    lines = summary(read_journal(JOURNALS / "perf_invalid_emulated")).splitlines()
    (speed,) = [line for line in lines if line.split()[0] == "decode_tps"]
    assert speed.endswith("refuted by emulated")


@pytest.mark.parametrize("what", CHOICES)
@pytest.mark.parametrize("form", FORMATS)
def test_every_table_comes_in_every_form(what, form):
    text = summary(read_journal(JOURNALS / "infra"), what=what, form=form)
    assert text.endswith("\n")
    if form == "json":
        assert json.loads(text)["table"] == what


def test_a_missing_figure_is_null_in_json_and_not_zero():
    rows = json.loads(summary(read_journal(JOURNALS / "perf_pass"), what="runs", form="json"))["rows"]
    assert {row["error_kind"] for row in rows} == {None}
    assert {row["host_load_before"] for row in rows} == {None}


def test_the_command_prints_or_writes_the_same_text(tmp_path, capsys):
    assert main(["recompute", "--journal", str(JOURNALS / "perf_pass"), "--format", "csv"]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "new" / "figures.csv"
    assert main(["recompute", "--journal", str(JOURNALS / "perf_pass"), "--format", "csv", "--out", str(out)]) == 0
    assert out.read_text() == printed
    assert [path.name for path in out.parent.iterdir()] == ["figures.csv"]


def test_a_folder_without_a_journal_is_the_users_error(tmp_path, capsys):
    assert main(["recompute", "--journal", str(tmp_path)]) == 20
    assert "no journal in" in capsys.readouterr().err
