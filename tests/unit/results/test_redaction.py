"""Pseudonyms: the same one everywhere, and nothing of the phone's identity left."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

from harness.cli.main import main
from harness.errors import UserError
from harness.journal import JournalWriter, read_journal
from harness.record.baseline import BASELINE_SCHEMA, Baseline, BaselineFigure
from harness.record.run import RunError
from harness.record.vocabulary import Status
from harness.results.derive import derive
from harness.results.redact import pseudonyms, redact, redaction_key

KEY = bytes(range(32))


@pytest.fixture
def named(journals):
    """A journal whose second run failed with the phone's serial in its message."""
    journal = read_journal(journals / "perf_pass")
    device = dataclasses.replace(
        journal.runs[0].device, serial="R5CT1234567", fingerprint="maker/x:14/AB1/7:user/keys", transport="R5CT1234567"
    )
    error = RunError(status=Status.INFRA, kind="PhoneLostError", message="phone R5CT1234567 (R5CT12345678) went away")
    runs = [dataclasses.replace(run, device=device) for run in journal.runs]
    runs[1] = dataclasses.replace(runs[1], error=error)
    sessions = (dataclasses.replace(journal.sessions[0], phones=("R5CT1234567 SM8650",)),)
    return dataclasses.replace(journal, sessions=sessions, runs=tuple(runs))


def test_a_serial_is_replaced_wherever_it_stands_and_a_longer_word_is_not(named):
    changed = redact(named, KEY)
    name = pseudonyms(named, KEY)["R5CT1234567"]
    assert name.startswith("phone-")
    assert {run.device.serial for run in changed.runs} == {name}
    assert changed.runs[1].error.message == f"phone {name} (R5CT12345678) went away"
    assert changed.sessions[0].phones == (f"{name} SM8650",)
    assert changed.runs[0].device.fingerprint.startswith("build-")


def test_figures_and_cells_stay_as_they_are(named):
    before, after = derive(named), derive(redact(named, KEY))
    assert [(m.metric, m.cell, m.value, m.samples, m.run_ids) for m in before] == [
        (m.metric, m.cell, m.value, m.samples, m.run_ids) for m in after
    ]


def test_another_key_gives_another_pseudonym(named):
    assert pseudonyms(named, KEY)["R5CT1234567"] != pseudonyms(named, bytes(32))["R5CT1234567"]


def test_report_and_export_agree_on_the_pseudonym_and_hold_no_identity(named, tmp_path, performance_limits):
    writer = JournalWriter(tmp_path / "journal" / "s.jsonl")
    for entry in (*named.sessions, *named.runs):
        writer.append(entry)
    writer.close()
    common = ["--journal", str(tmp_path / "journal"), "--redact", "--redact-key", str(tmp_path / "key")]
    limits = ["--limits", str(performance_limits)]
    assert main(["report", *common, *limits, "--out", str(tmp_path / "out")]) == 0
    assert main(["export", *common, "--out", str(tmp_path / "tables")]) == 0
    assert main(["gate", *common, *limits, "--out", str(tmp_path / "gate")]) == 11
    recompute = ["recompute", *common, "--format", "json", "--out", str(tmp_path / "gate" / "figures.json")]
    assert main(recompute) == 0
    journal = ["--journal", str(tmp_path / "journal")]
    compare = ["report", "--compare", *journal[1:], *journal[1:], *common[2:], "--out", str(tmp_path / "gate")]
    assert main(compare) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (serial,) = {run["serial"] for run in report["runs"]}
    assert set(pd.read_csv(tmp_path / "tables" / "runs.csv")["serial"]) == {serial}
    for name in ("gate/verdict.json", "gate/junit.xml", "gate/figures.json", "gate/comparison.html", "out/report.html"):
        assert serial in (tmp_path / name).read_text(), name
    folders = [tmp_path / name for name in ("out", "tables", "gate")]
    for path in [path for folder in folders for path in folder.iterdir()]:
        text = path.read_text().replace("R5CT12345678", "")
        for identity in ("R5CT1234567", "maker/x:14", named.runs[0].device.boot_id):
            assert identity not in text, path


@pytest.mark.lane("history")
def test_pages_made_of_a_store_have_the_same_pseudonym(named, tmp_path, performance_limits):
    writer = JournalWriter(tmp_path / "journal" / "s.jsonl")
    for entry in (*named.sessions, *named.runs):
        writer.append(entry)
    writer.close()
    key = ["--redact", "--redact-key", str(tmp_path / "key")]
    store, limits = ["--db", str(tmp_path / "h.db")], ["--limits", str(performance_limits)]
    assert main(["store", "import", "--journal", str(tmp_path / "journal"), *store, *limits]) == 0
    assert main(["report", "--history", *store, *key, "--out", str(tmp_path / "out")]) == 0
    assert main(["report", "--site", str(tmp_path / "site"), *store, *key]) == 0
    serial = pseudonyms(named, redaction_key(tmp_path / "key"))["R5CT1234567"]
    for path in [tmp_path / "out" / "history.html", *(tmp_path / "site").iterdir()]:
        assert "R5CT1234567" not in path.read_text(), path
    assert serial in (tmp_path / "out" / "history.html").read_text()
    assert serial in (tmp_path / "site" / "phones.html").read_text()
    assert serial in (tmp_path / "site" / "runs.html").read_text()


def test_phones_that_only_a_baseline_names_are_renamed_too(named):
    """A baseline of another phone."""
    figure = BaselineFigure(
        metric="decode_tps", cell=named.runs[0].cell, source=named.runs[0].source, serial="OTHER99", samples=(1.0,),
        run_ids=("x",), identity={"serial": "OTHER99", "android_build": "maker/y:15/Z"},
    )  # fmt: skip
    baseline = Baseline(
        schema=BASELINE_SCHEMA, reason="OTHER99 was good", measured_at="", promoted_at="", session_ids=(),
        figures=(figure,),
    )  # fmt: skip
    text = repr(redact(dataclasses.replace(named, baselines=(baseline,)), KEY).baselines)
    assert "OTHER99" not in text
    assert "maker/y" not in text
    assert text.count("phone-") == 3


def test_the_key_is_made_once_for_its_owner_only(tmp_path):
    key = redaction_key(tmp_path / "lab" / "key")
    assert redaction_key(tmp_path / "lab" / "key") == key
    assert (tmp_path / "lab" / "key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "key").write_text("abcd\n")
    with pytest.raises(UserError, match="64 hex digits"):
        redaction_key(tmp_path / "key")
