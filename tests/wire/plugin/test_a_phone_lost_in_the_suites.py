"""``pytest suites`` on two phones of one SoC, one of which loses power in mid run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.journal import read_journal
from harness.record.vocabulary import Status
from harness.virtual.lab import PhoneSpec, VirtualLab

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("qnn"),
    pytest.mark.lane("runner"),
    pytest.mark.slow,
    pytest.mark.xdist_group("wire-execute"),
]

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_phone_lost_in_mid_run_is_an_error_and_the_other_phones_case_still_finishes(
    small, environment, tmp_path: Path
) -> None:
    with VirtualLab.start(tmp_path / "lab", [PhoneSpec(), PhoneSpec()]) as lab:
        doomed, other = lab.phones
        command = [
            *(sys.executable, "-m", "pytest", "suites/placement", *small.options, "-p", "no:cacheprovider", "-rA"),
            *("--phones", "attached", "--spread", "each", "--adb-port", str(lab.adb_port)),
            *("--results", str(tmp_path / "out"), "--reconnect-seconds", "3"),
        ]
        with subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            text, lost = "", False
            while chunk := os.read(process.stdout.fileno(), 65536):
                text += chunk.decode(errors="replace")
                if not lost and re.search(rf"running \w+ of \S+ on phone {doomed.serial}", text):
                    doomed.kill()
                    lost = True
    assert process.returncode == 11, text[-3000:]
    assert re.search(rf"^ERROR .*{doomed.serial}", text, re.MULTILINE), text[-3000:]
    assert re.search(rf"^PASSED .*{other.serial}", text, re.MULTILINE), text[-3000:]
    assert not re.search(r"^FAILED ", text, re.MULTILINE)
    by_serial = {run.device.serial: run for run in read_journal(tmp_path / "out" / "journal").runs}
    assert by_serial[other.serial].error is None
    lost = by_serial[doomed.serial].error
    assert lost is not None
    assert (lost.status, lost.kind) == (Status.INFRA, "PhoneLostError")
