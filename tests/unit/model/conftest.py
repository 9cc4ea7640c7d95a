"""The bundled model, and a generator of other checkpoints: tiny, random, but complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from harness.model.checkpoint import Checkpoint, load_checkpoint

TINY_LLAMA = Path(__file__).parents[3] / "models" / "tiny-llama"


@pytest.fixture(scope="session")
def tiny_llama() -> Checkpoint:
    return load_checkpoint(TINY_LLAMA)


@pytest.fixture
def tiny_llama_copy(tmp_path: Path) -> Path:
    """A copy of the bundled model's folder that a test may damage."""
    return Path(shutil.copytree(TINY_LLAMA, tmp_path / "model"))


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """A random model of 2 layers, 4 heads of 8 in 2 groups, width 32, inner width 48, vocabulary 64, context 96.

    ``config`` changes its config.json, ``extra`` adds tensors, and ``n_shards`` deals the weights into several files.
    """
    pytest.importorskip("safetensors.numpy", reason="needs the prepare extra")

    def make(
        *,
        dtype: Any = np.float32,
        drop: tuple[str, ...] = (),
        extra: dict[str, Any] | None = None,
        n_shards: int = 1,
        name: str = "random-model",
        **config: Any,
    ) -> Path:
        values: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 64,
            "max_position_embeddings": 96,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500.0,
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            **config,
        }
        values = {key: value for key, value in values.items() if key not in drop}
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(values))
        vocabulary = {f"w{token}": token for token in range(64)}
        Tokenizer(models.WordLevel(vocabulary, unk_token="w0")).save(str(folder / "tokenizer.json"))  # noqa: S106
        random = np.random.default_rng(3)
        width, inner, head_dim = 32, 48, values.get("head_dim", 8)
        queries, keys = values["num_attention_heads"] * head_dim, values.get("num_key_value_heads", 2) * head_dim
        shapes = {"model.embed_tokens.weight": (64, width), "model.norm.weight": (width,)}
        if not values["tie_word_embeddings"]:
            shapes["lm_head.weight"] = (64, width)
        for layer in range(2):
            at = f"model.layers.{layer}"
            shapes |= {
                f"{at}.input_layernorm.weight": (width,),
                f"{at}.post_attention_layernorm.weight": (width,),
                f"{at}.self_attn.q_proj.weight": (queries, width),
                f"{at}.self_attn.k_proj.weight": (keys, width),
                f"{at}.self_attn.v_proj.weight": (keys, width),
                f"{at}.self_attn.o_proj.weight": (width, queries),
                f"{at}.mlp.gate_proj.weight": (inner, width),
                f"{at}.mlp.up_proj.weight": (inner, width),
                f"{at}.mlp.down_proj.weight": (width, inner),
            }
            if values["architectures"] == ["Qwen2ForCausalLM"]:
                shapes |= {
                    f"{at}.self_attn.q_proj.bias": (queries,),
                    f"{at}.self_attn.k_proj.bias": (keys,),
                    f"{at}.self_attn.v_proj.bias": (keys,),
                }
            if values["architectures"] == ["Qwen3ForCausalLM"]:
                shapes |= {
                    f"{at}.self_attn.q_norm.weight": (head_dim,),
                    f"{at}.self_attn.k_norm.weight": (head_dim,),
                }
        tensors = {name: (random.standard_normal(shape) * 0.3).astype(dtype) for name, shape in shapes.items()}
        _save(folder, {**tensors, **(extra or {})}, n_shards)
        return folder

    return make


def _save(folder: Path, tensors: dict[str, Any], n_shards: int) -> None:
    from safetensors.numpy import save_file

    if n_shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    weight_map = {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        part = dict(list(tensors.items())[shard::n_shards])
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
