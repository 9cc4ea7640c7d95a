"""Long suites run when they are asked for, and not otherwise; the plan names the runs that each one makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def planned(tmp_path, *arguments):
    """Workload to number of tests that need it, of one cell."""
    command = [sys.executable, "-m", "harness.cli.main", "plan", "-m", "gen3", "-k", "w8a16", "--phones", "virtual"]
    command += ["--results", str(tmp_path), *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("tiny-llama-")]
    return {words[1]: int(words[2]) for words in lines}


def test_the_long_suites_are_left_out_unless_asked_for(tmp_path):
    assert planned(tmp_path) == {"smoke-toy": 6, "smoke": 6, "accuracy": 18, "latency": 37}


def test_a_file_that_is_named_is_asked_for(tmp_path):
    assert planned(tmp_path, "suites/power/test_energy.py") == {"sustained": 3, "cooldown": 3, "paced": 3}


def test_thorough_runs_everything_smoke_first(tmp_path):
    found = planned(tmp_path, "--thorough")
    assert list(found)[:2] == ["smoke-toy", "smoke"]
    assert {"edges", "tasks", "sweep", "idle", "pauses", "longest", "operators"} <= set(found)
    assert {"sustained", "cooldown", "paced", "endurance"} <= set(found)
    assert found["endurance"] == 7
