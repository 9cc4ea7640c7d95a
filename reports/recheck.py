"""The documents of a run made again from its journal, and where the stored ones differ."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.journal import Journal
from harness.record.artifact import ArtifactManifest
from harness.record.verdict import Measurement, RunVerdict
from harness.results.documents import verdict_json
from harness.results.integrity import Difference, json_differences
from reports.render import DEFAULT_TITLE, render_html, render_json, render_markdown

_DATA: Final = re.compile(r'<script type="application/json" id="snapgate-data">(.*?)</script>', re.DOTALL)


def document_differences(
    results: Path,
    journal: Journal,
    verdict: RunVerdict,
    measurements: Sequence[Measurement],
    manifests: Sequence[ArtifactManifest],
    *,
    same_code: bool,
    title: str = DEFAULT_TITLE,
) -> list[Difference]:
    """Every number of ``verdict.json``, ``report.json`` and the page's data block against those computed again.

    With ``same_code`` the page and the Markdown must also be the same text; other code may lay them out otherwise.
    """
    found = _compared("verdict.json", results, verdict_json(verdict))
    found += _compared("report.json", results, json.loads(render_json(journal, verdict, measurements, title=title)))
    page = render_html(journal, verdict, measurements, results_dir=Path(), manifests=manifests, title=title)
    markdown = render_markdown(journal, verdict, measurements, title=title)
    stored = _text(results / "report.html")
    if stored is None:
        found.append(Difference(where="report.html", what="is gone"))
    else:
        in_data = _data_differences(stored, page)
        found += in_data
        if same_code and stored != page and not in_data:
            found.append(Difference(where="report.html", what="its text is not what the journal gives"))
    if same_code and _text(results / "report.md") != markdown:
        found.append(Difference(where="report.md", what="its text is not what the journal gives"))
    return found


def _data_differences(stored: str, page: str) -> list[Difference]:
    blocks = [match.group(1) if (match := _DATA.search(text)) else None for text in (stored, page)]
    try:
        left, right = (None if block is None else json.loads(block) for block in blocks)
    except ValueError as exc:
        return [Difference(where="report.html data block", what=f"is not JSON: {exc}")]
    return json_differences("report.html data block", left, right)


def _compared(name: str, results: Path, expected: Any) -> list[Difference]:
    text = _text(results / name)
    if text is None:
        return [Difference(where=name, what="is gone")]
    try:
        found = json.loads(text)
    except ValueError as exc:
        return [Difference(where=name, what=f"is not JSON: {exc}")]
    return json_differences(name, found, json.loads(json.dumps(expected)))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
