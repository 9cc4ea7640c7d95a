"""An artifact prepared layer by layer keeps no references: what is compared with one is not covered, all else runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.compiler.prepare import prepare
from harness.journal import read_journal
from harness.record.vocabulary import Status
from harness.soc import KvPrecision, Precision, find_soc

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("qnn"),
    pytest.mark.lane("runner"),
    pytest.mark.slow,
    pytest.mark.xdist_group("wire-execute"),
]


def test_accuracy_is_not_covered_and_memory_is_measured(small, suites, tmp_path: Path) -> None:
    artifact = prepare(
        small.models.parent / "small",
        soc=find_soc("gen3"),
        precision=Precision.FP16,
        kv=KvPrecision.KVFP16,
        context=512,
        prefill=64,
        build="by-layer",
        out=tmp_path / "artifacts",
    )
    assert not list(artifact.folder.glob("reference/*"))
    out = tmp_path / "out"
    ran = suites(
        *("suites/accuracy/test_logits.py", "suites/accuracy/test_edges.py", "suites/memory/test_peak.py"),
        *(
            *replace(small, artifacts=tmp_path / "artifacts").options,
            "-m",
            "gen3",
            "--phones",
            "virtual",
            "--results",
            str(out),
        ),
    )
    journal = read_journal(out / "journal")
    assert [run.workload for run in journal.runs if run.error is None] == ["latency"], ran.stdout[-3000:]
    assert {(gap.status, gap.reason.partition(":")[0]) for gap in journal.not_covered} == {
        (Status.NOT_COVERED, "accuracy"),
        (Status.NOT_COVERED, "edges"),
    }
    for gap in journal.not_covered:
        assert "holds no fp32 reference graph; found: no " in gap.reason
        assert gap.reason.endswith("prepare the artifact again with --build whole: layer by layer, none are kept")
    assert "failed" not in ran.stdout.splitlines()[-1]
