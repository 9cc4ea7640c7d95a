"""Task sets: what is a question, and what is refused by file and line."""

from __future__ import annotations

import json

import pytest

from harness.errors import UserError
from harness.spec.tasks import load_tasks

CHOICE = {"id": "1", "prompt": "two and two are", "choices": [" four", " five", " six", " ten"], "answer": 0}
EXACT = {"id": "2", "prompt": "And God said, Let there be", "answer": " light"}


def write(tmp_path, *items):
    path = tmp_path / "verses.jsonl"
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return path


def test_both_kinds_of_question_are_read_and_know_what_guessing_gets(tmp_path):
    tasks = load_tasks(write(tmp_path, CHOICE, "", EXACT))
    assert tasks.name == "verses"
    assert [item.chance for item in tasks.items] == [0.25, 0.0]
    assert (tasks.items[0].right, tasks.items[1].text) == (0, " light")


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        {"id": "3", "prompt": "x"},
        {"id": "3", "prompt": " ", "answer": "y"},
        {"id": "3", "prompt": "x", "answer": ""},
        {"id": "3", "prompt": "x", "answer": 0, "choices": ["a"]},
        {"id": "3", "prompt": "x", "answer": 0, "choices": ["a", "a"]},
        {"id": "3", "prompt": "x", "answer": 2, "choices": ["a", "b"]},
        {"id": "3", "prompt": "x", "answer": True, "choices": ["a", "b"]},
        {"id": "3", "prompt": "x", "answer": "a", "choices": ["a", "b"]},
        {"id": 3, "prompt": "x", "answer": "y"},
        {"id": "3", "prompt": "x", "answer": "y", "hint": "z"},
    ],
)
def test_what_is_no_question_is_refused_with_its_line(bad, tmp_path):
    with pytest.raises(UserError, match=r"verses\.jsonl, line 2: no question"):
        load_tasks(write(tmp_path, CHOICE, bad))


def test_an_empty_set_and_an_id_used_twice_are_refused(tmp_path):
    with pytest.raises(UserError, match="has no question"):
        load_tasks(write(tmp_path))
    with pytest.raises(UserError, match="id used twice"):
        load_tasks(write(tmp_path, CHOICE, EXACT, CHOICE))


def test_a_line_separator_within_a_text_does_not_end_the_line(tmp_path):
    item = {**EXACT, "prompt": "first\u2028second\u0085third"}
    (read,) = load_tasks(write(tmp_path, json.dumps(item, ensure_ascii=False))).items
    assert read.prompt == "first\u2028second\u0085third"
