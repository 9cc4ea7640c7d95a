"""How a verdict becomes a pytest outcome: PASS passed, FAIL failed, INFRA error, the rest skipped. Nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.record.verdict import Verdict
from harness.record.vocabulary import Status


class InfraOutcomeError(Exception):
    """Raised in a test whose verdict is INFRA; reported as an error, not as a failure of the model."""


def settle(verdict: Verdict, record_property: Callable[[str, object], None]) -> None:
    """End the running test the way ``verdict`` says."""
    record_property("verdict", str(verdict.status))
    record_property("metric", verdict.metric)
    record_property("source", str(verdict.source))
    record_property("unit", verdict.unit)
    record_property("value", "not measured" if verdict.value is None else repr(verdict.value))
    record_property("n", verdict.n_samples)
    record_property("reason", verdict.reason)
    text = f"{verdict.status}: {verdict.metric} of {verdict.cell}: {verdict.reason}"
    match verdict.status:
        case Status.PASS:
            return
        case Status.FAIL:
            pytest.fail(text, pytrace=False)
        case Status.INFRA:
            raise InfraOutcomeError(text)
        case Status.INVALID | Status.INCONCLUSIVE | Status.NOT_COVERED:
            pytest.skip(text)


def as_error_if_infra(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """pytest counts a failure outside the call phase as an error, which is what the lab's faults are."""
    if call.excinfo is not None and call.excinfo.errisinstance(InfraOutcomeError):
        report.when = "setup"
        report.longrepr = str(call.excinfo.value)
