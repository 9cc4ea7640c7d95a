"""The stepping of ``Decoder``, against a graph that only records what it is fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.errors import UserError
from harness.model.decoder import Decoder
from harness.model.interface import input_shapes, output_shapes
from harness.record.artifact import GraphSpec, ModelFacts, TensorSpec
from harness.record.vocabulary import DType

FACTS = ModelFacts(
    name="recorder",
    architecture="LlamaForCausalLM",
    n_layers=1,
    hidden_size=4,
    intermediate_size=4,
    n_heads=1,
    n_kv_heads=1,
    head_dim=2,
    vocab_size=5,
    max_context=8,
    rope_theta=100.0,
    rms_norm_eps=1e-5,
    tied_embeddings=True,
    bos_id=0,
    eos_ids=(4,),
    n_parameters=0,
)


class Recorder:
    """Prefers token id + 1 after every token; each key and value it makes holds the token's id."""

    def __init__(self, n_tokens: int, dtype: DType = DType.FLOAT32) -> None:
        coded = {"scale": 0.5, "zero_point": 128} if dtype is DType.UFIXED8 else {}

        def spec(name: str, shape: tuple[int, ...]) -> TensorSpec:
            if name == "input_ids":
                return TensorSpec(name=name, dtype=DType.INT32, shape=shape)
            if name.startswith("past"):
                return TensorSpec(name=name, dtype=dtype, shape=shape, **coded)
            return TensorSpec(name=name, dtype=DType.FLOAT32, shape=shape)

        self.feeds: list[dict[str, NDArray[Any]]] = []
        self._dtype = np.uint8 if dtype is DType.UFIXED8 else np.float32
        self.spec = GraphSpec(
            name="recorder",
            n_tokens=n_tokens,
            inputs=tuple(spec(*item) for item in input_shapes(FACTS, n_tokens, 8).items()),
            outputs=tuple(spec(*item) for item in output_shapes(FACTS, n_tokens).items()),
            epcontext_nodes=0,
            cpu_nodes=0,
        )

    def run(self, feed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self.feeds.append(dict(feed))
        ids = feed["input_ids"][0]
        logits = np.zeros((1, len(ids), 5), dtype=np.float32)
        logits[0, np.arange(len(ids)), (ids + 1) % 5] = 1.0
        cache = np.broadcast_to(ids.astype(self._dtype), (1, 1, 2, len(ids)))
        return {"logits": logits, "past_key_0_out": cache, "past_value_0_out": cache.transpose(0, 1, 3, 2)}


def recording(dtype: DType = DType.FLOAT32) -> tuple[Recorder, Recorder, Decoder]:
    chunk, one = Recorder(4, dtype), Recorder(1, dtype)
    return chunk, one, Decoder([chunk, one], FACTS, context_length=8, mask_value=-9.0)


def test_the_cache_is_filled_from_the_left() -> None:
    _, one, decoder = recording()
    decoder.extend([1, 2, 3])
    decoder.extend([4], step_with="token")
    decoder.extend([2], step_with="token")
    assert one.feeds[1]["past_key_0_in"][0, 0, 0].tolist() == [1, 2, 3, 4, 0, 0, 0]
    assert one.feeds[1]["past_value_0_in"][0, 0, :, 1].tolist() == [1, 2, 3, 4, 0, 0, 0]
    assert decoder.n_cached == 5


def test_a_short_chunk_is_padded_behind_its_tokens_and_the_padding_is_not_cached() -> None:
    chunk, one, decoder = recording()
    rows = decoder.extend([3, 1])
    decoder.extend([2], step_with="token")
    assert chunk.feeds[0]["input_ids"].tolist() == [[3, 1, 0, 0]]
    assert rows.shape == (2, 5)
    assert one.feeds[0]["past_key_0_in"][0, 0, 0].tolist() == [3, 1, 0, 0, 0, 0, 0]


def test_the_mask_shows_the_cached_slots_and_the_new_tokens_up_to_the_row() -> None:
    chunk, _, decoder = recording()
    decoder.extend([1, 2], step_with="token")
    decoder.extend([3, 1, 2])
    hidden = -9.0
    assert chunk.feeds[0]["attention_mask"][0, 0].tolist() == [
        [0, 0, hidden, hidden, 0, hidden, hidden, hidden],
        [0, 0, hidden, hidden, 0, 0, hidden, hidden],
        [0, 0, hidden, hidden, 0, 0, 0, hidden],
        [0, 0, hidden, hidden, 0, 0, 0, 0],
    ]


def test_positions_go_on_where_the_cache_ends() -> None:
    _, one, decoder = recording()
    decoder.extend([1, 2, 3])
    decoder.extend([1], step_with="token")
    assert one.feeds[0]["position_ids_cos"].ravel().tolist() == pytest.approx([np.cos(3.0)])
    assert one.feeds[0]["position_ids_sin"].ravel().tolist() == pytest.approx([np.sin(3.0)])


def test_a_chunk_that_would_pass_the_end_of_the_context_goes_token_by_token() -> None:
    chunk, one, decoder = recording()
    decoder.extend([1], step_with="token")
    decoder.extend([2, 3, 1, 2, 3, 1])
    assert len(chunk.feeds) == 1
    assert [feed["input_ids"].tolist() for feed in one.feeds] == [[[1]], [[3]], [[1]]]


def test_an_empty_slot_of_a_quantised_cache_holds_the_zero_point() -> None:
    chunk, _, decoder = recording(DType.UFIXED8)
    decoder.extend([1])
    assert np.unique(chunk.feeds[0]["past_key_0_in"]).tolist() == [128]
    assert chunk.feeds[0]["past_key_0_in"].dtype == np.uint8


def test_greedy_decoding_stops_after_an_end_token_and_keeps_it() -> None:
    _, _, decoder = recording()
    chosen, logits = decoder.generate([0, 1], 6)
    assert chosen == (2, 3, 4)
    assert logits.shape == (4, 5)


def test_an_ignored_end_token_does_not_stop_decoding() -> None:
    _, _, decoder = recording()
    assert decoder.generate([0, 1], 5, ignore_eos=True)[0] == (2, 3, 4, 0, 1)


def test_forced_tokens_are_fed_and_the_choices_still_reported() -> None:
    _, one, decoder = recording()
    chosen, _ = decoder.generate([0], 3, forced=[3, 0, 2])
    assert [feed["input_ids"].item() for feed in one.feeds] == [3, 0]
    assert chosen == (1, 4, 1)


def test_decoding_stops_when_the_context_is_full() -> None:
    _, _, decoder = recording()
    chosen, _ = decoder.generate([0, 1, 2, 3, 0, 1], 10, ignore_eos=True)
    assert chosen == (2, 3, 4)
    assert decoder.n_cached == 8


def test_the_nll_of_a_window_is_that_of_its_softmax() -> None:
    _, _, decoder = recording()
    expected_next, unexpected_next = np.log(np.e + 4) - 1, np.log(np.e + 4)
    assert decoder.window_nll([1, 2, 0]).tolist() == pytest.approx([expected_next, unexpected_next])


def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths() -> None:
    _, _, decoder = recording()
    with pytest.raises(UserError, match=r"found: 9 tokens; expected: at most 8"):
        decoder.extend([1] * 9)


@pytest.mark.parametrize("token", [5, -1])
def test_a_token_outside_the_vocabulary_is_refused(token: int) -> None:
    _, _, decoder = recording()
    with pytest.raises(UserError, match=f"outside the vocabulary; found: {token}; expected: 0 to 4"):
        decoder.extend([1, token])


def test_an_empty_prompt_is_refused() -> None:
    _, _, decoder = recording()
    with pytest.raises(UserError, match=r"prompt is empty"):
        decoder.generate([], 3)


def test_too_few_forced_tokens_are_refused() -> None:
    _, _, decoder = recording()
    with pytest.raises(UserError, match=r"too few forced tokens; found: 1; expected: 2"):
        decoder.generate([0], 3, forced=[1])
