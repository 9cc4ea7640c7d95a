"""The core, seen working with no phone: golden journals through the suites, by exit code, JUnit, JSON and HTML."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"


def run_suites(journal: Path, results: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "suites", "--journal", str(journal), "--results", str(results)]
    command += ["--limits", str(DATA / "limits_performance.toml"), "--junitxml", str(results / "junit.xml")]
    command += ["-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False).returncode


def outcomes(results: Path) -> dict[str, tuple[str, str]]:
    """Test name to (pytest's outcome, the ``verdict`` property), from the JUnit file."""
    found = {}
    for case in ET.parse(results / "junit.xml").iter("testcase"):
        children = {child.tag for child in case}
        outcome = next((tag for tag in ("failure", "error", "skipped") if tag in children), "passed")
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        found[str(case.get("name")).partition("[")[0]] = (outcome, str(properties.get("verdict")))
    return found


@pytest.mark.parametrize(
    ("journal", "exit_code", "test", "outcome"),
    [
        ("perf_pass", 0, "test_decode_speed", ("passed", "PASS")),
        ("perf_fail", 10, "test_decode_speed", ("failure", "FAIL")),
        ("infra", 11, "test_every_run_came_to_its_end", ("error", "INFRA")),
        ("perf_invalid_constant", 12, "test_decode_speed", ("skipped", "INVALID")),
        ("perf_invalid_emulated", 12, "test_decode_speed", ("skipped", "INVALID")),
        ("perf_inconclusive", 13, "test_decode_speed", ("skipped", "INCONCLUSIVE")),
    ],
)
def test_a_golden_journal_drives_its_verdict_everywhere(
    journal: str, exit_code: int, test: str, outcome: tuple[str, str], tmp_path: Path
) -> None:
    assert run_suites(DATA / "journals" / journal, tmp_path) == exit_code
    assert outcomes(tmp_path)[test] == outcome
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["exit_code"] == exit_code
    assert verdict["synthetic"] is True
    page = (tmp_path / "report.html").read_text()
    assert "synthetic" in page.lower()
    assert f'"status":"{verdict["status"]}"' in page


def test_a_constant_answer_fails_accuracy_and_its_speed_is_invalid(tmp_path: Path) -> None:
    run_suites(DATA / "journals" / "perf_invalid_constant", tmp_path)
    found = outcomes(tmp_path)
    assert found["test_the_answer_is_not_one_token_over_and_over"] == ("failure", "FAIL")
    speeds = ["test_decode_speed", "test_prefill_speed", "test_time_to_first_token", "test_loading"]
    assert Counter(found[name] for name in speeds) == {("skipped", "INVALID"): 4}


def test_synthetic_data_is_never_a_release_verdict(tmp_path: Path) -> None:
    assert run_suites(DATA / "journals" / "perf_pass", tmp_path, "--release") == 12


def test_a_journal_that_does_not_exist_is_the_users_error(tmp_path: Path) -> None:
    assert run_suites(tmp_path / "nowhere", tmp_path) == 20
