"""A run's verdict as Markdown, JSON (schema ``snapgate.verdict/1``) and JUnit XML. Synthetic data is marked in each."""

from __future__ import annotations

import json
import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from harness.record.codec import to_json
from harness.record.verdict import RunVerdict, Verdict
from harness.record.vocabulary import EXIT_CODES, PYTEST_OUTCOME, SEVERITY, Status
from harness.results.judge import SYNTHETIC_NOTE, is_synthetic

VERDICT_SCHEMA: Final = "snapgate.verdict/1"
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_markdown(verdict: RunVerdict) -> str:
    """The verdict of the run, the notes, and a table: required metrics first, the worst of them on top."""
    lines = [f"# SnapGate verdict: {verdict.status} (exit code {EXIT_CODES[verdict.status]})", ""]
    if is_synthetic(verdict):
        lines += [f"> **{SYNTHETIC_NOTE}**", ""]
    if verdict.decided_by:
        lines += ["Decided by: " + "; ".join(f"`{_flat(place)}`" for place in verdict.decided_by), ""]
    lines += [f"- {_flat(note)}" for note in verdict.notes if note != SYNTHETIC_NOTE]
    counts = ", ".join(f"{n} {status}" for status, n in verdict.n_by_status.items() if n)
    lines += ["", f"{len(verdict.verdicts)} verdicts: {counts or 'none'}.", ""]
    if verdict.verdicts:
        lines += [
            "| verdict | required | metric | cell | phone | source | value | unit | n | reason |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
    lines += ["| " + " | ".join(_flat(text) for text in _row(v)) + " |" for v in by_weight(verdict.verdicts)]
    return "\n".join(lines) + "\n"


def by_weight(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Required before others, then the worst first; otherwise in the given order."""
    return sorted(verdicts, key=lambda v: (not v.required, SEVERITY.index(v.status)))


def _row(v: Verdict) -> tuple[str, ...]:
    return (
        str(v.status),
        "yes" if v.required else "no",
        v.metric,
        str(v.cell),
        v.serial or "none",
        str(v.source),
        "not measured" if v.value is None else f"{v.value:.6g}",
        v.unit,
        str(v.n_samples),
        v.reason if v.limit is None or v.limit.untested is None else f"{v.reason}; gate untested: {v.limit.untested}",
    )


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def verdict_json(verdict: RunVerdict) -> dict[str, Any]:
    """Plain JSON. A number that is not finite becomes null; its verdict is FAIL and says why."""
    synthetic = is_synthetic(verdict)
    body: dict[str, Any] = _finite(to_json(verdict))
    return {
        "schema": VERDICT_SCHEMA,
        "exit_code": EXIT_CODES[verdict.status],
        "synthetic": synthetic,
        "watermark": SYNTHETIC_NOTE if synthetic else None,
        **body,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def junit_xml(verdict: RunVerdict) -> str:
    """One test case per verdict: FAIL is a failure, INFRA an error, INVALID, INCONCLUSIVE and NOT_COVERED are skipped.

    ``classname`` is the cell, ``name`` the metric with the serial in brackets. The suite carries the run's verdict.
    """
    outcomes = [PYTEST_OUTCOME[v.status] for v in verdict.verdicts]
    suite = ET.Element(
        "testsuite",
        name="snapgate gate",
        tests=str(len(outcomes)),
        failures=str(outcomes.count("failed")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
        time="0",
    )
    _properties(
        suite,
        [
            ("verdict", str(verdict.status)),
            ("exit_code", str(EXIT_CODES[verdict.status])),
            *([("watermark", SYNTHETIC_NOTE)] if is_synthetic(verdict) else []),
            *(("decided_by", place) for place in verdict.decided_by),
            *(("note", note) for note in verdict.notes if note != SYNTHETIC_NOTE),
        ],
    )
    for v in verdict.verdicts:
        name = v.metric if v.serial is None else f"{v.metric}[{v.serial}]"
        case = ET.SubElement(suite, "testcase", classname=_clean(str(v.cell)), name=_clean(name), time="0")
        _properties(
            case,
            [
                ("verdict", str(v.status)),
                ("required", str(v.required).lower()),
                ("source", str(v.source)),
                ("unit", v.unit),
                ("value", "not measured" if v.value is None else repr(v.value)),
                ("n", str(v.n_samples)),
                *(("run_id", run_id) for run_id in v.run_ids),
            ],
        )
        if v.status is Status.PASS:
            continue
        element = {"failed": "failure", "error": "error", "skipped": "skipped"}[PYTEST_OUTCOME[v.status]]
        text = _clean(f"{v.status}: {v.reason}")
        ET.SubElement(case, element, message=text, type=str(v.status)).text = text
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _properties(parent: ET.Element, pairs: Iterable[tuple[str, str]]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in pairs:
        ET.SubElement(properties, "property", name=name, value=_clean(value))


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold; a phone's messages may contain any."""
    return _NOT_XML.sub("\ufffd", text)


def write_documents(
    verdict: RunVerdict, *, markdown: Path | None = None, json_file: Path | None = None, junit: Path | None = None
) -> None:
    """Write the documents that have a path, each all or nothing."""
    if markdown is not None:
        _write(markdown, to_markdown(verdict))
    if json_file is not None:
        _write(json_file, json.dumps(verdict_json(verdict), indent=1, allow_nan=False) + "\n")
    if junit is not None:
        _write(junit, junit_xml(verdict))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
