"""Writes a Hugging Face checkpoint as a GGUF file, with the gguf package's own writer, as converters do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def turned(values: np.ndarray, n_heads: int) -> np.ndarray:
    """Row i of the first half of a head goes to 2 i, row i of its second half to 2 i + 1."""
    result = np.empty_like(values)
    for head in np.split(np.arange(len(values)), n_heads):
        half = len(head) // 2
        result[head[0::2]] = values[head[:half]]
        result[head[1::2]] = values[head[half:]]
    return result


def write_gguf(
    folder: Path,
    path: Path,
    *,
    kind: str = "llama",
    quantisation: str = "F16",
    pre: str | None = "gpt-2",
    adds_bos: bool = True,
    metadata: dict[str, int | float | str] | None = None,
    extra: dict[str, np.ndarray] | None = None,
) -> Path:
    """``quantisation`` is for the matrices whose rows it fits; vectors are float32. ``metadata`` is written last."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    n_heads, n_kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_kv_heads)
    writer.add_key_length(config.get("head_dim", config["hidden_size"] // n_heads))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    _add_tokenizer(writer, tokenizer, pre)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(adds_bos)
    adders: dict[type, Any] = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in (metadata or {}).items():
        adders[type(value)](key, value)
    for name, values in load_file(folder / "model.safetensors").items():
        if kind == "llama" and "q_proj" in name:
            values = turned(values, n_heads)
        if kind == "llama" and "k_proj" in name:
            values = turned(values, n_kv_heads)
        _add_tensor(writer, gguf_name(name), values.astype(np.float32), quantisation)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(writer: Any, name: str, values: np.ndarray, quantisation: str) -> None:
    import gguf

    kind = gguf.GGMLQuantizationType[quantisation]
    if values.ndim == 1 or values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0]:
        kind = gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _add_tokenizer(writer: Any, tokenizer: dict[str, Any], pre: str | None) -> None:
    import gguf

    vocabulary = tokenizer["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [" ".join(pair) for pair in tokenizer["model"].get("merges") or []]
    if not merges:
        tokens[:3], merges = ["a", "b", "ab"], ["a b"]
    control = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in control else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges(merges)
