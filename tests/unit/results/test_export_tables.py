"""Raw samples as CSV and Parquet: what is read back is what the journal says."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from harness.cli.main import main
from harness.errors import HostError
from harness.journal import Journal, read_journal
from harness.record.artifact import sha256_of
from harness.results import export as export_module
from harness.results.derive import derive
from harness.results.export import EXPORTED, TableFormat, export


def read(folder, name, form):
    path = folder / f"{name}.{form}"
    return pd.read_parquet(path) if form == "parquet" else pd.read_csv(path)


@pytest.mark.parametrize("form", ["csv", pytest.param("parquet", marks=pytest.mark.lane("parquet"))])
def test_samples_read_back_are_those_of_the_measurements_to_the_last_bit(journals, tmp_path, form):
    journal = read_journal(journals / "perf_pass")
    export(journal, tmp_path, TableFormat(form))
    table = read(tmp_path, "samples", form)
    (decode,) = [m for m in derive(journal) if m.metric == "decode_tps"]
    assert len(decode.samples) == 6
    rows = table[table["metric"] == "decode_tps"]
    assert tuple(rows["value"]) == decode.samples
    assert list(rows["sample_index"]) == [0, 1, 2, 3, 4, 5]
    assert set(rows["unit"]) == {"tokens/s"}


@pytest.mark.parametrize("form", ["csv", pytest.param("parquet", marks=pytest.mark.lane("parquet"))])
def test_tokens_carry_every_stamp_of_every_generation(journals, tmp_path, form):
    """Three runs of one warm-up, two repetitions and a short prompt, 33 tokens each: 3 x 4 x 33."""
    export(read_journal(journals / "perf_pass"), tmp_path, TableFormat(form))
    tokens = read(tmp_path, "tokens", form)
    assert len(tokens) == 396
    assert tokens["itl_ms"].isna().sum() == 12


def test_the_index_describes_every_file(journals, tmp_path):
    export(read_journal(journals / "infra"), tmp_path, TableFormat.CSV)
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["schema"] == "snapgate.export/1"
    assert {table["name"] for table in index["tables"]} == set(EXPORTED)
    for table in index["tables"]:
        path = tmp_path / table["file"]
        assert table["sha256"] == sha256_of(path)
        frame = pd.read_csv(path)
        assert list(frame.columns) == [column["name"] for column in table["columns"]]
        assert len(frame) == table["n_rows"]


def test_what_was_not_measured_is_empty_and_not_zero(journals, tmp_path):
    export(read_journal(journals / "infra"), tmp_path, TableFormat.CSV)
    runs = pd.read_csv(tmp_path / "runs.csv")
    lost = runs[runs["error_status"] == "INFRA"]
    assert len(lost) == 1
    assert lost["load_ms"].isna().all()


@pytest.mark.parametrize("form", ["csv", pytest.param("parquet", marks=pytest.mark.lane("parquet"))])
def test_an_empty_journal_gives_every_table_with_its_columns(tmp_path, form):
    index = export(Journal(), tmp_path, TableFormat(form))
    assert [table.n_rows for table in index.tables] == [0] * len(EXPORTED)
    assert "elapsed_ms" in read(tmp_path, "tokens", form).columns


def test_an_export_that_fails_leaves_no_index_and_no_part_of_a_table(journals, tmp_path, monkeypatch):
    journal = read_journal(journals / "perf_pass")
    export(journal, tmp_path, TableFormat.CSV)

    def full(frame, path, **_):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(HostError, match="No space left"):
        export(journal, tmp_path, TableFormat.CSV)
    assert not (tmp_path / "index.json").exists()
    assert list(tmp_path.glob(".*.tmp")) == []


def test_parquet_without_pyarrow_names_the_extra(journals, tmp_path, monkeypatch):
    monkeypatch.setattr(export_module.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(HostError, match=r"snapgate\[parquet\]"):
        export(read_journal(journals / "perf_pass"), tmp_path / "out", TableFormat.PARQUET)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_the_tables(journals, tmp_path, capsys):
    assert main(["export", "--journal", str(journals / "perf_pass"), "--out", str(tmp_path)]) == 0
    assert f"wrote {tmp_path / 'index.json'}" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 3
