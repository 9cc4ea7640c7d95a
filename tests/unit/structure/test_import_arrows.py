"""Imports point one way. The table below is the picture of ARCHITECTURE.md; an arrow that is not in it fails here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "soc": {"errors"},
    "record": {"errors", "soc"},
    "spec": {"errors", "soc", "record"},
    "journal": {"errors", "soc", "record"},
    "model": {"errors", "soc", "record"},
    "measure": {"errors", "soc", "record"},
    "device": {"errors", "soc", "record"},
    "pool": {"errors", "soc", "record", "device"},
    "virtual": {"errors", "soc"},
    "compiler": {"errors", "soc", "record", "model"},
    "lint": {"errors", "soc", "record", "model", "compiler"},
    "runtime": {"errors", "soc", "record"},
    "run": {"errors", "soc", "record", "journal", "device", "runtime"},
    "results": {"errors", "soc", "record", "journal", "measure", "spec"},
    "reports": {"errors", "soc", "record", "journal", "measure", "spec", "results"},
}
FREE = {"plugin", "cli"}
ONLY_IN: dict[str, set[str]] = {
    "pytest": {"plugin"},
    "adbutils": {"device", "pool"},
    "onnxruntime_qnn": {"compiler"},
    "onnxruntime": {"model", "compiler"},
    "onnx": {"model", "compiler", "lint"},
}


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "reports":
        return "reports"
    return parts[1] if len(parts) > 1 else parts[0]


def modules() -> list[Path]:
    found = sorted(p for top in ("harness", "reports") for p in (ROOT / top).rglob("*.py"))
    return [p for p in found if p.relative_to(ROOT).as_posix() != "harness/__init__.py"]


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(path.relative_to(ROOT).parts[: -node.level]) if node.level else ""
            base = ".".join(part for part in (package, node.module) if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_the_walk_sees_every_room() -> None:
    assert {room_of(path) for path in modules()} >= set(ALLOWED) | FREE


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_follow_the_arrows(path: Path) -> None:
    room = room_of(path)
    for name in imports_of(path):
        top, _, rest = name.partition(".")
        if top in ONLY_IN and room not in FREE - {"cli"}:
            assert room in ONLY_IN[top], f"{room} must not import {top}"
        if room in FREE or top not in {"harness", "reports"}:
            continue
        target = "reports" if top == "reports" else rest.split(".")[0]
        if target in {room, "__version__", ""}:
            continue
        assert target in ALLOWED[room], f"arrow points the wrong way: {room} imports {target}"
