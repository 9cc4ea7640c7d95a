"""A model layer by layer: the same graphs as cut out of the whole, and the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the prepare extra")

from harness.model.calibrate import CalibrationText, Range, RangeRecorder, collect_ranges
from harness.model.checkpoint import Checkpoint
from harness.model.form import GraphForm, Linear, Logits
from harness.model.graph import build_graph
from harness.model.part import PartDecoder
from harness.model.shards import split_graph
from harness.model.storage import LazyStore, TensorStore, array_of

CONTEXT, CHUNK = 64, 16
TEXTS = (tuple(range(300, 348)), (0, *range(400, 431)))


def test_ranges_taken_layer_by_layer_are_those_of_the_whole_graph_to_the_bit(
    tiny_llama: Checkpoint, tmp_path: Path
) -> None:
    whole = build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT)
    text = CalibrationText(method="", sequences=TEXTS, sha256="")
    expected = collect_ranges(whole, text, tiny_llama.facts, context_length=CONTEXT, mask_value=-100.0)
    states = [np.array(ids, dtype=np.int32) for ids in TEXTS]
    found: dict[str, Range] = {}
    for layer in range(tiny_llama.facts.n_layers):
        layers = range(layer, layer + 1)
        with TensorStore(tmp_path / f"{layer}.data") as store:
            model = build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT, store=store, layers=layers)
        recorder = RangeRecorder(model, tmp_path)
        part = PartDecoder([recorder], tiny_llama.facts, layers, context_length=CONTEXT, mask_value=-100.0)
        rows: list[list[np.ndarray]] = [[] for _ in states]
        for number, _, made in part.through(states):
            rows[number].append(made)
        states = [np.concatenate(each) for each in rows]
        found |= recorder.ranges
    assert found == expected
    assert [state.shape for state in states] == [(48, 1024), (32, 1024)]


@pytest.mark.parametrize("form", [GraphForm(), GraphForm(linear=Linear.CONV, logits=Logits.LAST)], ids=str)
def test_layers_built_alone_are_what_would_be_cut_out_of_the_whole(tiny_llama: Checkpoint, form: GraphForm) -> None:
    whole = build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT, form=form)
    for part, layers in zip(split_graph(whole, (0, 2)), (range(1), range(1, 3), range(3, 4)), strict=True):
        alone = build_graph(
            tiny_llama, n_tokens=CHUNK, context_length=CONTEXT, form=form, layers=layers, name=part.graph.name
        )
        assert [value.SerializeToString() for value in (*alone.graph.input, *alone.graph.output)] == [
            value.SerializeToString() for value in (*part.graph.input, *part.graph.output)
        ]
        assert list(alone.graph.node) == list(part.graph.node)
        assert {t.name: t for t in alone.graph.initializer} == {t.name: t for t in part.graph.initializer}


def test_weights_of_a_graph_that_is_only_read_are_computed_when_they_are_asked_for(tiny_llama: Checkpoint) -> None:
    store = LazyStore()
    lazy, held = (
        build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT, layers=range(1, 2), store=each)
        for each in (store, TensorStore())
    )
    assert lazy.ByteSize() < 100_000 < held.ByteSize()
    for mine, other in zip(lazy.graph.initializer, held.graph.initializer, strict=True):
        assert np.array_equal(array_of(mine, store), array_of(other, None)), mine.name


def test_a_part_pads_short_steps_and_what_it_pads_changes_nothing(tiny_llama: Checkpoint) -> None:
    layers, facts = range(1, 2), tiny_llama.facts
    runners = [
        RangeRecorder(build_graph(tiny_llama, n_tokens=n, context_length=CONTEXT, layers=layers), None) for n in (8, 1)
    ]
    rows = np.random.default_rng(7).standard_normal((5, facts.hidden_size)).astype(np.float32)
    made = []
    for chosen in (runners, runners[1:]):
        part = PartDecoder(chosen, facts, layers, context_length=CONTEXT, mask_value=-100.0)
        made.append(np.concatenate([out for _, _, out in part.through([rows])]))
    assert made[0].shape == (5, facts.hidden_size)
    np.testing.assert_allclose(made[0], made[1], rtol=1e-4, atol=1e-5)
