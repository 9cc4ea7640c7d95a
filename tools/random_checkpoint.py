"""A checkpoint of LLaMA's shape with random weights, for measuring what preparing a model of some size takes.

    python tools/random_checkpoint.py 7B FOLDER

Half-precision safetensors, one file a layer, so that no more than a layer is in memory. Tokenizer: the bundled model's.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import save_file

TOKENIZER: Final = Path(__file__).resolve().parents[1] / "models" / "tiny-llama" / "tokenizer.json"
STANDARD_DEVIATION: Final = 0.02
"""Of every matrix, as LLaMA-2 is initialised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    n_layers: int
    hidden: int
    intermediate: int
    n_heads: int
    n_kv_heads: int
    vocab: int = 32000

    @property
    def n_parameters(self) -> int:
        kv = self.hidden // self.n_heads * self.n_kv_heads
        layer = 2 * self.hidden * (self.hidden + kv) + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.n_layers * layer + 2 * self.vocab * self.hidden + self.hidden


SHAPES: Final[Mapping[str, Shape]] = {
    "0.1B": Shape(n_layers=12, hidden=640, intermediate=1728, n_heads=10, n_kv_heads=10),
    "0.5B": Shape(n_layers=24, hidden=1152, intermediate=3072, n_heads=18, n_kv_heads=18),
    "1B": Shape(n_layers=22, hidden=2048, intermediate=5632, n_heads=32, n_kv_heads=4),
    "3B": Shape(n_layers=26, hidden=3200, intermediate=8640, n_heads=32, n_kv_heads=32),
    "7B": Shape(n_layers=32, hidden=4096, intermediate=11008, n_heads=32, n_kv_heads=32),
}
"""1B is TinyLlama's shape, 3B OpenLLaMA's, 7B LLaMA-2's."""


def write_checkpoint(shape: Shape, folder: Path, *, seed: int = 7) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    kv = shape.hidden // shape.n_heads * shape.n_kv_heads

    def matrix(rows: int, columns: int) -> np.ndarray:
        values = random.standard_normal((rows, columns), dtype=np.float32)
        return (values * np.float32(STANDARD_DEVIATION)).astype(np.float16)

    def ones() -> np.ndarray:
        return np.ones(shape.hidden, np.float16)

    index: dict[str, str] = {}

    def save(name: str, tensors: dict[str, np.ndarray]) -> None:
        save_file(tensors, folder / name)
        index.update(dict.fromkeys(tensors, name))

    save("embedding.safetensors", {"model.embed_tokens.weight": matrix(shape.vocab, shape.hidden)})
    save("head.safetensors", {"lm_head.weight": matrix(shape.vocab, shape.hidden), "model.norm.weight": ones()})
    for layer in range(shape.n_layers):
        at = f"model.layers.{layer}"
        save(
            f"layer{layer}.safetensors",
            {
                f"{at}.input_layernorm.weight": ones(),
                f"{at}.post_attention_layernorm.weight": ones(),
                f"{at}.self_attn.q_proj.weight": matrix(shape.hidden, shape.hidden),
                f"{at}.self_attn.k_proj.weight": matrix(kv, shape.hidden),
                f"{at}.self_attn.v_proj.weight": matrix(kv, shape.hidden),
                f"{at}.self_attn.o_proj.weight": matrix(shape.hidden, shape.hidden),
                f"{at}.mlp.gate_proj.weight": matrix(shape.intermediate, shape.hidden),
                f"{at}.mlp.up_proj.weight": matrix(shape.intermediate, shape.hidden),
                f"{at}.mlp.down_proj.weight": matrix(shape.hidden, shape.intermediate),
            },
        )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": shape.n_layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "vocab_size": shape.vocab,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SHAPES)
    parser.add_argument("folder", type=Path, help="made; must not be there yet")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.size]
    write_checkpoint(shape, arguments.folder)
    print(f"{shape.n_parameters / 1e9:.2f} B parameters in {arguments.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
