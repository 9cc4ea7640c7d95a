"""The other part of the sample of `make bench-phones`: faults while the runner works, and after."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("build"),
    pytest.mark.xdist_group("wire-matrix-at-work"),
]

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
faults: Any = importlib.import_module("phones_faults")
AT_WORK = ("prefill", "decode", "pull", "record")


@pytest.mark.slow
@pytest.mark.parametrize("struck", [case for case in faults.sample() if case.stage in AT_WORK], ids=str)
def test_a_fault_at_work_is_named_and_nothing_is_lost(matrix: Any, struck: Any) -> None:
    outcome = matrix.carry_out(struck)
    assert outcome.wrong == [], (outcome.ended, outcome.said)
