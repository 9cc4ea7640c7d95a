"""``snapgate recompute --what roofline``: what is known, and what is not."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.journal import Journal
from harness.record.vocabulary import Source
from harness.results.efficiency import roofline_frame

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def manifest():
    path = ROOT / "unit" / "measure" / "test_roofline_arithmetic.py"
    spec = importlib.util.spec_from_file_location("roofline_manifest", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.manifest()


def rows(runs, manifests):
    return roofline_frame(Journal(runs=tuple(runs)), manifests).to_dict("records")


def phones(make, part="SM8650"):
    cell = dataclasses.replace(make.CELL, part=part)
    runs = make.three_runs("s", make.STEADY)
    return [dataclasses.replace(run, source=Source.PHONE, cell=cell) for run in runs]


def test_a_measured_speed_has_its_share_of_the_peak(make, manifest):
    """50 tokens/s of 1312 bytes against 76.8 GB/s."""
    runs = phones(make)
    (row,) = rows(runs, {runs[0].artifact_id: manifest})
    assert row["total_bytes"] == 1312
    assert row["gb_per_s"] == 76.8
    assert row["efficiency_percent"] == pytest.approx(100 * 50 * 1312 / 76.8e9)
    assert "not measured on this phone" in row["roof"]
    assert row["note"] == ""


def test_a_bandwidth_measured_after_the_run_is_the_roof(make):
    """10^9 bytes of the journal's own at 50 tokens/s, of 62.5 GB/s; no artifact is needed."""
    (row,) = rows(make.with_bandwidth(phones(make), 62.5), {})
    assert row["gb_per_s"] == pytest.approx(62.5)
    assert row["efficiency_percent"] == pytest.approx(80.0)
    assert row["roof"] == "memory bandwidth, measured right after the run"
    assert row["note"] == ""


def test_an_impossible_speed_is_a_measurement_fault(make, manifest):
    huge = dataclasses.replace(manifest, model=dataclasses.replace(manifest.model, n_parameters=10**10))
    runs = phones(make)
    (row,) = rows(runs, {runs[0].artifact_id: huge})
    assert row["efficiency_percent"] > 100
    assert "measurement_fault" in row["note"]


def test_an_emulated_speed_has_no_share(make, manifest):
    runs = make.three_runs("s", make.STEADY, virtual=True)
    (row,) = rows(runs, {runs[0].artifact_id: manifest})
    assert row["efficiency_percent"] is None
    assert row["roof_tps"] == pytest.approx(76.8e9 / 1312)
    assert "emulated" in row["note"]


def test_without_the_artifact_the_note_says_where_to_name_it(make):
    (row,) = rows(phones(make), {})
    assert row["total_bytes"] is None
    assert "--artifacts" in row["note"]


def test_an_soc_without_a_known_bandwidth_has_no_roof(make, manifest):
    runs = phones(make, part="SM8450")
    (row,) = rows(runs, {runs[0].artifact_id: manifest})
    assert row["roof"] is None
    assert row["efficiency_percent"] is None
    assert row["note"].endswith("no DRAM bandwidth is known for SM8450, and none was measured")


def test_the_command_prints_the_table(tmp_path, capsys):
    journal = ROOT / "data" / "journals" / "perf_pass"
    assert main(["recompute", "--journal", str(journal), "--what", "roofline", "--artifacts", str(tmp_path)]) == 0
    assert "--artifacts" in capsys.readouterr().out
