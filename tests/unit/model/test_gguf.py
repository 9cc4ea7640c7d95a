from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from harness.errors import CheckpointError
from harness.model.checkpoint import Checkpoint, load_checkpoint
from harness.model.numpy_llama import numpy_logits

gguf = pytest.importorskip("gguf", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

HERE = Path(__file__).parent
TOKENS = [1, *(7 * at % 64 for at in range(20))]
TEXT = "And God said, Let there be light:  and there was light.\n\nCaf\u00e9 42 \u65e5\u672c</s>!"


@pytest.fixture(scope="session")
def files() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gguf_files", HERE / "gguf_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiny_gguf(files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path) -> Path:
    return Path(files.write_gguf(tiny_llama.folder, tmp_path / "tiny-llama.gguf"))


def test_the_bundled_model_as_gguf_has_the_same_facts(tiny_llama: Checkpoint, tiny_gguf: Path) -> None:
    assert load_checkpoint(tiny_gguf).facts == tiny_llama.facts


def test_the_bundled_model_as_gguf_has_the_same_weights(tiny_llama: Checkpoint, tiny_gguf: Path) -> None:
    checkpoint = load_checkpoint(tiny_gguf)
    assert checkpoint.weights.shapes == tiny_llama.weights.shapes
    for name in tiny_llama.weights.shapes:
        assert np.array_equal(checkpoint.tensor(name), tiny_llama.tensor(name)), name


def test_the_bundled_model_as_gguf_gives_the_same_logits(tiny_llama: Checkpoint, tiny_gguf: Path) -> None:
    tokens = [0, *range(100, 120)]
    assert np.array_equal(numpy_logits(load_checkpoint(tiny_gguf), tokens), numpy_logits(tiny_llama, tokens))


def test_the_bundled_model_as_gguf_cuts_text_into_the_same_tokens(tiny_llama: Checkpoint, tiny_gguf: Path) -> None:
    checkpoint = load_checkpoint(tiny_gguf)
    found = Tokenizer.from_file(str(checkpoint.tokenizer_path))
    expected = Tokenizer.from_file(str(tiny_llama.tokenizer_path))
    ids = expected.encode(TEXT, add_special_tokens=False).ids
    assert found.encode(TEXT, add_special_tokens=False).ids == ids
    assert found.decode(ids) == expected.decode(ids)


def test_begin_and_stop_tokens_and_template_come_from_the_metadata(
    files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path
) -> None:
    metadata = {"tokenizer.ggml.eot_token_id": 7, "tokenizer.chat_template": "<|im_start|>{{ text }}<|im_end|>"}
    checkpoint = load_checkpoint(files.write_gguf(tiny_llama.folder, tmp_path / "chat.gguf", metadata=metadata))
    assert (checkpoint.facts.bos_id, checkpoint.facts.eos_ids) == (0, (1, 7))
    assert checkpoint.chat_template == "<|im_start|>{{ text }}<|im_end|>"
    assert "does not know as one token" in checkpoint.notes[0]


def test_without_a_begin_token_in_front_there_is_none(
    files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path
) -> None:
    path = files.write_gguf(tiny_llama.folder, tmp_path / "plain.gguf", adds_bos=False)
    assert load_checkpoint(path).facts.bos_id is None


def test_the_tokenizer_file_goes_when_the_checkpoint_goes(tiny_gguf: Path) -> None:
    checkpoint = load_checkpoint(tiny_gguf)
    path = checkpoint.tokenizer_path
    assert path.is_file()
    del checkpoint
    assert not path.parent.exists()


def test_a_folder_with_one_gguf_file_is_that_file(tiny_gguf: Path) -> None:
    checkpoint = load_checkpoint(tiny_gguf.parent)
    assert list(checkpoint.sha256) == ["tiny-llama.gguf"]
    assert checkpoint.facts.name == "tiny-llama"


@pytest.mark.parametrize(("kind", "name"), [("qwen2", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM")])
def test_rows_of_qwen_are_taken_as_they_are(
    files: ModuleType, make_checkpoint: Callable[..., Path], tmp_path: Path, kind: str, name: str
) -> None:
    folder = make_checkpoint(architectures=[name], head_dim=16)
    checkpoint = load_checkpoint(files.write_gguf(folder, tmp_path / "qwen.gguf", kind=kind, quantisation="F32"))
    assert checkpoint.facts.architecture == name
    assert np.array_equal(numpy_logits(checkpoint, TOKENS), numpy_logits(load_checkpoint(folder), TOKENS))


def test_an_untied_llama_without_groups_gives_the_same_logits(
    files: ModuleType, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_checkpoint(num_key_value_heads=4)
    checkpoint = load_checkpoint(files.write_gguf(folder, tmp_path / "llama.gguf", quantisation="F32"))
    assert not checkpoint.facts.tied_embeddings
    assert np.array_equal(numpy_logits(checkpoint, TOKENS), numpy_logits(load_checkpoint(folder), TOKENS))


@pytest.mark.parametrize(
    ("quantisation", "worst"), [("BF16", 0.005), ("Q8_0", 0.01), ("Q5_1", 0.06), ("Q4_0", 0.12), ("Q4_1", 0.12)]
)
def test_quantised_weights_are_near_the_floats_they_came_from(
    files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path, quantisation: str, worst: float
) -> None:
    checkpoint = load_checkpoint(
        files.write_gguf(tiny_llama.folder, tmp_path / "quantised.gguf", quantisation=quantisation)
    )
    name = "model.layers.1.self_attn.q_proj.weight"
    found, expected = checkpoint.tensor(name), tiny_llama.tensor(name)
    assert 0 < np.linalg.norm(found - expected) / np.linalg.norm(expected) < worst


def test_every_type_that_the_package_dequantises_is_readable(files: ModuleType, tmp_path: Path) -> None:
    from harness.model.gguf_file import open_gguf

    path, width = tmp_path / "types.gguf", 256
    kinds = [gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, *gguf.quants._type_traits]
    writer = gguf.GGUFWriter(path, "llama")
    random = np.random.default_rng(5)
    written = {}
    for kind in kinds:
        per_block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        written[kind.name] = random.integers(0, 60, (3, width // per_block * n_bytes), dtype=np.uint8)
        writer.add_tensor(kind.name, written[kind.name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(path)
    assert len(kinds) > 20
    for kind in kinds:
        assert file.readable(kind.name), kind.name
        expected = gguf.quants.dequantize(written[kind.name], kind)
        assert np.array_equal(file.read(kind.name), expected, equal_nan=True), kind.name
        assert file.tensors[kind.name].shape == (3, width)


def test_a_type_that_cannot_be_dequantised_is_refused_by_name(
    files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path
) -> None:
    path = files.write_gguf(tiny_llama.folder, tmp_path / "odd.gguf")
    raw = path.read_bytes()
    name = b"blk.1.attn_q.weight"
    at = raw.index(name) + len(name) + 4 + 16
    path.write_bytes(raw[:at] + (24).to_bytes(4, "little") + raw[at + 4 :])  # I8
    with pytest.raises(CheckpointError, match=r"model.layers.1.self_attn.q_proj.weight.*found: I8"):
        load_checkpoint(path)


def test_the_divisors_of_llama_31_are_read(files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path) -> None:
    divisors = {"rope_freqs.weight": np.linspace(1, 8, 16, dtype=np.float32)}
    path = files.write_gguf(tiny_llama.folder, tmp_path / "scaled.gguf", extra=divisors)
    scaling = load_checkpoint(path).facts.rope_scaling
    assert scaling is not None
    assert scaling.kind == "factors"
    assert scaling.divisors == pytest.approx(np.linspace(1, 8, 16))


def test_linear_scaling_is_read(files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path) -> None:
    metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    path = files.write_gguf(tiny_llama.folder, tmp_path / "scaled.gguf", metadata=metadata)
    scaling = load_checkpoint(path).facts.rope_scaling
    assert scaling is not None
    assert scaling.divisors == (2.0,) * 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "gemma"}, r"unsupported architecture; found: general.architecture 'gemma'"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, r"llama.rope.scaling.type cannot be used; found: 'yarn'"),
        ({"metadata": {"llama.expert_count": 8}}, r"llama.expert_count cannot be used; found: 8"),
        ({"metadata": {"llama.rope.dimension_count": 16}}, r"rope.dimension_count cannot be used; found: 16"),
        ({"metadata": {"split.count": 3}}, r"one part of several; found: split.count 3"),
        ({"pre": "tekken"}, r"tokenizer.ggml.pre cannot be used; found: 'tekken'"),
        ({"pre": None}, r"tokenizer.ggml.pre cannot be used; found: no such key"),
        ({"extra": {"blk.0.attn_q.bias": np.ones(192, np.float32)}}, r"blk.0.attn_q.bias of .* has no place in Llama"),
    ],
)
def test_what_is_not_built_is_refused_by_name(
    files: ModuleType, tiny_llama: Checkpoint, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = files.write_gguf(tiny_llama.folder, tmp_path / "other.gguf", **changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)


@pytest.mark.parametrize("n_bytes", [0, 3, 10, 200, 20_000, 3_000_000])
def test_a_file_cut_short_is_damaged(tiny_gguf: Path, n_bytes: int) -> None:
    tiny_gguf.write_bytes(tiny_gguf.read_bytes()[:n_bytes])
    with pytest.raises(CheckpointError, match=r"tiny-llama.gguf is damaged or no GGUF file"):
        load_checkpoint(tiny_gguf)


def test_another_kind_of_file_is_named(tiny_llama: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer.json is damaged or no GGUF file; found: another kind"):
        load_checkpoint(tiny_llama.tokenizer_path)


def test_merges_of_sentence_pieces_follow_their_scores() -> None:
    from harness.model.gguf_tokenizer import merges_from_scores

    vocabulary = {"a": 0, "b": 1, "c": 2, "bc": 3, "ab": 4, "abc": 5}
    assert merges_from_scores(vocabulary, [0.0, 0.0, 0.0, -1.0, -2.0, -3.0]) == [
        ["b", "c"],
        ["a", "b"],
        ["a", "bc"],
        ["ab", "c"],
    ]


def test_sentence_pieces_are_joined_best_score_first_and_unknown_text_falls_back_to_bytes(tmp_path: Path) -> None:
    from harness.model.gguf_tokenizer import read_tokenizer
    from harness.model.options import Options

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", "l", "o", "w", "e", "r", "lo", "low", "er", "ow", "\u2581low"]
    types = [2, 3, 3, *[6] * 256, *[1] * 11]
    scores = [0.0] * 259 + [-10.0, -11.0, -12.0, -13.0, -14.0, -15.0, -3.0, -4.0, -2.0, -1.0, -5.0]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    read = read_tokenizer(Options(path=tmp_path, values=metadata))
    tokenizer = Tokenizer.from_str(json.dumps(read.json))
    assert read.adds_bos
    # "ow" (-1) is joined first, then "er" (-2); "l" + "ow" makes "low" (-4), then the space is joined
    assert tokenizer.encode("lower low", add_special_tokens=False).tokens == ["\u2581low", "er", "\u2581low"]
    assert tokenizer.encode("\u00e9", add_special_tokens=False).tokens == ["\u2581", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("low \u00e9", add_special_tokens=False).ids) == "low \u00e9"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("gpt-2", ["It", "'s", "\u0120it", ",", "\u012012345", "!", "\u010a\u010a", "\u0120I", "'", "M"]),
        (
            "smollm",
            ["It", "'s", "\u0120it", ",", "\u0120", "1", "2", "3", "4", "5", "!", "\u010a\u010a", "\u0120I", "'", "M"],
        ),
        ("qwen2", ["It", "'s", "\u0120it", ",", "\u0120", "1", "2", "3", "4", "5", "!\u010a\u010a", "\u0120I", "'M"]),
        ("llama-bpe", ["It", "'s", "\u0120it", ",", "\u0120", "123", "45", "!\u010a\u010a", "\u0120I", "'M"]),
    ],
)
def test_text_is_cut_as_the_file_says(tmp_path: Path, rule: str, words: list[str]) -> None:
    from harness.model.gguf_tokenizer import read_tokenizer
    from harness.model.options import Options

    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": rule,
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.merges": ["a b"],
    }
    tokenizer = Tokenizer.from_str(json.dumps(read_tokenizer(Options(path=tmp_path, values=metadata)).json))
    assert [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str("It's it, 12345!\n\n I'M")] == words
