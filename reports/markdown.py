"""The Markdown summary: verdict, what it is worth, the numbers that decided and the required metrics."""

from __future__ import annotations

from typing import Final

from reports.overview import Figure
from reports.text import counted, markdown_text
from reports.views import ReportView

MAX_ROWS: Final = 60
_WORDS: Final = {"NOT_COVERED": "NOT COVERED"}


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(figure: Figure) -> str:
    if figure.value is None:
        return f"{figure.text}: {markdown_text(figure.why)}"
    return f"{figure.text} {figure.unit}".strip() + (" (emulated)" if figure.emulated else "")


def markdown_summary(view: ReportView, *, title: str) -> str:
    first = view.overview
    lines = [f"## {_WORDS.get(first.status, first.status)}: {markdown_text(title)}", "", first.meaning, ""]
    lines += [f"- {markdown_text(line)}" for line in (*(first.why if first.status != "PASS" else ()), *first.notes)]
    if lines[-1]:
        lines.append("")
    for banner in first.banners:
        lines += [f"> **{banner.title}.** {markdown_text(banner.text)}", ""]
    if first.tested:
        lines += [
            _row("model", "precision", "SoC", "phone", "Android", "source", "artifact"),
            _row(*["---"] * 7),
            *(
                _row(*(markdown_text(text) for text in (
                    t.model, t.precision, t.soc, f"{t.phone} {t.serial}", t.android, t.source, t.artifact
                )))
                for t in first.tested
            ),
            "",
        ]  # fmt: skip
    if first.deciders:
        lines += ["The numbers that decided:", ""]
        lines += [
            f"- {markdown_text(d.metric)}: **{_figure(d.figure)}**, {d.limit}"
            + (f", {d.distance}" if d.distance else "")
            + f" ({markdown_text(d.cell)})"
            for d in first.deciders
        ]
        lines.append("")
    required = [v for v in view.verdicts if v.required]
    if required:
        lines += [_row("required metric", "cell", "status", "value", "n", "limit", "why"), _row(*["---"] * 7)]
        lines += [
            _row(
                f"`{v.metric}`",
                markdown_text(v.cell),
                _WORDS.get(v.status, v.status),
                _figure(v.figure),
                str(v.n),
                v.limit,
                markdown_text(v.reason),
            )
            for v in required[:MAX_ROWS]
        ]
        if len(required) > MAX_ROWS:
            lines += ["", f"{counted(len(required) - MAX_ROWS, 'more required metric')} in the HTML report."]
        lines.append("")
    return "\n".join(lines)
