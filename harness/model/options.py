"""JSON objects of a checkpoint, read with error messages that name file and key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A JSON object, or the metadata of a GGUF file, that knows where it came from."""

    path: Path
    values: dict[str, Any]

    def positive_int(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key)
        if value is None:
            value = default
        if type(value) is not int or value < 1:
            raise self.wrong(key, "a positive whole number")
        return value

    def positive_float(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key)
        if value is None:
            value = default
        if type(value) not in (int, float) or value is None or not value > 0:
            raise self.wrong(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key)
        if value is None:
            value = default
        if type(value) is not str:
            raise self.wrong(key, "a text")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One id, a list of them, or nothing."""
        value = self.values.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if any(type(token) is not int or token < 0 for token in ids):
            raise self.wrong(key, "a token id, or a list of them")
        return tuple(ids)

    def wrong(self, key: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: {key} cannot be used",
            found=repr(self.values[key]) if key in self.values else "no such key",
            expected=expected,
            next_step="fetch the checkpoint again, or choose a supported model",
        )


def read_options(path: Path) -> Options:
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing",
            expected="a checkpoint folder with config.json, model.safetensors and tokenizer.json",
            next_step="fetch the checkpoint again, or check the path",
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise CheckpointError(
            f"{path} is damaged", found=str(exc), expected="JSON", next_step="fetch the checkpoint again"
        ) from exc
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is damaged", found=f"JSON {type(data).__name__}", expected="a JSON object")
    return Options(path=path, values=data)


def read_optional(path: Path) -> Options:
    """No file is an empty object."""
    return read_options(path) if path.is_file() else Options(path=path, values={})
