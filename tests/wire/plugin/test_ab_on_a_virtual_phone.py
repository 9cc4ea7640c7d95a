"""``pytest suites --ab``: both artifacts run in turn on one virtual phone, and the journal is judged again alike."""

from __future__ import annotations

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


def test_a_comparison_on_a_virtual_phone_is_invalid_and_is_judged_again_alike(small, suites, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("suites", "-m", "gen3", "--phones", "virtual", "--results", str(out), *small.options)
    options += ("--runner-option", "performance_mode=balanced", "--runner-option", "memory=heap")
    ran = suites(*options, "--ab", str(small.artifacts))
    text = ran.stdout + ran.stderr
    assert ran.returncode == 12, text[-3000:]
    assert "6 skipped" in ran.stdout, text[-3000:]
    journal = read_journal(out / "journal")
    assert [(arm.position, arm.arm) for arm in journal.arms] == [(0, "A"), (1, "B"), (2, "B"), (3, "A")]
    assert len(journal.runs) == 2 + 4
    assert all(run.error is None for run in journal.runs)
    platforms = [run.log.platform for run in journal.runs]
    assert {platform.performance_mode for platform in platforms if platform is not None} == {"balanced"}
    assert None not in platforms
    assert journal.comparison_ends[0].reason == "no pair can be judged: emulated"
    assert journal.gaps == ()
    assert len({run.device.boot_id for run in journal.runs}) == 1
    assert main(["gate", "--ab", "--journal", str(out / "journal")]) == 12
    assert main(["verify", "--results", str(out)]) == 0
    replayed = suites(
        *("suites", "-k", small.cell, "--journal", str(out / "journal"), "--results", str(tmp_path / "again"))
    )
    assert replayed.returncode == 12, replayed.stdout[-3000:]
    assert "6 skipped" in replayed.stdout
    assert f"{Status.INVALID}" in (tmp_path / "again" / "report.md").read_text()
