"""A port in the environment that is none ends in one sentence, whichever way the harness is entered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["-m", "harness.cli.main", "devices"], 20, "'abc' is not a port"),
        (["-m", "pytest", "suites", "-m", "gen3", "--plan"], 20, "the port of the adb server is no port; found: 'abc'"),
        (["-c", "import harness.pool.local"], 0, ""),
    ],
)
def test_a_port_that_is_none_is_named_and_no_traceback_shown(command: list[str], code: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "ANDROID_ADB_SERVER_PORT": "abc"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert words in done.stdout + done.stderr
    assert done.returncode == code
