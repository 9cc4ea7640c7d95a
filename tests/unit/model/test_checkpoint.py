from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import CheckpointError
from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint, load_checkpoint

pytest.importorskip("safetensors", reason="needs the prepare extra")


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rewrite_weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_the_bundled_model_has_the_facts_its_readme_states(tiny_llama: Checkpoint) -> None:
    facts = tiny_llama.facts
    assert (facts.n_parameters, facts.n_layers, facts.hidden_size) == (1_771_200, 4, 192)
    assert (facts.n_heads, facts.n_kv_heads, facts.head_dim, facts.intermediate_size) == (6, 2, 32, 512)
    assert (facts.vocab_size, facts.max_context, facts.rope_theta) == (1024, 512, 10000.0)
    assert (facts.bos_id, facts.eos_ids, facts.tied_embeddings) == (0, (1,), True)


def test_every_file_that_was_read_is_hashed(tiny_llama: Checkpoint) -> None:
    assert sorted(tiny_llama.sha256) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert tiny_llama.sha256["model.safetensors"].startswith("ebcc8d4c69a802f2")


def test_the_head_of_a_tied_model_is_its_embedding_table(tiny_llama: Checkpoint) -> None:
    assert np.array_equal(tiny_llama.weight(Role.HEAD), tiny_llama.weight(Role.EMBEDDING))


def test_an_untied_model_has_a_head_of_its_own(make_checkpoint: Callable[..., Path]) -> None:
    checkpoint = load_checkpoint(make_checkpoint())
    assert not np.array_equal(checkpoint.weight(Role.HEAD), checkpoint.weight(Role.EMBEDDING))


def test_bfloat16_weights_are_read_exactly(make_checkpoint: Callable[..., Path]) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    checkpoint = load_checkpoint(make_checkpoint(dtype=ml_dtypes.bfloat16))
    values = checkpoint.tensor("model.norm.weight")
    assert values.dtype == np.float32
    assert np.array_equal(values, values.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert np.any(values)


def test_rope_theta_of_transformers_4_is_read(make_checkpoint: Callable[..., Path]) -> None:
    assert load_checkpoint(make_checkpoint(rope_theta=750.0)).facts.rope_theta == 750.0


def test_rope_parameters_of_transformers_5_are_read(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(drop=("rope_theta",), rope_parameters={"rope_theta": 900.0, "rope_type": "default"})
    assert load_checkpoint(folder).facts.rope_theta == 900.0


def test_without_a_group_count_every_head_needs_its_own_key(make_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"k_proj.*found: \(16, 32\); expected: \(32, 32\)"):
        load_checkpoint(make_checkpoint(drop=("num_key_value_heads",)))


def test_the_end_tokens_of_generation_config_win(tiny_llama_copy: Path) -> None:
    (tiny_llama_copy / "generation_config.json").write_text('{"eos_token_id": [5, 1]}')
    assert load_checkpoint(tiny_llama_copy).facts.eos_ids == (5, 1)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere does not exist"):
        load_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(tiny_llama_copy: Path, name: str) -> None:
    (tiny_llama_copy / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        load_checkpoint(tiny_llama_copy)


@pytest.mark.parametrize("n_bytes", [0, 7, 5000, 3_546_439])
def test_a_truncated_weights_file_is_damaged(tiny_llama_copy: Path, n_bytes: int) -> None:
    path = tiny_llama_copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(CheckpointError, match=f"model.safetensors is damaged.*{n_bytes} bytes"):
        load_checkpoint(tiny_llama_copy)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_json_file_cut_short_is_damaged(tiny_llama_copy: Path, name: str) -> None:
    path = tiny_llama_copy / name
    path.write_text(path.read_text()[:100])
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        load_checkpoint(tiny_llama_copy)


def test_another_architecture_is_refused_by_name(tiny_llama_copy: Path) -> None:
    change_config(tiny_llama_copy, architectures=["GemmaForCausalLM"])
    with pytest.raises(CheckpointError, match=r"unsupported architecture.*GemmaForCausalLM.*LlamaForCausalLM"):
        load_checkpoint(tiny_llama_copy)


def test_an_architecture_that_is_known_but_not_built_is_refused_with_what_is_missing(tiny_llama_copy: Path) -> None:
    change_config(tiny_llama_copy, architectures=["MixtralForCausalLM"])
    with pytest.raises(CheckpointError, match=r"MixtralForCausalLM has a router and experts"):
        load_checkpoint(tiny_llama_copy)


@pytest.mark.parametrize("option", ["attention_bias", "mlp_bias"])
def test_biases_are_refused_by_name(tiny_llama_copy: Path, option: str) -> None:
    change_config(tiny_llama_copy, **{option: True})
    with pytest.raises(CheckpointError, match=f"{option} cannot be used; found: True"):
        load_checkpoint(tiny_llama_copy)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "yarn"}},
        {"rope_parameters": None, "rope_scaling": {"type": "yarn", "factor": 2.0}},
    ],
    ids=["transformers-5", "transformers-4"],
)
def test_an_unknown_rope_type_is_refused_by_name(tiny_llama_copy: Path, changes: dict[str, Any]) -> None:
    change_config(tiny_llama_copy, **changes)
    with pytest.raises(CheckpointError, match=r"unknown rope type.*'yarn'.*'default'"):
        load_checkpoint(tiny_llama_copy)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_tensor_without_a_place_in_the_architecture_is_refused(
    make_checkpoint: Callable[..., Path], dtype: Any
) -> None:
    bias = {"model.layers.0.self_attn.q_proj.bias": np.ones(32, dtype)}
    with pytest.raises(CheckpointError, match=r"q_proj.bias.*has no place in LlamaForCausalLM"):
        load_checkpoint(make_checkpoint(dtype=dtype, extra=bias))


def test_tensors_that_change_nothing_are_passed_over(make_checkpoint: Callable[..., Path]) -> None:
    nothing = {
        "model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32),
    }
    assert load_checkpoint(make_checkpoint(extra=nothing)).facts.architecture == "LlamaForCausalLM"


def test_a_missing_tensor_is_named(tiny_llama_copy: Path) -> None:
    rewrite_weights(tiny_llama_copy, lambda tensors: tensors.pop("model.layers.2.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"tensor model.layers.2.mlp.up_proj.weight is missing.*\(512, 192\)"):
        load_checkpoint(tiny_llama_copy)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tiny_llama_copy: Path) -> None:
    def cut(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:100].copy()

    rewrite_weights(tiny_llama_copy, cut)
    with pytest.raises(CheckpointError, match=r"model.norm.weight.*found: \(100,\); expected: \(192,\)"):
        load_checkpoint(tiny_llama_copy)


def test_integer_weights_are_refused(tiny_llama_copy: Path) -> None:
    def to_int8(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"] = np.ones(192, dtype=np.int8)

    rewrite_weights(tiny_llama_copy, to_int8)
    with pytest.raises(CheckpointError, match=r"model.norm.weight.*unsupported element type; found: I8"):
        load_checkpoint(tiny_llama_copy)


def test_a_weight_that_is_not_finite_is_refused_when_it_is_read(tiny_llama_copy: Path) -> None:
    def poison(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"][7] = np.nan

    rewrite_weights(tiny_llama_copy, poison)
    with pytest.raises(CheckpointError, match=r"model.norm.weight.*1 of 192 values are NaN or infinite"):
        load_checkpoint(tiny_llama_copy).weight(Role.FINAL_NORM)


def test_a_tokenizer_of_another_model_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer.json does not belong.*token id 63.*vocab_size 60"):
        load_checkpoint(make_checkpoint(vocab_size=60))


def test_an_end_token_outside_the_vocabulary_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"outside the vocabulary; found: id 64"):
        load_checkpoint(make_checkpoint(eos_token_id=64))


@pytest.mark.parametrize("value", ["4", 0, -1, 2.5, True, None])
def test_a_layer_count_that_is_no_positive_number_is_refused(tiny_llama_copy: Path, value: object) -> None:
    change_config(tiny_llama_copy, num_hidden_layers=value)
    with pytest.raises(CheckpointError, match=r"num_hidden_layers cannot be used"):
        load_checkpoint(tiny_llama_copy)


def test_a_tokenizer_in_sentence_pieces_alone_is_refused_with_a_way_out(tiny_llama_copy: Path) -> None:
    (tiny_llama_copy / "tokenizer.json").rename(tiny_llama_copy / "tokenizer.model")
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json is missing; found: only tokenizer.model.*save_pretrained"
    ):
        load_checkpoint(tiny_llama_copy)


def test_hashing_much_is_shown(tiny_llama_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    load_checkpoint(tiny_llama_copy, progress=said.append)
    assert said == []
    monkeypatch.setattr("harness.model.checkpoint.SHOWN_ABOVE_BYTES", 1_000_000)
    load_checkpoint(tiny_llama_copy, progress=said.append)
    assert said == ["checking the 5 files of model, 0.0 GB"]
