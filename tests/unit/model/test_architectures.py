"""Every architecture: its graph against the NumPy evaluation, and both against cases worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import CheckpointError, UserError
from harness.model.architecture import ARCHITECTURES
from harness.model.checkpoint import Checkpoint, load_checkpoint
from harness.model.decoder import Decoder
from harness.model.numpy_llama import numpy_logits
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.form import GraphForm, RmsNorm
from harness.model.graph import build_graph

TOKENS = [1, *(7 * at % 64 for at in range(40))]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def graph_logits(
    checkpoint: Checkpoint, tokens: list[int], context: int, rmsnorm: RmsNorm = RmsNorm.OPERATOR
) -> np.ndarray:
    graphs = [
        build_graph(checkpoint, n_tokens=n, context_length=context, form=GraphForm(rmsnorm=rmsnorm)) for n in (8, 1)
    ]
    runners = [CpuGraph(graph.SerializeToString()) for graph in graphs]
    return Decoder(runners, checkpoint.facts, context_length=context, mask_value=-100.0).extend(tokens)


def relative_l2(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("name", list(ARCHITECTURES))
@pytest.mark.parametrize("rmsnorm", list(RmsNorm))
def test_the_graph_of_an_architecture_computes_what_numpy_computes(
    make_checkpoint: Callable[..., Path], name: str, rmsnorm: RmsNorm
) -> None:
    checkpoint = load_checkpoint(make_checkpoint(architectures=[name], head_dim=8, sliding_window=None))
    expected = numpy_logits(checkpoint, TOKENS)
    assert relative_l2(graph_logits(checkpoint, TOKENS, 64, rmsnorm), expected) < 1e-5


@pytest.mark.parametrize(
    "config",
    [
        {"head_dim": 16},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"tie_word_embeddings": True},
        {"rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": LLAMA3},
        {"rope_parameters": {**LLAMA3, "rope_theta": 500.0}},
        {"architectures": ["MistralForCausalLM"], "sliding_window": 64},
        {"architectures": ["Qwen3ForCausalLM"], "head_dim": 16, "num_key_value_heads": 1, "tie_word_embeddings": True},
    ],
    ids=["wide-heads", "mqa", "mha", "tied", "linear", "llama3-v4", "llama3-v5", "window-as-wide", "qwen3-all"],
)
def test_a_variation_computes_what_numpy_computes(make_checkpoint: Callable[..., Path], config: dict[str, Any]) -> None:
    checkpoint = load_checkpoint(make_checkpoint(**config))
    assert relative_l2(graph_logits(checkpoint, TOKENS, 64), numpy_logits(checkpoint, TOKENS)) < 1e-5


@pytest.mark.parametrize("name", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_what_an_architecture_adds_changes_the_logits(make_checkpoint: Callable[..., Path], name: str) -> None:
    from safetensors.numpy import load_file, save_file

    folder = make_checkpoint(architectures=[name], head_dim=8)
    before = numpy_logits(load_checkpoint(folder), TOKENS)
    tensors = load_file(folder / "model.safetensors")
    for tensor, values in tensors.items():
        if tensor.endswith((".bias", "q_norm.weight", "k_norm.weight")):
            tensors[tensor] = values * 3
    save_file(tensors, folder / "model.safetensors")
    assert relative_l2(numpy_logits(load_checkpoint(folder), TOKENS), before) > 0.01


def one_head(folder: Path, architecture: str, **tensors: Any) -> Checkpoint:
    """One layer, one head of 2, width 2, vocabulary 2 with the embeddings (1, 0) and (0, 1); no feed-forward block.

    Every matrix is 0 but the head, which is the identity; the norms' weights are 1. ``tensors`` changes some.
    """
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models

    config = {
        "architectures": [architecture],
        "hidden_size": 2,
        "intermediate_size": 1,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "head_dim": 2,
        "vocab_size": 2,
        "max_position_embeddings": 8,
        "rms_norm_eps": 1e-12,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))  # noqa: S106
    zero, one, identity = np.zeros((2, 2)), np.ones(2), np.eye(2)
    at = "model.layers.0"
    weights = {
        "model.embed_tokens.weight": identity,
        "model.norm.weight": one,
        "lm_head.weight": identity,
        f"{at}.input_layernorm.weight": one,
        f"{at}.post_attention_layernorm.weight": one,
        **{f"{at}.self_attn.{name}_proj.weight": zero for name in "qkvo"},
        f"{at}.mlp.gate_proj.weight": np.zeros((1, 2)),
        f"{at}.mlp.up_proj.weight": np.zeros((1, 2)),
        f"{at}.mlp.down_proj.weight": np.zeros((2, 1)),
        **{f"{at}.self_attn.{name}": value for name, value in tensors.items()},
    }
    save_file({name: np.array(value, np.float32) for name, value in weights.items()}, folder / "model.safetensors")
    return load_checkpoint(folder)


def both(checkpoint: Checkpoint, tokens: list[int]) -> list[np.ndarray]:
    graphs = [build_graph(checkpoint, n_tokens=n, context_length=8) for n in (2, 1)]
    runners = [CpuGraph(graph.SerializeToString()) for graph in graphs]
    decoder = Decoder(runners, checkpoint.facts, context_length=8, mask_value=-100.0)
    return [numpy_logits(checkpoint, tokens)[-1], decoder.extend(tokens)[-1]]


def test_a_value_bias_alone_reaches_the_logits_as_worked_out_by_hand(tmp_path: Path) -> None:
    """Values are the bias (3, 0) whatever attends to what: (1, 0) + (3, 0) = (4, 0), normed to (sqrt 2, 0)."""
    tensors = {"q_proj.bias": [0, 0], "k_proj.bias": [0, 0], "v_proj.bias": [3, 0], "o_proj.weight": np.eye(2)}
    checkpoint = one_head(tmp_path / "model", "Qwen2ForCausalLM", **tensors)
    for logits in both(checkpoint, [0, 0]):
        assert logits == pytest.approx([1.414214, 0], abs=1e-5)
    for logits in both(checkpoint, [1]):  # (0, 1) + (3, 0) = (3, 1), whose rms is sqrt 5
        assert logits == pytest.approx([1.341641, 0.447214], abs=1e-5)


def test_query_and_key_biases_are_turned_and_scored_as_worked_out_by_hand(tmp_path: Path) -> None:
    """Query and key are (2, 0) at every position: the score of distance d is 4 cos(d) / sqrt 2.

    Position 1 sees 1.528206 (d = 1) and 2.828427 (d = 0): softmax 0.214128 and 0.785872. Values are the normed
    embeddings, (1.414214, 0) then (0, 1.414214): the sum of (0, 1) and (0.302822, 1.111391) is (0.302822, 2.111391),
    its rms 1.508256.
    """
    tensors = {"q_proj.bias": [2, 0], "k_proj.bias": [2, 0], "v_proj.bias": [0, 0]}
    tensors |= {"v_proj.weight": np.eye(2), "o_proj.weight": np.eye(2)}
    checkpoint = one_head(tmp_path / "model", "Qwen2ForCausalLM", **tensors)
    for logits in both(checkpoint, [0, 1]):
        assert logits == pytest.approx([0.200776, 1.399889], abs=1e-5)


def test_queries_and_keys_are_normed_per_head_as_worked_out_by_hand(tmp_path: Path) -> None:
    """Queries and keys are 10 and 1000 times the normed embeddings: the norm takes both back to rms 1, its weights
    make the query (2.828427, 0) and (0, 2.828427), the key (1.414214, 0) and (0, 1.414214) before they are turned.

    At position 1 the query lies along the second axis. Its own key scores 2.828427 * 1.414214 / sqrt 2 = 2.828427, the
    key of position 0 lies a quarter turn behind plus 1 rad: 2.828427 * cos(pi/2 + 1) = -2.380039. Softmax 0.005440 and
    0.994560; with the values as before (0.007694, 2.406520), rms 1.701675.
    """
    tensors = {"q_proj.weight": 10 * np.eye(2), "k_proj.weight": 1000 * np.eye(2)}
    tensors |= {"v_proj.weight": np.eye(2), "o_proj.weight": np.eye(2)}
    tensors |= {"q_norm.weight": [2, 2], "k_norm.weight": [1, 1]}
    checkpoint = one_head(tmp_path / "model", "Qwen3ForCausalLM", **tensors)
    for logits in both(checkpoint, [0, 1]):
        assert logits == pytest.approx([0.004521, 1.414206], abs=1e-5)


def test_a_context_past_the_sliding_window_is_refused_by_name(make_checkpoint: Callable[..., Path]) -> None:
    checkpoint = load_checkpoint(make_checkpoint(architectures=["MistralForCausalLM"], sliding_window=32))
    build_graph(checkpoint, n_tokens=1, context_length=32)
    with pytest.raises(UserError, match=r"sliding window.*context 33, sliding_window 32.*--context 32"):
        build_graph(checkpoint, n_tokens=1, context_length=33)


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 48}, 48),
        ({"architectures": ["MistralForCausalLM"]}, 4096),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 48}, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 48, "use_sliding_window": False}, None),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 48, "use_sliding_window": True}, 48),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "sliding_window": 48,
                "use_sliding_window": True,
                "layer_types": ["full_attention", "full_attention"],
            },
            None,
        ),
    ],
)
def test_the_window_counts_where_transformers_would_use_it(
    make_checkpoint: Callable[..., Path], config: dict[str, Any], window: int | None
) -> None:
    assert load_checkpoint(make_checkpoint(**config)).facts.sliding_window == window


def test_qwen3_without_a_head_dim_has_heads_of_128(make_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"expected: \(512, 32\)"):
        load_checkpoint(make_checkpoint(architectures=["Qwen3ForCausalLM"]))


def test_a_rope_scaling_without_one_of_its_numbers_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    scaling = {key: value for key, value in LLAMA3.items() if key != "low_freq_factor"}
    with pytest.raises(CheckpointError, match=r"low_freq_factor cannot be used; found: no such key"):
        load_checkpoint(make_checkpoint(rope_scaling=scaling))


def test_frequency_limits_in_the_wrong_order_are_refused(make_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"'llama3' has no frequencies.*low_freq_factor 4.*high_freq_factor 4"):
        load_checkpoint(make_checkpoint(rope_scaling={**LLAMA3, "low_freq_factor": 4.0}))
