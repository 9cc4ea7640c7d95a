"""``--thorough`` on a virtual phone: the long suites run, their figures are in the journal, and none is a pass."""

from __future__ import annotations

import json
from dataclasses import replace

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

QUESTIONS = (
    {"id": "two", "prompt": "w5 w9", "choices": [" w13", " w2"], "answer": 0},
    {"id": "four", "prompt": "w20", "choices": [" w1", " w2 w3", " w4", " w6"], "answer": 3},
    {"id": "exact", "prompt": "w7 w8", "answer": " w1 w2"},
)


@pytest.fixture(scope="module")
def found(small, suites_of_module, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    """The figures of all of them, run in one session: phone and artifact are made ready once."""
    models, out = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("out")
    for name in ("small", "heldout.txt"):
        (models / name).symlink_to(small.models.parent / name)
    (models / "tasks.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    text = small.models.read_text().replace("n_gen = 4", 'n_gen = 4\ntasks = ["tasks.jsonl"]')
    (models / "catalogue.toml").write_text(text)
    files = ("accuracy/test_edges", "accuracy/test_tasks", "latency/test_sweep", "endurance/test_rounds")
    ran = suites_of_module(
        *("suites/smoke", *(f"suites/{name}.py" for name in (*files, "thermal/test_sustained")), "-m", "gen3"),
        *replace(small, models=models / "catalogue.toml").options,
        *("--phones", "virtual", "--results", str(out)),
    )
    journal = read_journal(out / "journal")
    assert [run.error for run in journal.runs if run.error is not None] == [], ran.stdout[-3000:]
    assert journal.gaps == ()
    return {m.metric: m for m in derive(journal)}


def test_smoke_edges_and_tasks(found) -> None:
    for rung in ("libraries", "device", "toy_graph", "shard", "token"):
        assert found[f"smoke_{rung}"].value == 1.0, rung
    canary = found["canary_tps"]  # 23 gaps between tokens in each of two repetitions; emulated, so refuted
    assert len(canary.samples) == 2
    assert min(canary.samples) > 0
    assert canary.refuted_by
    assert len(found["edge_snr_db"].samples) == 6
    assert found["edge_snr_db"].value > 47
    assert found["long_position_snr_db"].value > 50
    assert found["deterministic"].value == 1.0
    assert len(found["task_score"].samples) == len(QUESTIONS)
    assert found["task_score"].samples == found["task_score_fp32"].samples
    assert found["task_chance"].samples == (0.0, 0.25, 0.5), "by name: exact, four, two"


def test_sweep_endurance_and_sustained_load(found) -> None:
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
