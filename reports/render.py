"""Rows to files: one self-contained HTML page, a Markdown summary and a JSON document.

Autoescape is on for every template, an undefined name is an error, and so is a ``None`` that reaches a template: what
was not measured must have been put into words by the views.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness import __version__
from harness.errors import HostError, SnapGateError
from harness.journal import Journal
from harness.record.artifact import ArtifactManifest
from harness.record.verdict import Measurement, RunVerdict
from reports import document, seed
from reports.markdown import markdown_summary
from reports.text import harmless
from reports.views import LONG_NOTE, REPORT_SCHEMA, Detail, report_view

MAX_BYTES: Final = 2_000_000
DETAILS: Final = (
    Detail(hover_points=48, stamp_values=60_000, charts=64, timelines=64),
    Detail(hover_points=0, stamp_values=60_000, charts=64, timelines=12),
    Detail(hover_points=0, stamp_values=60_000, charts=50, timelines=3),
    Detail(hover_points=0, stamp_values=45_000, charts=50, timelines=3),
    Detail(hover_points=0, stamp_values=30_000, charts=32, timelines=8),
    Detail(hover_points=0, stamp_values=0, charts=8, timelines=4),
)
"""Tried in this order until the page is under ``MAX_BYTES``; the page says what was left out."""

DEFAULT_TITLE: Final = "Validation on Snapdragon"


def script_json(value: object) -> Markup:
    """JSON for a ``<script type="application/json">`` block. No character of it can end the block or open markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - the three lines above are what makes it safe


def _shown(value: Any) -> Any:
    if value is None:
        raise SnapGateError(
            "a figure without a value reached a report template",
            found="None",
            expected="text saying why it was not measured",
            next_step="report this as a defect of SnapGate",
        )
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return value


def environment() -> Environment:
    return Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_html(
    journal: Journal,
    verdict: RunVerdict,
    measurements: Sequence[Measurement],
    *,
    results_dir: Path | None = None,
    manifests: Sequence[ArtifactManifest] = (),
    title: str = DEFAULT_TITLE,
) -> str:
    """The whole page. ``results_dir``: where the pulled files lie, relative to the page (``write_report`` makes it so);
    without it, or when it is absolute, files are named but not linked."""
    link_base = None if results_dir is None or results_dir.is_absolute() else results_dir.as_posix()
    template = environment().get_template("report.html.j2")
    page = ""
    for detail in DETAILS:
        view = report_view(journal, verdict, measurements, manifests, link_base=link_base, detail=detail)
        page = template.render(
            view=view,
            anchors=view.anchors,
            short=view.short,
            title=title,
            version=__version__,
            schema=REPORT_SCHEMA,
            long_note=LONG_NOTE,
            article_label=seed.LABEL,
            article_inconsistencies=seed.INCONSISTENCIES,
            data=script_json(document.data_block(view, verdict, title=title)),
        )
        if len(page.encode()) <= MAX_BYTES:
            break
    return page


def render_markdown(
    journal: Journal, verdict: RunVerdict, measurements: Sequence[Measurement], *, title: str = DEFAULT_TITLE
) -> str:
    """A summary for a CI job's page."""
    view = report_view(journal, verdict, measurements, (), link_base=None, detail=DETAILS[-1])
    return markdown_summary(view, title=title)


def render_json(
    journal: Journal, verdict: RunVerdict, measurements: Sequence[Measurement], *, title: str = DEFAULT_TITLE
) -> str:
    """The document of ``reports/document.py``, schema ``snapgate.report/1``."""
    body = document.document(journal, verdict, measurements, title=title)
    return json.dumps(body, indent=1, allow_nan=False) + "\n"


def write_report(
    path: Path,
    journal: Journal,
    verdict: RunVerdict,
    measurements: Sequence[Measurement],
    *,
    results_dir: Path | None = None,
    manifests: Sequence[ArtifactManifest] = (),
    title: str = DEFAULT_TITLE,
) -> Path:
    """Write the page to ``path`` all or nothing, ``.json`` and ``.md`` of the same name beside it; returns ``path``."""
    base = None if results_dir is None else Path(os.path.relpath(results_dir.absolute(), path.absolute().parent))
    pages = {
        path: render_html(
            journal, verdict, measurements, results_dir=base, manifests=manifests, title=title
        ),
        path.with_suffix(".json"): render_json(journal, verdict, measurements, title=title),
        path.with_suffix(".md"): render_markdown(journal, verdict, measurements, title=title),
    }  # fmt: skip
    for target, text in pages.items():
        write_page(target, text)
    return path


def write_page(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` all or nothing; raises ``HostError``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise HostError(
            f"the report {path} cannot be written", found=str(exc), next_step="free space, or choose another folder"
        ) from exc
