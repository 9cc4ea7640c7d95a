"""``docs/metrics.md`` is the catalogue, and nothing else."""

from __future__ import annotations

from pathlib import Path

from harness.measure.definitions import metrics_markdown
from harness.measure.metrics import METRICS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def test_the_page_is_what_the_catalogue_gives():
    assert PAGE.read_text(encoding="utf-8") == metrics_markdown(), "run: snapgate metrics > docs/metrics.md"


def test_every_metric_has_one_row_with_its_unit():
    rows = [line.split(" | ") for line in metrics_markdown().splitlines() if line.startswith("| `")]
    assert {row[0].strip("|` "): row[1] for row in rows} == {name: metric.unit for name, metric in METRICS.items()}
    assert len(rows) == len(METRICS)


def test_a_bar_in_a_definition_does_not_end_the_cell():
    (row,) = [line for line in metrics_markdown().splitlines() if line.startswith("| `relative_l2`")]
    assert "\\|x - r\\| / \\|r\\|" in row
