"""A sample of `make bench-phones` over the real wire: faults before the runner works. The whole table is in docs/."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InfraError

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("build"),
    pytest.mark.xdist_group("wire-matrix"),
]

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
faults: Any = importlib.import_module("phones_faults")
BEFORE = ("discover", "push", "start")


@pytest.mark.slow
@pytest.mark.parametrize("struck", [case for case in faults.sample() if case.stage in BEFORE], ids=str)
def test_a_fault_before_the_work_is_named_and_nothing_is_lost(matrix: Any, struck: Any) -> None:
    outcome = matrix.carry_out(struck)
    assert outcome.wrong == [], (outcome.ended, outcome.said)


def test_the_matrix_has_every_fault_at_every_stage() -> None:
    cases = faults.all_cases()
    assert len(cases) == len(faults.FAULTS) * len(faults.STAGES) >= 200
    assert len({(case.name, case.stage) for case in cases}) == len(cases)
    assert faults.random_cases(9, 3) == faults.random_cases(9, 3) != faults.random_cases(9, 4)


def test_the_sample_has_40_cases_of_every_stage() -> None:
    assert len(faults.sample()) == 40
    assert {case.stage for case in faults.sample()} == set(faults.STAGES)


@pytest.mark.parametrize(
    ("fault", "refusal", "wrong"),
    [
        ("offline", "no usable phone; found: offline: adb has lost the connection; replug it", 0),
        ("offline", "something else happened", 1),
        ("offline", "run the model: phone P went away; found: state 'offline'; back after 1 s: it had rebooted", 1),
        ("reboot", "run the model: phone P went away; found: state 'offline'; back after 1 s: it had rebooted", 0),
        ("reboot", "run the model: phone P went away; found: state 'offline'; back after 1 s: it had not rebooted", 1),
        ("corrupted pull", "pull f from phone P: cut short on the way; found: 3 of 5 bytes", 1),
        ("truncated pull", "pull f from phone P: cut short on the way; found: 100 of 512 bytes", 0),
        ("clock jumps back", "anything", 1),
    ],
)
def test_a_case_that_does_not_name_its_cause_is_wrong(fault: str, refusal: str, wrong: int) -> None:
    case = next(case for case in faults.all_cases() if case.name == fault)
    assert len(faults.judge_case(case, None, InfraError(refusal), None, ())) == wrong
