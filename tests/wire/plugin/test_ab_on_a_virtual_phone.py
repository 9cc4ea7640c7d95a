"""``pytest suites --ab``: both artifacts run in turn on one virtual phone, and the journal is judged again alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.journal import read_journal
from harness.record.vocabulary import Status

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("qnn"),
    pytest.mark.lane("runner"),
    pytest.mark.slow,
    pytest.mark.xdist_group("wire-execute"),
]

REPOSITORY = Path(__file__).resolve().parents[3]


def suites(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment["SNAPGATE_STATE_DIR"] = str(tmp_path / "state")
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "suites", "-k", "tiny-llama-fp16-kvfp16-gen3", "-p", "no:cacheprovider"),
            *("-rs", *options),
        ],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )


def test_a_comparison_on_a_virtual_phone_is_invalid_and_is_judged_again_alike(tmp_path: Path) -> None:
    artifacts = REPOSITORY / "artifacts"
    out = tmp_path / "out"
    options = ("-m", "gen3", "--phones", "virtual", "--results", str(out), "--artifacts", str(artifacts))
    ran = suites(tmp_path, *options, "--ab", str(artifacts))
    text = ran.stdout + ran.stderr
    assert ran.returncode == 12, text[-3000:]
    assert "6 skipped" in ran.stdout, text[-3000:]
    journal = read_journal(out / "journal")
    assert [(arm.position, arm.arm) for arm in journal.arms] == [(0, "A"), (1, "B"), (2, "B"), (3, "A")]
    assert len(journal.runs) == 2 + 4
    assert all(run.error is None for run in journal.runs)
    assert journal.comparison_ends[0].reason == "no pair can be judged: emulated"
    assert journal.gaps == ()
    assert len({run.device.boot_id for run in journal.runs}) == 1
    assert main(["gate", "--ab", "--journal", str(out / "journal")]) == 12
    assert main(["verify", "--results", str(out)]) == 0
    replayed = suites(tmp_path, "--journal", str(out / "journal"), "--results", str(tmp_path / "again"))
    assert replayed.returncode == 12, replayed.stdout[-3000:]
    assert "6 skipped" in replayed.stdout
    assert f"{Status.INVALID}" in (tmp_path / "again" / "report.md").read_text()
