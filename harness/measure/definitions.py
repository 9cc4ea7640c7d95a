"""The catalogue of metrics as one page of Markdown, so that the definitions are written once."""

from __future__ import annotations

from typing import Final

from harness.measure.metrics import METRICS, Metric
from harness.record.vocabulary import Family

_TITLES: Final = {
    Family.ACCURACY: "Accuracy",
    Family.PLACEMENT: "Placement",
    Family.PERFORMANCE: "Performance",
    Family.MEMORY: "Memory",
    Family.THERMAL: "Temperature",
    Family.POWER: "Power",
}
_CLOCKS: Final = {
    Family.PERFORMANCE: "`CLOCK_MONOTONIC` of the phone, stamped by the runner in the timed loop",
    Family.THERMAL: "readings of the phone's own sensors, stamped with its `CLOCK_MONOTONIC`",
    Family.POWER: "readings of the phone's own sensors, stamped with its `CLOCK_MONOTONIC`",
}
_INTRODUCTION: Final = """\
# Metrics

Made by `snapgate metrics` from the catalogue in `harness/measure/metrics.py`; a test fails when the two differ.

A *run* is one runner process. A *repetition* is one generation of it that is no warm-up. *Positions* are rows of
logits. *Greedy positions* are those whose argmax is a generated token: every decode step, and the last position of a
prompt. Speed is taken from repetitions in generate mode that write no logits; of these from the longest prompt only.

Judged by *interval*: an estimate from repetitions; its 95 % interval (bootstrap of the median, BCa) has to be on one
side of the limit. Judged by *value*: an exact figure, or an extreme. Raw stamps stay in the journal, so
`snapgate recompute --journal DIR` gives every figure again with no phone.
"""


def metrics_markdown() -> str:
    """One table per family, in the order of the catalogue."""
    parts = [_INTRODUCTION]
    for family in dict.fromkeys(metric.family for metric in METRICS.values()):
        parts.append(f"\n## {_TITLES[family]}\n")
        clock = _CLOCKS.get(family)
        parts.append(f"\nClock: {clock}.\n" if clock else "\nNo clock is read.\n")
        parts.append("\n| metric | unit | better | judged by | definition |\n|---|---|---|---|---|\n")
        parts.extend(_row(metric) for metric in METRICS.values() if metric.family is family)
    return "".join(parts)


def _row(metric: Metric) -> str:
    definition = metric.definition.replace("|", "\\|")
    judged = "interval" if metric.sampled else "value"
    return f"| `{metric.name}` | {metric.unit} | {metric.better} | {judged} | {definition} |\n"
