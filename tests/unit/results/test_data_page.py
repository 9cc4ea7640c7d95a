"""docs/data.md says what there is, and its example runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from harness.results import export, frames

PAGE = Path(__file__).resolve().parents[3] / "docs" / "data.md"


def test_every_public_table_is_on_the_page():
    named = set(re.findall(r"\| `((?:frames|export)\.\w+_frame)\(", PAGE.read_text()))
    there = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (frames, export)
        for name, value in vars(module).items()
        if name.endswith("_frame") and not name.startswith("_") and value.__module__ == module.__name__
    }
    assert named == there


def test_the_example_runs_on_a_journal(journals, tmp_path, monkeypatch, capsys):
    shutil.copytree(journals / "perf_pass", tmp_path / "out" / "journal")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102 - the project's own documentation
    shown = capsys.readouterr().out
    assert "decode_tps" in shown
    assert "synthetic-llama-w8a16-kv8-SM8650" in shown
