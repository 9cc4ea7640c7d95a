"""The longest text: the whole context first; where that fails, by bisection to within a chunk."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.plugin.suite_runs import PHONE, longest, pauses
from harness.plugin.suites import longest_text
from harness.record.vocabulary import Status


def search(works, context=512, step=64, status=Status.FAIL):
    tried = []

    def probe(n):
        tried.append(n)
        return SimpleNamespace(n=n, error=None if works(n) else SimpleNamespace(status=status))

    return longest_text(probe, context, step=step, say=lambda _: None), tried


def test_a_phone_that_holds_the_context_is_asked_once():
    found, tried = search(lambda n: n <= 512)
    assert (found.n, tried) == (512, [512])


@pytest.mark.parametrize("most", [1, 63, 64, 200, 300, 448, 511])
def test_what_is_found_works_and_a_chunk_more_does_not(most):
    found, tried = search(lambda n: n <= most)
    if found.error is None:
        assert most - 64 < found.n <= most
    else:
        assert most < 64
    assert len(tried) <= 1 + 3


def test_where_nothing_works_the_failure_itself_is_the_record():
    found, tried = search(lambda n: n < 1)
    assert found.n == 512
    assert tried == [512, 256, 128, 64]


def test_a_fault_of_the_lab_ends_the_search():
    found, tried = search(lambda n: n < 1, status=Status.INFRA)
    assert (found.n, tried) == (512, [512])


@pytest.mark.parametrize("n", [2, 64, 512])
def test_the_last_token_of_the_text_is_the_first_that_needs_no_place(n):
    """Prompt and generated tokens less the last, which is never fed back, fill the cache."""
    (prompt,) = longest(tuple(range(512)), n, PHONE).prompts
    assert len(prompt.tokens) + prompt.n_gen - 1 == n


def test_each_rest_is_asked_for_before_each_repetition():
    prompts = pauses(tuple(range(8)), PHONE).prompts
    assert [(p.prompt_id, p.pause_s, p.repetitions) for p in prompts] == [
        ("pause-0", 0.0, 5), ("pause-1", 1.0, 5), ("pause-5", 5.0, 5), ("pause-20", 20.0, 5),
    ]  # fmt: skip
