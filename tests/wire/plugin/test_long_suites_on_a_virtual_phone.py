"""``--thorough`` on a virtual phone: the long suites run, their figures are in the journal, and none is a pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.journal import read_journal
from harness.results.derive import derive

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("qnn"),
    pytest.mark.lane("runner"),
    pytest.mark.slow,
    pytest.mark.xdist_group("wire-execute"),
]

REPOSITORY = Path(__file__).resolve().parents[3]
CELL = "tiny-llama-w8a16-kv8-gen3"


def figures(tmp_path: Path, *suites: str) -> dict:
    out = tmp_path / "out"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["SNAPGATE_STATE_DIR"] = str(tmp_path / "state")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *suites, "-m", "gen3", "-k", CELL, "--phones", "virtual"),
            *("-p", "no:cacheprovider", "--results", str(out), "--artifacts", str(REPOSITORY / "artifacts")),
        ],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    journal = read_journal(out / "journal")
    assert [run.error for run in journal.runs if run.error is not None] == [], ran.stdout[-3000:]
    assert journal.gaps == ()
    return {m.metric: m for m in derive(journal)}


def test_smoke_edges_tasks_and_sweep(tmp_path: Path) -> None:
    found = figures(
        tmp_path, "suites/smoke", "suites/accuracy/test_edges.py", "suites/accuracy/test_tasks.py",
        "suites/latency/test_sweep.py",
    )  # fmt: skip
    for rung in ("libraries", "device", "toy_graph", "shard", "token"):
        assert found[f"smoke_{rung}"].value == 1.0, rung
    assert len(found["edge_snr_db"].samples) == 6
    assert found["edge_snr_db"].value > 34
    assert found["long_position_snr_db"].value > 35
    assert found["deterministic"].value == 1.0
    assert found["task_score"].value == found["task_score_fp32"].value == 0.9
    assert found["prefill_tps_at_31"].value is None
    assert found["prefill_tps_at_64"].value > 0
    assert found["decode_tps_at_depth_256"].value > 0
    assert found["tpot_after_idle_ms"].value < 2000
    assert "emulated" in found["decode_tps_at_depth_256"].refuted_by


def test_endurance(tmp_path: Path) -> None:
    found = figures(tmp_path, "suites/endurance/test_rounds.py")
    assert found["endurance_rounds"].value == 7
    assert found["changed_answers"].value == 0
    assert len(found["changed_answers"].samples) == 3 * 8
    assert found["rss_growth_per_round"].interval is not None
    assert not any(text.startswith("token_count") for text in found["endurance_rounds"].refuted_by)
