from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UserError
from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.calibrate import CalibrationText, collect_ranges, self_generated_text, text_from_file
from harness.model.graph import build_graph


def small_decoder(checkpoint: Checkpoint) -> Decoder:
    runner = CpuGraph(build_graph(checkpoint, n_tokens=1, context_length=24).SerializeToString())
    return Decoder([runner], checkpoint.facts, context_length=24, mask_value=-100.0)


def test_self_generated_text_is_eight_full_contexts_the_same_every_time(tiny_llama: Checkpoint) -> None:
    first, second = self_generated_text(small_decoder(tiny_llama)), self_generated_text(small_decoder(tiny_llama))
    assert first == second
    assert [len(sequence) for sequence in first.sequences] == [24] * 8
    assert len(set(first.sequences)) == 8
    assert first.method == "self-generated, seed 7"
    assert first.n_tokens == 192


def test_self_generated_text_starts_with_the_begin_token_and_never_ends(tiny_llama: Checkpoint) -> None:
    text = self_generated_text(small_decoder(tiny_llama))
    assert {sequence[0] for sequence in text.sequences} == {0}
    assert not any(1 in sequence for sequence in text.sequences)


def test_a_text_file_is_cut_into_contexts_with_the_begin_token(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "some text.txt"
    path.write_text("And it came to pass in those days. " * 20)
    text = text_from_file(path, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=32)
    assert len(text.sequences) <= 8
    assert [len(sequence) for sequence in text.sequences[:-1]] == [32] * (len(text.sequences) - 1)
    assert {sequence[0] for sequence in text.sequences} == {0}
    assert text.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_empty_calibration_text_is_refused(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("")
    with pytest.raises(UserError, match=r"empty.txt holds no text"):
        text_from_file(path, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=32)


def test_a_calibration_file_that_is_no_text_is_refused(tiny_llama: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "picture.bin"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(UserError, match=r"picture.bin cannot be read as text"):
        text_from_file(path, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=32)


def test_ranges_are_those_of_the_values(tiny_llama: Checkpoint) -> None:
    model = build_graph(tiny_llama, n_tokens=8, context_length=16)
    tokens = (0, 300, 301, 302, 303, 304, 305, 306)
    text = CalibrationText(method="", sequences=(tokens,), sha256="")
    ranges = collect_ranges(model, text, tiny_llama.facts, context_length=16, mask_value=-100.0)
    decoder = Decoder([CpuGraph(model.SerializeToString())], tiny_llama.facts, context_length=16, mask_value=-100.0)
    logits = decoder.extend(tokens)
    assert ranges["logits"].low == pytest.approx(float(np.min(logits)), rel=1e-5)
    assert ranges["logits"].high == pytest.approx(float(np.max(logits)), rel=1e-5)


def test_every_range_contains_zero(tiny_llama: Checkpoint) -> None:
    model = build_graph(tiny_llama, n_tokens=4, context_length=8)
    text = CalibrationText(method="", sequences=((0, 300, 301, 302),), sha256="")
    ranges = collect_ranges(model, text, tiny_llama.facts, context_length=8, mask_value=-100.0)
    assert ranges
    assert all(seen.low <= 0.0 <= seen.high for seen in ranges.values())


def test_a_calibration_text_shorter_than_a_chunk_is_refused(tiny_llama: Checkpoint) -> None:
    model = build_graph(tiny_llama, n_tokens=8, context_length=16)
    text = CalibrationText(method="", sequences=((0, 300, 301),), sha256="")
    with pytest.raises(UserError, match=r"too short; found: 3 tokens; expected: at least one chunk of 8"):
        collect_ranges(model, text, tiny_llama.facts, context_length=16, mask_value=-100.0)
