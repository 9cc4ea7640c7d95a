"""The runs that the suites judge. Each is made once per case, however many tests ask for it."""

from __future__ import annotations

import pytest

from harness.plugin.case import Case
from harness.plugin.lab import Lab
from harness.record.run import RunRecord


@pytest.fixture(scope="session")
def accuracy_run(lab: Lab, case: Case) -> RunRecord:
    """Prompts continued along the fp32 reference's own greedy tokens with all logits kept, held-out windows scored,
    and one prompt sent through the decode graph token by token; compared with the host reference."""
    return lab.accuracy(case)


@pytest.fixture(scope="session")
def latency_run(lab: Lab, case: Case) -> RunRecord:
    """One warm-up and five repetitions of greedy generation in one process, sensors on."""
    return lab.latency(case)


@pytest.fixture(scope="session")
def ab_run(lab: Lab, case: Case) -> RunRecord:
    """Baseline and candidate of ``--ab`` in turn on one phone, in pairs, until it is decided or the budget ends."""
    return lab.ab(case)
