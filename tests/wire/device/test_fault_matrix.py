"""A sample of `make bench-phones`: faults at stages of a run over the real wire. The whole table is in docs/."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.errors import InfraError
from harness.virtual.lab import PhoneSpec, VirtualLab

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("build"),
    pytest.mark.xdist_group("wire-matrix"),
]

SEED = 5
N_SAMPLED = 40


def load(name: str) -> ModuleType:
    folder = str(Path(__file__).resolve().parents[3] / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


faults: Any = load("phones_faults")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "model").mkdir()
    model = load("phones_standin").make_model(folder / "model")
    with VirtualLab.start(folder / "lab", [PhoneSpec(marker="gen3")]) as lab:
        yield faults.Matrix(lab, folder / "lab", model, folder, seed=SEED)


def sample() -> list[Any]:
    cases = random.Random(SEED).sample(faults.all_cases(), N_SAMPLED - 6)
    return sorted(cases, key=lambda case: case.number) + list(faults.random_cases(6, SEED))


@pytest.mark.slow
@pytest.mark.parametrize("struck", sample(), ids=lambda case: f"{case.stage}-{case.name}".replace(" ", "_"))
def test_a_fault_is_named_and_nothing_is_lost(matrix: Any, struck: Any) -> None:
    outcome = matrix.carry_out(struck)
    assert outcome.wrong == [], (outcome.ended, outcome.said)


def test_the_matrix_has_every_fault_at_every_stage() -> None:
    cases = faults.all_cases()
    assert len(cases) == len(faults.FAULTS) * len(faults.STAGES) >= 200
    assert len({(case.name, case.stage) for case in cases}) == len(cases)
    assert faults.random_cases(9, 3) == faults.random_cases(9, 3) != faults.random_cases(9, 4)


@pytest.mark.parametrize(
    ("refusal", "wrong"),
    [
        ("no usable phone; found: offline", 0),
        ("something else happened", 1),
    ],
)
def test_a_case_that_does_not_name_its_cause_is_wrong(refusal: str, wrong: int) -> None:
    case = next(case for case in faults.all_cases() if case.name == "offline")
    assert len(faults.judge_case(case, None, InfraError(refusal), None, ())) == wrong
