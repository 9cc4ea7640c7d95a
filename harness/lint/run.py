"""All rules over an artifact folder or an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import onnx

from harness.errors import UserError, first_line
from harness.lint import artifacts, numbers, structure
from harness.lint.findings import Finding, Severity, View
from harness.record.artifact import load_artifact
from harness.soc import Soc

RULES: Final = (
    numbers.mask_scale,
    numbers.masked_rows,
    numbers.half_range,
    numbers.squared_norms,
    numbers.int4_zero_points,
    numbers.bias_overflow,
    numbers.softmax_range,
    structure.edges,
    structure.data_files,
)


def lint(
    target: Path, soc: Soc, *, checkpoint: Path | None = None, progress: Callable[[str], None] = lambda _: None
) -> tuple[Finding, ...]:
    """Findings, errors first. ``checkpoint``: what an artifact's rotary table is compared with."""
    found: list[Finding] = []
    if target.is_dir():
        artifact = load_artifact(target)
        found += artifacts.graphs_kept(artifact)
        found += artifacts.kv_scales(artifact)
        found += artifacts.rope(artifact, checkpoint)
        found += artifacts.pieces(artifact, soc)
        found += artifacts.loose_ends(artifact)
        for path in sorted((target / "reference").glob("graph_*.onnx")):
            progress(f"reading {path.name}")
            found += lint_model(path, soc)
    else:
        found += lint_model(target, soc)
    return tuple(sorted(found, key=lambda finding: finding.severity is not Severity.ERROR))


def lint_model(path: Path, soc: Soc) -> list[Finding]:
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as exc:
        raise UserError(
            f"{path} is not an ONNX model",
            found=first_line(exc),
            expected="an ONNX file, or an artifact folder",
            next_step="check the path",
        ) from exc
    view = View(path.name, model, path.parent)
    found = [finding for rule in RULES for finding in rule(view)]
    return [*found, *structure.arch_floor(view, soc), *structure.contexts(view, path.parent)]
