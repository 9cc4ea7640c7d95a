"""The table of checks in docs/gates.md names tests that exist, and every check that voids speed does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness.measure import selfcheck
from harness.record.comparison import SelfCheck
from harness.record.vocabulary import Family
from harness.results import refute

REPOSITORY = Path(__file__).resolve().parents[3]
TEST = re.compile(r"^\| (?P<check>[^|]+) \|[^|]+\| `(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)` \|$", re.MULTILINE)
ROWS = [m.groupdict() for m in TEST.finditer((REPOSITORY / "docs" / "gates.md").read_text(encoding="utf-8"))]
VOID_SPEED = (
    selfcheck.TOKEN_COUNT,
    selfcheck.CLOCK,
    selfcheck.HEAP_ALLOCATIONS,
    selfcheck.MODE_FLIP,
    selfcheck.OBSERVED,
)


def test_every_check_is_in_the_table():
    named = {row["check"].strip("`") for row in ROWS}
    wanted = {*VOID_SPEED, *refute.WRONG_OUTPUT, *refute.FAILS[Family.PLACEMENT]}
    wanted |= {refute.EMULATED, refute.CONDITIONS, refute.PERFORMANCE_MODE, refute.KNOWN_DEFECT}
    assert wanted <= named


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["check"].strip("`"))
def test_the_test_that_trips_it_exists(row):
    assert f"def {row['name']}(" in (REPOSITORY / row["file"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", VOID_SPEED)
def test_a_failed_check_voids_speed_and_not_accuracy(make, name):
    run = make.three_runs("s", make.STEADY)[0]
    failed = SelfCheck(run_id=run.run_id, cell=run.cell, name=name, passed=False, detail="why")
    assert refute.refutations(Family.PERFORMANCE, run, [failed]) == [f"{name}: why"]
    assert refute.refutations(Family.ACCURACY, run, [failed]) == []
    passed = dataclasses.replace(failed, passed=True)
    assert refute.refutations(Family.PERFORMANCE, run, [passed]) == []
