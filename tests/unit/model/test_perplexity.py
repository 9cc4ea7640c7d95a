from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.perplexity import Corpus, load_corpus, measure_perplexity
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.graph import build_graph


@pytest.fixture(scope="module")
def corpus(tiny_llama: Checkpoint) -> Corpus:
    heldout = tiny_llama.folder / "heldout.txt"
    return load_corpus(heldout, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=512)


@pytest.fixture(scope="module")
def fp32(tiny_llama: Checkpoint) -> Decoder:
    runners = [CpuGraph(build_graph(tiny_llama, n_tokens=n, context_length=256).SerializeToString()) for n in (64, 1)]
    return Decoder(runners, tiny_llama.facts, context_length=256, mask_value=-100.0)


def test_the_heldout_text_gives_104_windows_of_the_begin_token_and_255_tokens(corpus: Corpus) -> None:
    assert len(corpus.windows) == 104
    assert {len(window) for window in corpus.windows} == {256}
    assert {window[0] for window in corpus.windows} == {0}


def test_fp32_perplexity_over_all_104_windows_is_13_24(corpus: Corpus, fp32: Decoder) -> None:
    figure = measure_perplexity(fp32, corpus, engine="onnxruntime-cpu", graph="fp32")
    assert figure.perplexity == pytest.approx(13.24, abs=0.01)
    assert (figure.n_windows, figure.n_scored_tokens) == (104, 26520)


def test_fp32_perplexity_over_the_first_8_windows_is_14_233(corpus: Corpus, fp32: Decoder) -> None:
    figure = measure_perplexity(fp32, corpus, engine="onnxruntime-cpu", graph="fp32", windows=range(8))
    assert figure.perplexity == pytest.approx(14.233, abs=0.001)
    assert (figure.n_windows, figure.n_scored_tokens) == (8, 2040)


def test_a_text_too_short_for_one_window_is_refused(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("In the beginning")
    with pytest.raises(UserError, match=r"short.txt is too short.*expected: at least 255"):
        load_corpus(path, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=512)


def test_windows_shrink_to_a_smaller_context(tiny_llama: Checkpoint) -> None:
    heldout = tiny_llama.folder / "heldout.txt"
    small = load_corpus(heldout, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=64)
    assert {len(window) for window in small.windows} == {64}
