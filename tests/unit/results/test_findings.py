"""Each rule of the findings applies to the record that it is about, and to no other."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from harness.record.comparison import Leg
from harness.record.runner import RunnerFault
from harness.record.vocabulary import Source
from harness.results.derive import derive
from harness.results.findings import RULES, Weight, find


@pytest.fixture(scope="module")
def made():
    path = Path(__file__).parents[1] / "reports" / "journals.py"
    spec = importlib.util.spec_from_file_location("journals_for_findings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules(journal):
    return [finding.rule for finding in find(journal, derive(journal))]


def changed(journal, **changes):
    return dataclasses.replace(journal, runs=(dataclasses.replace(journal.runs[0], **changes),))


@pytest.fixture
def calm(made):
    """A real phone in a fair condition whose logits are those of its graph."""
    journal = made.passing()
    run = journal.runs[0]
    conditions = dataclasses.replace(run.conditions, charging=False)
    journal = changed(
        journal, source=Source.PHONE, conditions=conditions, device=made.device(run.cell, "P", virtual=False)
    )
    host = dataclasses.replace(journal.runs[0].host, load_1min_after=1.0)
    near = tuple(
        dataclasses.replace(item, snr_db=(42.0,) * len(item.snr_db)) if item.leg is Leg.PHONE else item
        for item in journal.logits
    )
    return dataclasses.replace(changed(journal, host=host), logits=near)


def test_nothing_stands_out_in_a_calm_journal(calm):
    assert rules(calm) == []


def test_a_run_that_failed_is_an_error_with_the_runners_own_words(made, calm):
    fault = RunnerFault(
        error="HASH_MISMATCH", exit_code=22, where="read", what="ar1.bin", found="aa", expected="bb",
        next_step="push it again", qnn_code=1001, qnn_name="QNN_COMMON_ERROR_MEM_ALLOC",
    )  # fmt: skip
    lost = made.two_cells().runs[2]
    run = dataclasses.replace(lost, log=dataclasses.replace(lost.log, fault=fault))
    (finding,) = [f for f in find(dataclasses.replace(calm, runs=(run,)), ()) if f.rule == "run_failed"]
    assert finding.weight is Weight.ERROR
    assert finding.what == "the run ended by a fault of the lab"
    assert finding.next_step == "push it again"
    assert "found aa, expected bb" in finding.evidence
    assert "QNN: QNN_COMMON_ERROR_MEM_ALLOC (1001)" in finding.evidence


def test_a_phone_a_decibel_further_than_its_graph_is_named(made):
    """40 dB on the phone, 42 dB of the graph: 2 dB."""
    (finding,) = [f for f in find(made.passing(), derive(made.passing())) if f.rule == "phone_further_than_graph"]
    assert finding.evidence[0].startswith("2.0 dB, median over 4 positions")


def test_divergence_counts_only_where_fp32_was_sure(made):
    journal = made.passing()
    assert "diverged" not in rules(journal)  # a margin of 0.05
    sure = tuple(dataclasses.replace(item, reference_margin=(0.5,) * len(item.positions)) for item in journal.logits)
    (finding,) = [f for f in find(dataclasses.replace(journal, logits=sure), ()) if f.rule == "diverged"]
    assert finding.evidence == ("prompt story: step 4 of 4, fp32 margin 0.500 logits",)


def test_conditions_host_memory_retries_and_foreign_output_are_named(calm):
    run = calm.runs[0]
    assert rules(changed(calm, conditions=dataclasses.replace(run.conditions, violations=("charging",)))) == [
        "conditions"
    ]
    platform = dataclasses.replace(run.log.platform, performance_accepted=False)
    assert rules(changed(calm, log=dataclasses.replace(run.log, platform=platform))) == ["conditions"]
    assert rules(changed(calm, host=dataclasses.replace(run.host, load_1min_after=9.0))) == ["host_busy"]
    memory = tuple(dataclasses.replace(m, vm_swap_bytes=2**20) for m in run.log.memory)
    assert rules(changed(calm, log=dataclasses.replace(run.log, memory=memory))) == ["swapped"]
    assert rules(changed(calm, retried_because="PhoneLostError: gone")) == ["retried"]
    assert rules(changed(calm, log=dataclasses.replace(run.log, unknown_lines=("WARNING: lib",)))) == ["foreign_output"]
    assert rules(changed(calm, sensors=())) == ["no_temperature"]


def test_a_self_check_that_does_not_hold_is_an_error(calm):
    check = dataclasses.replace(calm.self_checks[0], passed=False, detail="all answers are alike")
    (finding,) = find(dataclasses.replace(calm, self_checks=(check,)), ())
    assert (finding.rule, finding.weight, finding.evidence) == ("self_check", Weight.ERROR, ("all answers are alike",))


def test_errors_come_first_and_every_rule_is_looked_at(made):
    found = find(made.two_cells(), derive(made.two_cells()))
    weights = [list(Weight).index(finding.weight) for finding in found]
    assert weights == sorted(weights)
    assert len(RULES) == 11
