"""Dataclasses to JSON and back. Unknown fields are an error: a record we do not understand is never half read."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import cattrs
from cattrs.errors import BaseValidationError
from cattrs.preconf.json import make_converter

from harness.errors import UserError

T = TypeVar("T")

_converter = make_converter(forbid_extra_keys=True, detailed_validation=True)
_sparse = make_converter(omit_if_default=True)
_converter.register_structure_hook(PurePosixPath, lambda value, _: PurePosixPath(value))


def _exact(value: Any, kind: type[Any]) -> Any:
    """Numbers and strings are taken as they are: ``"5"`` is not 5, ``true`` is not 1, 1.5 is not an int. Integers have
    64 bits, since figures are computed from arrays of them.

    Also asked for string enumerations, whose class is found by its base ``str``.
    """
    if issubclass(kind, StrEnum):
        return _enum(value, kind)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    if kind is int and not -(2**63) <= value < 2**63:
        raise TypeError("expected an integer of 64 bits, found a larger one")
    return value


def _enum(value: Any, kind: type[StrEnum]) -> StrEnum:
    if type(value) is not str and not isinstance(value, kind):
        raise TypeError(f"expected one of {[str(member) for member in kind]}, found {value!r}")
    return kind(value)


for _kind in (int, float, str, bool):
    _converter.register_structure_hook(_kind, _exact)
for _each in (_converter, _sparse):
    _each.register_unstructure_hook(PurePosixPath, str)
    _each.register_unstructure_hook_func(lambda kind: isinstance(kind, type) and issubclass(kind, StrEnum), str)


def to_json(value: object) -> Any:
    """Plain dicts, lists, strings and numbers for any record dataclass."""
    return _converter.unstructure(value)


def to_sparse_json(value: object) -> Any:
    """As ``to_json``, without the fields that have their default: a field that is added later, with a default, changes
    nothing in what older records give."""
    return _sparse.unstructure(value)


def from_json(data: Any, kind: type[T], *, name: str) -> T:
    """``data`` as ``kind``; ``name`` is how the error calls the thing (a path, a line)."""
    try:
        return _converter.structure(data, kind)
    except (
        BaseValidationError,
        cattrs.errors.StructureHandlerNotFoundError,
        TypeError,
        ValueError,
        KeyError,
        AttributeError,
    ) as exc:
        reasons = "; ".join(cattrs.transform_error(exc, path=kind.__name__)[:4])
        raise UserError(
            f"{name} is not a valid {kind.__name__}",
            found=reasons,
            next_step="write it with the same version of SnapGate",
        ) from exc


def write_json(path: Path, value: object) -> None:
    """Write a record to ``path`` all or nothing: temporary file, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(to_json(value), stream, indent=1, sort_keys=True, allow_nan=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def read_raw(path: Path) -> dict[str, Any]:
    """The JSON object in a file, for looking at its schema before its fields."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as exc:
        raise UserError(
            f"{path} does not exist" if isinstance(exc, FileNotFoundError) else f"{path} cannot be read as JSON",
            found=(exc.strerror or str(exc)) if isinstance(exc, OSError) else str(exc),
            expected="a whole JSON file, as SnapGate wrote it",
            next_step="check the path, or have the file written again",
        ) from exc
    if not isinstance(data, dict):
        raise UserError(
            f"{path} is not a JSON object",
            found=f"JSON {type(data).__name__}",
            expected="an object",
            next_step="check the path, or have the file written again",
        )
    return data


def read_json(path: Path, kind: type[T]) -> T:
    return from_json(read_raw(path), kind, name=str(path))
