from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.errors import CheckpointError
from harness.model.checkpoint import load_checkpoint

pytest.importorskip("safetensors", reason="needs the prepare extra")

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint(n_shards=3)


def test_shards_hold_the_same_tensors_as_one_file(sharded: Path, make_checkpoint: Callable[..., Path]) -> None:
    apart, whole = load_checkpoint(sharded), load_checkpoint(make_checkpoint(name="whole"))
    for name in whole.weights.shapes:
        assert np.array_equal(apart.tensor(name), whole.tensor(name)), name


def test_index_and_every_shard_are_hashed(sharded: Path) -> None:
    assert [name for name in load_checkpoint(sharded).sha256 if "safetensors" in name] == [
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "model.safetensors.index.json",
    ]


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"shard model-00002-of-00003.safetensors of .* is missing"):
        load_checkpoint(sharded)


def test_a_tensor_that_is_not_in_its_shard_is_named(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model.norm.weight is missing from .*00001-of-00003"):
        load_checkpoint(sharded)


def test_an_index_that_points_outside_the_folder_is_refused(sharded: Path) -> None:
    (sharded / INDEX).write_text('{"weight_map": {"model.norm.weight": "../model.safetensors"}}')
    with pytest.raises(CheckpointError, match=r"names a file outside its folder; found: ../model.safetensors"):
        load_checkpoint(sharded)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": [1]}'])
def test_a_damaged_index_is_named(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match=f"{INDEX} is damaged"):
        load_checkpoint(sharded)


def test_the_only_safetensors_file_may_have_another_name(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    (folder / "model.safetensors").rename(folder / "other-name.safetensors")
    assert "other-name.safetensors" in load_checkpoint(folder).sha256


def test_a_pickle_is_refused_by_name(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"found: pytorch_model.bin; .* a pickle can run code"):
        load_checkpoint(folder)
