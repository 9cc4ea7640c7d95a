"""config.json of a Hugging Face folder, as transformers 4 and 5 write it, to model facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import CheckpointError
from harness.model.architecture import ARCHITECTURES, MISSING, Architecture, expected_shapes
from harness.model.options import Options
from harness.model.rope import ROPE_KINDS, plain_frequencies
from harness.record.artifact import ModelFacts, RopeScaling


def find_architecture(config: Options) -> Architecture:
    names = config.values.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        missing = MISSING.get(name) if isinstance(name, str) else None
        raise CheckpointError(
            f"{config.path}: unsupported architecture"
            + (f": {name} has {missing}, which is not built" if missing is not None else ""),
            found=repr(names),
            expected=" or ".join(repr([known]) for known in ARCHITECTURES),
            next_step="choose a checkpoint of a supported architecture",
        )
    return architecture


def read_facts(folder: Path, config: Options, *, bos_id: int | None, eos_ids: tuple[int, ...]) -> ModelFacts:
    """Raises CheckpointError for an option that is damaged, contradicts another, or asks for what is not built."""
    architecture = find_architecture(config)
    _refuse_unbuilt_options(config, architecture)
    n_heads = config.positive_int("num_attention_heads")
    n_kv_heads = config.positive_int("num_key_value_heads", n_heads)
    hidden_size = config.positive_int("hidden_size")
    head_dim = config.positive_int("head_dim", architecture.default_head_dim or hidden_size // n_heads)
    if n_heads % n_kv_heads:
        raise config.wrong("num_key_value_heads", f"a divisor of num_attention_heads, which is {n_heads}")
    if head_dim % 2:
        raise config.wrong("head_dim", "an even number: RoPE turns pairs")
    theta, scaling = _rope(config, head_dim)
    facts = ModelFacts(
        name=model_name(folder),
        architecture=architecture.name,
        n_layers=config.positive_int("num_hidden_layers"),
        hidden_size=hidden_size,
        intermediate_size=config.positive_int("intermediate_size"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        vocab_size=config.positive_int("vocab_size"),
        max_context=config.positive_int("max_position_embeddings"),
        rope_theta=theta,
        rms_norm_eps=config.positive_float("rms_norm_eps", 1e-6),
        tied_embeddings=config.flag("tie_word_embeddings", False),
        bos_id=bos_id,
        eos_ids=eos_ids,
        n_parameters=0,
        rope_scaling=scaling,
        sliding_window=_window(config, architecture),
    )
    return finish_facts(facts, config.path)


def model_name(path: Path) -> str:
    """The last part of the path; a folder of the hub's cache is called after its repository, not its commit."""
    place = path.resolve()
    cached = place.parent.name == "snapshots" and place.parent.parent.name.startswith("models--")
    name = place.parent.parent.name.rpartition("--")[2] if cached else place.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "model"


def finish_facts(facts: ModelFacts, path: Path) -> ModelFacts:
    """With the number of parameters; special tokens outside the vocabulary are refused."""
    for token in (*(() if facts.bos_id is None else (facts.bos_id,)), *facts.eos_ids):
        if token >= facts.vocab_size:
            raise CheckpointError(
                f"{path}: a special token lies outside the vocabulary",
                found=f"id {token}",
                expected=f"below vocab_size {facts.vocab_size}",
            )
    n_parameters = sum(int(np.prod(shape)) for shape in expected_shapes(facts).values())
    return replace(facts, n_parameters=n_parameters)


def _refuse_unbuilt_options(config: Options, architecture: Architecture) -> None:
    for key in architecture.must_be_false:
        if config.values.get(key, False) is not False:
            raise config.wrong(key, f"false: biases are not built for {architecture.name}")
    if config.values.get("hidden_act", architecture.hidden_act) != architecture.hidden_act:
        raise config.wrong("hidden_act", repr(architecture.hidden_act))


def _rope(config: Options, head_dim: int) -> tuple[float, RopeScaling | None]:
    """transformers 5 keeps ``rope_parameters``; 4 keeps ``rope_theta``, and ``rope_scaling`` where it is not plain."""
    key = next((k for k in ("rope_parameters", "rope_scaling") if config.values.get(k) is not None), None)
    values = config.values[key] if key is not None else {}
    if not isinstance(values, dict):
        raise config.wrong(str(key), "a JSON object")
    parameters = Options(path=config.path, values=values)
    for holder in (values, config.values):
        if holder.get("partial_rotary_factor", 1.0) != 1.0:
            raise CheckpointError(
                f"{config.path}: partial rotary embeddings are not built",
                found=f"partial_rotary_factor {holder['partial_rotary_factor']!r}",
                expected="1.0",
            )
    kind = values.get("rope_type", values.get("type", "default"))
    if not isinstance(kind, str) or kind not in ROPE_KINDS:
        raise CheckpointError(
            f"{config.path}: unknown rope type in {key}",
            found=repr(kind),
            expected=" or ".join(map(repr, ROPE_KINDS)),
            next_step="choose a checkpoint with one of these",
        )
    where = parameters if "rope_theta" in values else config
    theta = where.positive_float("rope_theta", 10000.0)
    numbers = {name: parameters.positive_float(name) for name in ROPE_KINDS[kind].keys}
    return theta, rope_scaling(kind, numbers, theta, head_dim, config.path)


def rope_scaling(
    kind: str, numbers: Mapping[str, float], theta: float, head_dim: int, path: Path
) -> RopeScaling | None:
    """``kind`` is one of ``ROPE_KINDS`` and ``numbers`` holds its keys."""
    rule = ROPE_KINDS[kind].divisors
    if rule is None:
        return None
    with np.errstate(all="ignore"):
        divisors = rule(plain_frequencies(theta, head_dim), numbers)
    if not np.all(np.isfinite(divisors) & (divisors > 0)):
        raise CheckpointError(
            f"{path}: the rope scaling {kind!r} has no frequencies",
            found=", ".join(f"{name} {value:g}" for name, value in numbers.items()),
            expected="high_freq_factor above low_freq_factor",
        )
    return RopeScaling(kind=kind, divisors=tuple(map(float, divisors)))


def _window(config: Options, architecture: Architecture) -> int | None:
    """``layer_types`` of newer configs says which layers use the window; one is enough for it to count."""
    rule = architecture.window
    if rule is None:
        return None
    kinds: Any = config.values.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" not in kinds:
        return None
    if rule.switch is not None and not config.flag(rule.switch, False):
        return None
    if rule.key in config.values and config.values[rule.key] is None:
        return None
    return config.positive_int(rule.key, rule.default)
