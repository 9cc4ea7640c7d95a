"""``--thorough`` on a virtual phone: the long suites run, their figures are in the journal, and none is a pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.journal import read_journal
from harness.record.verdict import Measurement
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


def figures(ran: subprocess.CompletedProcess[str], out: Path) -> dict[str, Measurement]:
    journal = read_journal(out / "journal")
    assert [run.error for run in journal.runs if run.error is not None] == [], ran.stdout[-3000:]
    assert journal.gaps == ()
    return {m.metric: m for m in derive(journal)}


def test_smoke_edges_and_tasks(suites, tmp_path: Path) -> None:
    """Of the bundled model; of its questions one of each number of choices, and one of exact match."""
    models, out = tmp_path / "models", tmp_path / "out"
    (models / "tasks").mkdir(parents=True)
    (models / "tiny-llama").symlink_to(REPOSITORY / "models" / "tiny-llama")
    text = (REPOSITORY / "models" / "catalogue.toml").read_text()
    (models / "catalogue.toml").write_text(text.replace("tiny-llama/tasks/verses.jsonl", "tasks/few.jsonl"))
    verses = (models / "tiny-llama" / "tasks" / "verses.jsonl").read_text().splitlines()
    few = [verses[0], *verses[-3:]]
    (models / "tasks" / "few.jsonl").write_text("\n".join(few) + "\n")
    ran = suites(
        *("suites/smoke", "suites/accuracy/test_edges.py", "suites/accuracy/test_tasks.py", "-m", "gen3", "-k", CELL),
        *("--phones", "virtual", "--models", str(models / "catalogue.toml"), "--results", str(out)),
        *("--artifacts", str(REPOSITORY / "artifacts")),
    )
    found = figures(ran, out)
    for rung in ("libraries", "device", "toy_graph", "shard", "token"):
        assert found[f"smoke_{rung}"].value == 1.0, rung
    assert len(found["edge_snr_db"].samples) == 6
    assert found["edge_snr_db"].value > 34
    assert found["long_position_snr_db"].value > 35
    assert found["deterministic"].value == 1.0
    assert len(found["task_score"].samples) == len(few)
    assert found["task_score"].samples == found["task_score_fp32"].samples


def test_sweep_endurance_and_sustained_load(small, suites, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = suites(
        *(
            "suites/latency/test_sweep.py",
            "suites/endurance/test_rounds.py",
            "suites/thermal/test_sustained.py",
            "-m",
            "gen3",
        ),
        *(*small.options, "--phones", "virtual", "--results", str(out)),
    )
    found = figures(ran, out)
    assert found["prefill_tps_at_31"].value is None
    assert found["prefill_tps_at_64"].value > 0
    assert found["decode_tps_at_depth_256"].value > 0
    assert found["tpot_after_idle_ms"].value < 2000
    assert "emulated" in found["decode_tps_at_depth_256"].refuted_by

    assert found["endurance_rounds"].value == 7
    assert found["changed_answers"].value == 0
    assert len(found["changed_answers"].samples) == 3 * 8
    assert found["rss_growth_per_round"].interval is not None
    assert not any(text.startswith("token_count") for text in found["endurance_rounds"].refuted_by)

    assert found["first_300_tps"].value > 0
    assert found["paced_tps"].value < found["sustained_peak_tps"].value
