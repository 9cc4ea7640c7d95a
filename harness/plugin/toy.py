"""The toy graph of the smoke suite: a model of one layer, made by rule, prepared once per SoC and kept.

When it gives the right tokens, libraries, device, driver and runner work, and what fails above it is the model's own.
Its weights never change, so its speed is that of the phone: the canary of every session.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from harness.errors import SnapGateError
from harness.record.artifact import Artifact, load_artifact
from harness.record.comparison import Leg
from harness.record.job import Prompt
from harness.record.runner import Generation
from harness.record.vocabulary import Suite
from harness.run.workload import Workload
from harness.soc import BY_PART, KvPrecision, Precision

NAME: Final = "toy"
_WIDTH, _INNER, _VOCABULARY, _HEADS, _HEAD_DIM = 64, 64, 64, 2, 32
_CONTEXT, _PREFILL = 32, 8
_PROMPT: Final = (1, 5, 9, 13)
_N_GEN: Final = 4
"""Tokens that have to be right; float16 may turn a later one."""
_N_GEN_TIMED: Final = 24
_REPETITIONS, _REPETITIONS_EMULATED = 20, 2
_SEED: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    artifact: Artifact
    answer: tuple[int, ...]
    """The first greedy tokens of the fp32 graph on the host"""

    def is_answered_by(self, generations: Sequence[Generation]) -> bool:
        """By all of them: the same work gives the same tokens."""
        said = {g.token_ids for g in generations}
        return len(said) == 1 and said.pop()[: len(self.answer)] == self.answer


def toy_artifact(artifacts: Path, *, part: str, say: Callable[[str], None]) -> Toy | None:
    """None, and a word why, where this host or SoC has no toy graph: then the ladder has one rung less."""
    from harness.model.reference import load_reference

    folder = artifacts / f"{NAME}-{Precision.FP16}-{KvPrecision.KVFP16}-{part}"
    try:
        if not folder.is_dir():
            say(f"preparing the toy graph for {part}")
            _prepare(artifacts, part)
        artifact = load_artifact(folder)
        answer, _ = load_reference(artifact, Leg.FP32).generate(_PROMPT, _N_GEN, ignore_eos=True)
    except (SnapGateError, ImportError) as exc:
        say(f"no toy graph: {exc}")
        return None
    return Toy(artifact=artifact, answer=tuple(int(token) for token in answer))


def workload(*, virtual: bool) -> Workload:
    prompt = Prompt(
        prompt_id="toy",
        mode="generate",
        tokens=_PROMPT,
        n_gen=_N_GEN_TIMED,
        ignore_eos=True,
        warmups=1,
        repetitions=_REPETITIONS_EMULATED if virtual else _REPETITIONS,
    )
    return Workload(name=str(Suite.TOY), prompts=(prompt,), deadline_s=300, stall_s=120)


def _prepare(artifacts: Path, part: str) -> None:
    from harness.compiler.prepare import prepare

    with tempfile.TemporaryDirectory(prefix="snapgate-toy-") as text:
        checkpoint = Path(text) / NAME
        write_toy(checkpoint)
        prepare(
            checkpoint,
            soc=BY_PART[part],
            precision=Precision.FP16,
            kv=KvPrecision.KVFP16,
            context=_CONTEXT,
            prefill=_PREFILL,
            out=artifacts,
        )


def write_toy(folder: Path) -> None:
    """A Hugging Face checkpoint: normal weights of a fixed seed, an untied head, 64 words."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models

    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": _WIDTH,
        "intermediate_size": _INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": _HEAD_DIM,
        "vocab_size": _VOCABULARY,
        "max_position_embeddings": _CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"w{token}": token for token in range(_VOCABULARY)}
    Tokenizer(models.WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))  # noqa: S106
    random = np.random.default_rng(_SEED)
    square, at = (_WIDTH, _WIDTH), "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (_VOCABULARY, _WIDTH),
        "lm_head.weight": (_VOCABULARY, _WIDTH),
        **{f"{at}.self_attn.{name}_proj.weight": square for name in "qkvo"},
        f"{at}.mlp.gate_proj.weight": (_INNER, _WIDTH),
        f"{at}.mlp.up_proj.weight": (_INNER, _WIDTH),
        f"{at}.mlp.down_proj.weight": (_WIDTH, _INNER),
    }
    tensors = {
        name: (random.normal(size=shape) / np.sqrt(shape[1])).astype(np.float32) for name, shape in shapes.items()
    }
    for name in ("model.norm.weight", f"{at}.input_layernorm.weight", f"{at}.post_attention_layernorm.weight"):
        tensors[name] = np.ones(_WIDTH, dtype=np.float32)
    save_file(tensors, folder / "model.safetensors")
