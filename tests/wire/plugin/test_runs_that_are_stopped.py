"""A run stopped by Ctrl-C or killed outright: nothing of it stays behind, and its journal never passes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.lane("virtual")]


def wait_for_plan(run: subprocess.Popen[bytes], output: Path, journal: Path) -> None:
    """Phones are up, and the journal says what is to come."""
    deadline = time.monotonic() + 240
    while not any(b'"kind":"plan"' in path.read_bytes() for path in journal.glob("*.jsonl")):
        assert run.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.2)


@pytest.mark.parametrize(("stop", "whole_group"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_nothing_of_a_stopped_run_is_left(stop: signal.Signals, whole_group: bool, tmp_path: Path) -> None:
    output, scratch = tmp_path / "output", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "pytest", "suites", "-m", "gen3", "-q", "-p", "no:cacheprovider"]
    command += ["--phones", "virtual", "--results", str(tmp_path / "out")]
    with output.open("wb") as stream:
        run = subprocess.Popen(
            command, cwd=ROOT, stdout=stream, stderr=stream, start_new_session=True,
            env={**os.environ, "TMPDIR": str(scratch)},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's `&` ignores it
        )  # fmt: skip
    try:
        wait_for_plan(run, output, tmp_path / "out" / "journal")
        started = psutil.Process(run.pid).children(recursive=True)
        assert len(started) >= 3, "supervisor, adb server and phone"
        if whole_group:
            os.killpg(run.pid, stop)
        else:
            run.send_signal(stop)
        assert run.wait(120) != 0
        _, alive = psutil.wait_procs(started, timeout=30)
        assert alive == []
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait(30)
    if stop is signal.SIGINT:
        assert [path.name for path in scratch.iterdir() if path.name.startswith("snapgate-")] == []
    limits = ROOT / "suites" / "limits.toml"
    assert main(["gate", "--journal", str(tmp_path / "out" / "journal"), "--limits", str(limits)]) == 11
