"""``make prove-limits ONLY=missing``: which models are prepared and run for the gates that are untested."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

from harness.spec.models import load_catalogue

REPOSITORY = Path(__file__).resolve().parents[3]
VARIANTS = [("fp16", "kvfp16"), ("w8a16", "kv8"), ("w8a8", "kv8"), ("w8a16", "kv16")]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("prove_limits", REPOSITORY / "tools" / "prove_limits.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("gates", "run"),
    [
        ([], []),
        ([("w8a8", "*"), ("w8a8", "*")], [("w8a8", "kv8")]),
        ([("w8a16", "kv16"), ("w8a8", "*")], [("w8a16", "kv16"), ("w8a8", "kv8")]),
        ([("w8a16", "*")], [("w8a16", "kv8")]),
    ],
)
def test_each_precision_with_an_untested_gate_is_run_once(tool, gates, run):
    assert tool.untested_variants(gates, VARIANTS) == run


def test_a_gate_that_no_variant_can_prove_is_an_error(tool):
    with pytest.raises(SystemExit, match="no variant for an untested gate of w4a16 kv16"):
        tool.untested_variants([("w4a16", "kv16")], VARIANTS)


def test_a_catalogue_of_one_variant_runs_it_and_nothing_else(tool, tmp_path):
    path = tool._catalogue(tmp_path, [("w8a16", "kv16")], [("w8a16", "kv16")])
    (cell,) = load_catalogue(path).cells(())
    assert str(cell) == "tiny-llama-w8a16-kv16-SM8650"
    (model,) = tomllib.loads(path.read_text())["model"]
    assert (tmp_path / model["checkpoint"] / "config.json").is_file()


def test_in_a_catalogue_of_all_variants_those_of_the_suites_run_by_default(tool, tmp_path):
    catalogue = load_catalogue(tool._catalogue(tmp_path, tool._variants(), tool.BY_DEFAULT))
    assert {(str(c.precision), str(c.kv)) for c in catalogue.cells(())} == {("fp16", "kvfp16"), ("w8a16", "kv8")}
    assert ("w8a16", "kv16") in {(str(c.precision), str(c.kv)) for c in catalogue.cells(("all",))}
