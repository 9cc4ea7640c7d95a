"""The closed sets of words, and the one mapping of a verdict to the outside world."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from harness import errors
from harness.record.vocabulary import (
    DTYPE_BYTES,
    EXIT_CODES,
    PYTEST_OUTCOME,
    SEVERITY,
    DType,
    Status,
    worst,
)


def test_exit_codes_are_those_of_the_shared_schema_and_start_at_ten():
    shared = json.loads((resources.files("harness.record") / "schema" / "exit_codes.json").read_text())["snapgate"]
    for status, code in EXIT_CODES.items():
        assert shared[status] == code
        assert code == 0 if status is Status.PASS else code >= 10
    assert len(set(EXIT_CODES.values())) == len(Status)
    assert shared["USER_ERROR"] == errors.UserError.exit_code
    assert shared["HOST_ERROR"] == errors.HostError.exit_code
    assert shared["MODEL_ERROR"] == errors.ModelError.exit_code
    assert shared["INFRA"] == errors.InfraError.exit_code


def test_every_status_has_a_severity_an_exit_code_and_a_pytest_outcome():
    assert set(SEVERITY) == set(Status) == set(EXIT_CODES) == set(PYTEST_OUTCOME)
    assert [PYTEST_OUTCOME[s] for s in SEVERITY] == ["failed", "error", "skipped", "skipped", "skipped", "passed"]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], Status.NOT_COVERED),
        ([Status.PASS], Status.PASS),
        ([Status.PASS, Status.NOT_COVERED], Status.NOT_COVERED),
        ([Status.INCONCLUSIVE, Status.NOT_COVERED], Status.INCONCLUSIVE),
        ([Status.INCONCLUSIVE, Status.INVALID], Status.INVALID),
        ([Status.INFRA, Status.INVALID], Status.INFRA),
        ([Status.INFRA, Status.FAIL, Status.PASS], Status.FAIL),
    ],
)
def test_the_worst_status(statuses, expected):
    assert worst(statuses) is expected


def test_every_dtype_has_a_size():
    assert set(DTYPE_BYTES) == set(DType)
