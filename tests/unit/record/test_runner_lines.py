"""What the runner wrote: any text gives a log, and nothing that is no record becomes one."""

from __future__ import annotations

import json

import pytest

from harness.record.codec import to_json
from harness.record.runner import EMPTY_LOG, Phase, RunnerFault, parse_runner_lines

PHASE = Phase(name="backend", detail="", start_ns=1, end_ns=2)
FAULT = RunnerFault(
    error="ARCH_MISMATCH", exit_code=13, where="ar64.bin", what="w", found="v73", expected="v75", next_step="n",
    qnn_code=None, qnn_name=None,
)  # fmt: skip


def line(kind, record):
    return json.dumps({"type": kind, **to_json(record)})


def test_records_are_sorted_by_kind():
    log = parse_runner_lines([line("phase", PHASE), line("error", FAULT), "", "   "])
    assert log.phases == (PHASE,)
    assert log.fault == FAULT
    assert log.end is None
    assert log.unknown_lines == ()


def test_nothing_gives_the_empty_log():
    assert parse_runner_lines([]) == EMPTY_LOG


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: linker: something of Android's",
        '{"type":"phase","name":"backend"',
        '{"type":"phase","name":"backend","detail":"","start_ns":"1","end_ns":2}',
        '{"type":"phase","name":"backend","detail":"","start_ns":1}',
        '{"type":"phase","name":"backend","detail":"","start_ns":1,"end_ns":2,"colour":"red"}',
        '{"type":"moon"}',
        '{"type":["phase"]}',
        '{"name":"no type"}',
        "[1]",
        "5",
        "null",
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_record_is_kept_as_unknown(text):
    log = parse_runner_lines([text, line("phase", PHASE)])
    assert log.phases == (PHASE,)
    assert log.unknown_lines == (text[:200],)


def test_unknown_lines_are_bounded():
    log = parse_runner_lines(["x" * 1000] * 50)
    assert len(log.unknown_lines) == 20
    assert {len(text) for text in log.unknown_lines} == {200}


@pytest.mark.parametrize(
    "change",
    [
        {"start_ns": 2**63},
        {"start_ns": 10**400},
        {"detail": "\ud800"},
    ],
)
def test_what_a_journal_cannot_hold_is_no_record(change):
    text = json.dumps({"type": "phase", **to_json(PHASE), **change})
    log = parse_runner_lines([text])
    assert log.phases == ()
    assert len(log.unknown_lines) == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_without_a_finite_value_is_no_record(number):
    score = {"prompt_id": "p", "mode": "score", "repetition": 0, "warmup": False, "step_with": "chunk", "n_prompt": 2,
             "n_cached": 0, "start_ns": 1, "end_ns": 2, "prefill": [], "relayout_ns": 0, "token_ns": [],
             "token_ids": [], "argmax_ids": [], "stop": "scored", "nll": [0.5], "logits": None,
             "heap_allocations": 0}  # fmt: skip
    text = json.dumps({"type": "generation", **score})
    assert len(parse_runner_lines([text]).generations) == 1
    assert parse_runner_lines([text.replace("[0.5]", f"[{number}]")]).generations == ()
