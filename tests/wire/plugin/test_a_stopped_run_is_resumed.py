"""A run that is killed after its first workload goes on with ``--resume``, and that workload is not run again."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.journal import read_journal

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("qnn"),
    pytest.mark.lane("runner"),
    pytest.mark.slow,
    pytest.mark.xdist_group("wire-execute"),
]

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_killed_run_is_resumed_without_measuring_twice(small, environment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "pytest", "suites/placement", "suites/latency", "-m", "gen3", *small.options),
        *("-p", "no:cacheprovider", "--phones", "virtual", "--results", str(out)),
    ]
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + 240
        while not any(b'"kind":"finished"' in path.read_bytes() for path in (out / "journal").glob("*.jsonl")):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait(30)
    first = [run.run_id for run in read_journal(out / "journal").runs if run.workload == "accuracy"]
    assert len(first) == 1
    limits = str(REPOSITORY / "suites" / "limits.toml")
    assert main(["gate", "--journal", str(out / "journal"), "--limits", limits]) == 11, "it did not come to its end"

    ran = subprocess.run(
        [*command, "--resume"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert f"accuracy of {small.cell} was finished before" in ran.stdout + ran.stderr
    journal = read_journal(out / "journal")
    assert [run.run_id for run in journal.runs if run.workload == "accuracy"] == first
    assert sorted(run.workload for run in journal.runs) == ["accuracy", "latency"]
    assert len(journal.sessions) == 1
    assert journal.gaps == ()
    assert journal.damaged == ()
    assert ran.returncode == main(["gate", "--journal", str(out / "journal"), "--limits", limits])
    assert ran.returncode != 11, ran.stdout[-3000:]
    assert main(["verify", "--results", str(out)]) == 0
