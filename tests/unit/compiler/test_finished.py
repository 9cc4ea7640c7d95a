from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.compiler.finished import preparation_key
from harness.compiler.recipe import Plan
from harness.record.artifact import sha256_of
from harness.soc import KvPrecision, Precision, find_soc

PLAN = Plan(soc=find_soc("gen3"), precision=Precision.W8A16, kv=None, context_length=64, prefill_tokens=16)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(name)
    return folder


def key(checkpoint: Path, plan: Plan = PLAN, **changes: Any) -> str | None:
    options = {"texts": {"calibration": None}, "tools": {"onnx": "1"}, "hash_of": sha256_of, **changes}
    return preparation_key(checkpoint, plan, **options)


def test_equal_inputs_have_one_key(checkpoint: Path) -> None:
    first = key(checkpoint)
    assert first is not None
    assert key(checkpoint) == first


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja", "model-00002-of-00002.safetensors"])
def test_a_file_that_changes_or_appears_gives_another_key(checkpoint: Path, name: str) -> None:
    first = key(checkpoint)
    (checkpoint / name).write_text("else")
    assert key(checkpoint) != first


@pytest.mark.parametrize(
    "changes",
    [
        {"soc": find_soc("elite")},
        {"soc": replace(find_soc("gen3"), vtcm_mb=4)},
        {"precision": Precision.W8A8},
        {"kv": KvPrecision.KV8},
        {"context_length": 128},
        {"prefill_tokens": 8},
        {"other_prefill_tokens": (4,)},
        {"rmsnorm": "basic"},
        {"attention": "per-head"},
        {"linear": "conv"},
        {"logits": "last"},
        {"embeddings": "host"},
        {"weights": "gptq"},
        {"shards": 2},
    ],
    ids=str,
)
def test_every_option_is_part_of_the_key(checkpoint: Path, changes: dict[str, Any]) -> None:
    assert key(checkpoint, replace(PLAN, **changes)) != key(checkpoint)


def test_texts_overrides_and_tools_are_part_of_the_key(checkpoint: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one")
    keys = [
        key(checkpoint),
        key(checkpoint, texts={"calibration": text}),
        key(checkpoint, replace(PLAN, overrides=text)),
        key(checkpoint, tools={"onnx": "2"}),
    ]
    text.write_text("two")
    keys += [key(checkpoint, texts={"calibration": text}), key(checkpoint, replace(PLAN, overrides=text))]
    assert len(set(keys)) == len(keys)


def test_a_missing_file_has_no_key(checkpoint: Path, tmp_path: Path) -> None:
    assert key(tmp_path / "nowhere.gguf") is None
    assert key(checkpoint, texts={"calibration": tmp_path / "nowhere.txt"}) is None
