"""Task sets as JSON Lines: one question a line, multiple choice or exact match.

::

    {"id": "1", "prompt": "In the beginning God created the", "choices": [" heaven", " cart"], "answer": 0}
    {"id": "2", "prompt": "And God said, Let there be", "answer": " light"}

Prompt and choice are tokenized apart and put together, so a choice begins with its own blank. A model has its sets in
the catalogue: ``tasks = ["tiny-llama/tasks/verses.jsonl"]``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UserError
from harness.record.artifact import sha256_of

_KEYS = {"id", "prompt", "choices", "answer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    item_id: str
    prompt: str
    choices: tuple[str, ...]
    """Empty: exact match"""
    right: int
    """Index of the right choice"""
    text: str
    """Exact match: what has to be generated"""

    @property
    def chance(self) -> float:
        return 1.0 / len(self.choices) if self.choices else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    name: str
    sha256: str
    items: tuple[Item, ...]


def load_tasks(path: Path) -> TaskSet:
    """Raises ``UserError`` naming file and line for what is no question, or could not be answered wrongly."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: a text may hold U+2028 or U+0085
    except (OSError, UnicodeDecodeError) as exc:
        raise UserError(
            f"{path} cannot be read",
            found=str(exc),
            expected="a task set: JSON Lines, UTF-8",
            next_step="check `tasks`",
        ) from exc
    items = tuple(_item(line, path, n) for n, line in enumerate(lines, 1) if line.strip())
    if not items:
        raise UserError(f"{path} has no question", found="no line", expected="at least one")
    ids = [item.item_id for item in items]
    twins = [name for name in ids if ids.count(name) > 1]
    if twins:
        raise UserError(f"{path}: id used twice", found=twins[0], expected="each one once")
    return TaskSet(name=path.stem, sha256=sha256_of(path), items=items)


def _item(line: str, path: Path, number: int) -> Item:
    def refuse(found: str, expected: str) -> NoReturn:
        raise UserError(f"{path}, line {number}: no question", found=found, expected=expected)

    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError) as exc:
        refuse(str(exc), "a JSON object")
    if not isinstance(data, dict) or not set(data) <= _KEYS or not {"id", "prompt", "answer"} <= set(data):
        refuse(
            ", ".join(map(str, data)) if isinstance(data, dict) else type(data).__name__,
            "id, prompt, answer, and choices or none",
        )
    prompt, answer, choices = data["prompt"], data["answer"], data.get("choices")
    if not isinstance(data["id"], str) or not isinstance(prompt, str) or not prompt.strip():
        refuse("id or prompt", "texts that are not blank")
    if choices is None:
        if not isinstance(answer, str) or not answer.strip():
            refuse(f"answer {answer!r}", "the text to be generated")
        return Item(item_id=data["id"], prompt=prompt, choices=(), right=0, text=answer)
    if not isinstance(choices, list) or len(choices) < 2 or not all(isinstance(c, str) and c for c in choices):
        refuse("choices", "at least two texts")
    if len(set(choices)) < len(choices):
        refuse("two equal choices", "different ones")
    if type(answer) is not int or not 0 <= answer < len(choices):
        refuse(f"answer {answer!r}", f"the number of the right choice, 0 to {len(choices) - 1}")
    return Item(item_id=data["id"], prompt=prompt, choices=tuple(choices), right=answer, text="")
