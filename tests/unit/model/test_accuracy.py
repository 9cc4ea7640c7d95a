from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.model.checkpoint import Checkpoint
from harness.model.perplexity import Corpus
from harness.record.artifact import GraphSpec

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

import onnx
from onnx import numpy_helper

from harness.model.accuracy import measure_accuracy
from harness.model.graph import FloatType, build_graph
from harness.model.io_specs import io_specs

WINDOW = (0, *range(300, 323))
"""24 tokens: three chunks of 8."""


def leg(folder: Path, name: str, model: Any) -> tuple[Path, GraphSpec]:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    inputs, outputs = io_specs(model)
    return path, GraphSpec(name=name, n_tokens=8, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)


def measured(tiny_llama: Checkpoint, folder: Path, other: Any, windows: tuple[tuple[int, ...], ...] = (WINDOW,)) -> Any:
    plain = build_graph(tiny_llama, n_tokens=8, context_length=32)
    return measure_accuracy(
        [leg(folder, "fp32", plain)],
        [leg(folder, "graph", other)],
        Corpus(sha256="", windows=windows),
        tiny_llama.facts,
        context_length=32,
        mask_values=(-100.0, -100.0),
    )


def test_a_graph_against_itself_has_no_error(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    found = measured(tiny_llama, tmp_path, build_graph(tiny_llama, n_tokens=8, context_length=32))
    assert found.layer_snr_db == (200.0,) * 4
    assert (found.logits_snr_db, found.top1_agreement, found.n_positions) == (200.0, 1.0, 24)


def test_half_precision_costs_as_much_as_eleven_bits_allow(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    half = build_graph(tiny_llama, n_tokens=8, context_length=32, float_type=FloatType.FLOAT16)
    found = measured(tiny_llama, tmp_path, half)
    assert all(55 < value < 85 for value in (*found.layer_snr_db, found.logits_snr_db))


def test_damage_shows_in_the_layer_that_has_it_and_behind_it(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    damaged = build_graph(tiny_llama, n_tokens=8, context_length=32)
    for tensor in damaged.graph.initializer:
        if tensor.name == "layer2_down_weight":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 0, tensor.name))
    found = measured(tiny_llama, tmp_path, damaged)
    assert found.layer_snr_db[:2] == (200.0, 200.0)
    assert found.layer_snr_db[2] < 30
    assert found.logits_snr_db < 30


def test_windows_shorter_than_a_chunk_are_not_measured(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    other = build_graph(tiny_llama, n_tokens=8, context_length=32)
    assert measured(tiny_llama, tmp_path, other, ((0, 1, 2),)) is None
