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
def smoke_run(lab: Lab, case: Case) -> RunRecord | None:
    """A toy graph of one layer, then the artifact: a prompt of four tokens and one token of answer."""
    return lab.suite(case, "smoke")


@pytest.fixture(scope="session")
def edges_run(lab: Lab, case: Case) -> RunRecord | None:
    """Prompts of 1, N-1, N, N+1, 2N and context-length tokens with all logits, and a short one three times."""
    return lab.suite(case, "edges")


@pytest.fixture(scope="session")
def tasks_run(lab: Lab, case: Case) -> RunRecord | None:
    """Every item of the model's task sets, on the phone and by the fp32 graph on the host."""
    return lab.suite(case, "tasks")


@pytest.fixture(scope="session")
def sweep_run(lab: Lab, case: Case) -> RunRecord | None:
    """Prompts of 1 to 2048 tokens; one token behind 0 to 1920 cached ones; a token every two seconds; a request after 0
    to 20 s of rest; the longest text."""
    return lab.suite(case, "sweep")


@pytest.fixture(scope="session")
def operators_run(lab: Lab, case: Case) -> RunRecord | None:
    """A whole prefill chunk and some steps, with the library's detailed profiling on."""
    return lab.suite(case, "operators")


@pytest.fixture(scope="session")
def sustained_run(lab: Lab, case: Case) -> RunRecord | None:
    """300 tokens again and again until the phone is in a steady state, 42 times at most; 5 minutes of rest; then as
    long, held to 70 % of the speed."""
    return lab.suite(case, "sustained")


@pytest.fixture(scope="session")
def endurance_run(lab: Lab, case: Case) -> RunRecord | None:
    """200 rounds of load, dialogues of three turns, unload; every fourth round has twice the dialogues."""
    return lab.suite(case, "endurance")


@pytest.fixture(scope="session")
def ab_run(lab: Lab, case: Case) -> RunRecord:
    """Baseline and candidate of ``--ab`` in turn on one phone, in pairs, until it is decided or the budget ends."""
    return lab.ab(case)
