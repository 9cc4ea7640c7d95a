"""The model catalogue: read whole, or refused with the file and the model named."""

from __future__ import annotations

import pytest

from harness.errors import UserError
from harness.spec.models import load_catalogue

GOOD = """
[[model]]
name = "tiny"
checkpoint = "c"
heldout = "h.txt"
context_length = 64
prefill_tokens = 16
socs = ["gen3"]
perplexity_windows = 1
n_gen = 4
prompts = ["In the beginning"]
[[model.variant]]
precision = "w8a16"
kv = "kv8"
"""


def load(tmp_path, text):
    path = tmp_path / "models.toml"
    path.write_text(text)
    return load_catalogue(path)


def test_a_whole_catalogue_spans_its_cells(tmp_path):
    assert [str(cell) for cell in load(tmp_path, GOOD).cells()] == ["tiny-w8a16-kv8-SM8650"]


MORE = """
[[model.variant]]
precision = "w4a16"
kv = "kv8"
socs = ["gen3"]
default = false
"""


@pytest.mark.parametrize(
    ("precisions", "cells"),
    [
        ((), ["w8a16-SM8650", "w8a16-SM8750"]),
        (("all",), ["w8a16-SM8650", "w8a16-SM8750", "w4a16-SM8650"]),
        (("w4a16",), ["w4a16-SM8650"]),
        (("w4a16", "w8a16"), ["w8a16-SM8650", "w8a16-SM8750", "w4a16-SM8650"]),
    ],
)
def test_a_user_chooses_precisions_of_the_one_catalogue(tmp_path, precisions, cells):
    catalogue = load(tmp_path, GOOD.replace('["gen3"]', '["gen3", "elite"]') + MORE)
    assert [f"{cell.precision}-{cell.part}" for cell in catalogue.cells(precisions)] == cells


def test_a_precision_that_no_model_has_is_refused(tmp_path):
    with pytest.raises(
        UserError, match="no model of the catalogue has precision w3; found: w3; expected: all, or one of"
    ):
        load(tmp_path, GOOD + MORE).cells(["w3"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('socs = ["gen3"]\ndefault', 'socs = ["elite"]\ndefault'), "variant w4a16 has an SoC that the model has not"),
        (('kv = "kv8"\n', 'kv = "kv8"\ndefault = false\n'), "no variant runs by default"),
    ],
)
def test_variants_that_contradict_their_model_are_refused(tmp_path, change, words):
    with pytest.raises(UserError, match=words):
        load(tmp_path, (GOOD + MORE).replace(*change, 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('socs = ["gen3"]', "socs = []", "socs is empty"),
        ('["In the beginning"]', "[]", "prompts is empty"),
        ('"In the beginning"', '" "', "prompt number 1 is blank"),
        ('["gen3"]', '["gen3", "SM8650"]', "SoC named twice; found: SM8650"),
        ('["gen3"]', '["gen33"]', "unknown SoC; found: 'gen33'"),
        ("n_gen = 4", "n_gen = 0", "n_gen out of range; found: 0; expected: 1 to 63"),
        ("n_gen = 4", "n_gen = 64", "n_gen out of range; found: 64; expected: 1 to 63"),
        ("prefill_tokens = 16", "prefill_tokens = 64", "prefill_tokens out of range; found: 64"),
        ("windows = 1", "windows = 0", "perplexity_windows out of range; found: 0; expected: at least 1"),
        ('name = "tiny"', 'name = "../tiny"', "name cannot be a folder's name"),
        ("n_gen = 4", 'n_gen = "4"', r"model number 1 is not a valid ModelSpec; found: .*n_gen"),
        ("n_gen = 4", "n_gen = 4\ncolour = 1", r"extra fields found \(colour\)"),
        ("[[model]]", "[[model]", "cannot be read as TOML"),
        ("[[model]]", "[[modell]]", "is not a model catalogue; found: modell, model"),
        (GOOD, "", "is not a model catalogue; found: no model"),
        (GOOD, "model = []", "is not a model catalogue; found: no model"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused_by_name(tmp_path, old, new, words):
    assert GOOD.count(old) == 1
    with pytest.raises(UserError, match=words):
        load(tmp_path, GOOD.replace(old, new))


def test_a_model_and_a_variant_named_twice_are_refused(tmp_path):
    with pytest.raises(UserError, match="model named twice; found: tiny"):
        load(tmp_path, GOOD + GOOD)
    with pytest.raises(UserError, match="variant named twice; found: w8a16 kv8"):
        load(tmp_path, GOOD + GOOD[GOOD.index("[[model.variant]]") :])


def test_a_catalogue_that_cannot_be_opened_is_named_with_the_next_step(tmp_path):
    for path, why in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=f"cannot be read as TOML; found: {why}.*--models"):
            load_catalogue(path)
