"""A Hugging Face checkpoint folder: facts from its JSON files, tensors read one at a time.

safetensors (the ``prepare`` extra) is imported only when the weights file is opened.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import CheckpointError, HostError
from harness.model.architecture import ARCHITECTURES, Architecture, Role, expected_shapes, tensor_name
from harness.record.artifact import ModelFacts, sha256_of

CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
TOKENIZER: Final = "tokenizer.json"
FLOAT_DTYPES: Final = ("F16", "BF16", "F32")
"""Element types of weights, as safetensors names them. All are read as float32, exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An opened checkpoint: every expected tensor is present with the expected shape and a float type."""

    folder: Path
    facts: ModelFacts
    sha256: dict[str, str]
    """File name to sha256 of every file that was read."""

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / TOKENIZER

    def tensor(self, name: str) -> NDArray[np.float32]:
        """One tensor as float32. Refuses values that are not finite: they are damage, and would spread silently."""
        path = self.folder / WEIGHTS
        with _open_weights(path) as weights:
            values: NDArray[np.float32] = weights.get_tensor(name).astype(np.float32)
        n_bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        if n_bad:
            raise CheckpointError(
                f"tensor {name} of {path} holds values that are not finite",
                found=f"{n_bad} of {values.size} values are NaN or infinite",
                expected="finite numbers",
                next_step="fetch the checkpoint again; if it is still so, the training run diverged",
            )
        return values

    def weight(self, role: Role, layer: int | None = None) -> NDArray[np.float32]:
        return self.tensor(tensor_name(self.facts, role, layer))


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read and check a checkpoint. Raises CheckpointError for anything missing, damaged or unsupported."""
    if not folder.is_dir():
        raise CheckpointError(
            f"checkpoint {folder} {'is not a folder' if folder.exists() else 'does not exist'}",
            expected=f"a folder with {CONFIG}, {WEIGHTS} and {TOKENIZER}",
            next_step="check the path",
        )
    config = _Options(path=folder / CONFIG, values=_read_object(folder / CONFIG))
    architecture = _architecture(config)
    _refuse_unbuilt_options(config, architecture)
    has_generation = (folder / GENERATION).is_file()
    generation = _Options(path=folder / GENERATION, values=_read_object(folder / GENERATION) if has_generation else {})
    facts = _facts(folder, config, generation, architecture)
    _check_tokenizer(folder / TOKENIZER, facts.vocab_size)
    _check_weights(folder, expected_shapes(facts))
    names = (CONFIG, TOKENIZER, WEIGHTS) + ((GENERATION,) if has_generation else ())
    return Checkpoint(folder=folder, facts=facts, sha256={name: sha256_of(folder / name) for name in sorted(names)})


def _open_weights(path: Path) -> Any:
    """The safetensors file, memory-mapped: a context manager with ``keys``, ``get_slice`` and ``get_tensor``."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as exc:
        raise HostError(
            "reading a checkpoint needs safetensors, which is not installed",
            next_step="pip install 'snapgate[prepare]'",
        ) from exc
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as exc:
        raise CheckpointError(
            f"{path} is damaged",
            found=f"{exc} ({path.stat().st_size} bytes)",
            expected="a complete safetensors file",
            next_step="fetch the checkpoint again",
        ) from exc


def _require(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing",
            expected=f"a checkpoint folder with {CONFIG}, {WEIGHTS} and {TOKENIZER}",
            next_step="fetch the checkpoint again, or check the path",
        )


def _read_object(path: Path) -> dict[str, Any]:
    _require(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise CheckpointError(
            f"{path} is damaged", found=str(exc), expected="JSON", next_step="fetch the checkpoint again"
        ) from exc
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is damaged", found=f"JSON {type(data).__name__}", expected="a JSON object")
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """A JSON object that knows which file it came from, for its error messages."""

    path: Path
    values: dict[str, Any]

    def positive_int(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key)
        if value is None:
            value = default
        if type(value) is not int or value < 1:
            raise self.wrong(key, "a positive whole number")
        return value

    def positive_float(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key)
        if value is None:
            value = default
        if type(value) not in (int, float) or value is None or not value > 0:
            raise self.wrong(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def wrong(self, key: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: {key} cannot be used",
            found=repr(self.values[key]) if key in self.values else "no such key",
            expected=expected,
            next_step="fetch the checkpoint again, or choose a supported model",
        )


def _architecture(config: _Options) -> Architecture:
    names = config.values.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        raise CheckpointError(
            f"{config.path}: unsupported architecture",
            found=repr(names),
            expected=" or ".join(repr([known]) for known in ARCHITECTURES),
            next_step="choose a checkpoint of a supported architecture",
        )
    return architecture


def _refuse_unbuilt_options(config: _Options, architecture: Architecture) -> None:
    for key in architecture.must_be_false:
        if config.values.get(key, False) is not False:
            raise config.wrong(key, "false: biases are not built")
    if config.values.get("hidden_act", architecture.hidden_act) != architecture.hidden_act:
        raise config.wrong("hidden_act", repr(architecture.hidden_act))
    if config.values.get("quantization_config") is not None:
        raise config.wrong("quantization_config", "a checkpoint with float weights")


def _rope_theta(config: _Options, architecture: Architecture) -> float:
    """transformers 5 keeps ``rope_parameters``; 4 keeps ``rope_theta``, and ``rope_scaling`` where it is not plain."""
    key = next((k for k in ("rope_parameters", "rope_scaling") if config.values.get(k) is not None), None)
    parameters = config.values[key] if key is not None else {}
    if not isinstance(parameters, dict):
        raise config.wrong(str(key), "a JSON object")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in architecture.rope_types:
        raise CheckpointError(
            f"{config.path}: unknown rope type in {key}",
            found=repr(kind),
            expected=" or ".join(map(repr, architecture.rope_types)),
            next_step="choose a checkpoint without RoPE scaling",
        )
    for where in (parameters, config.values):
        if where.get("partial_rotary_factor", 1.0) != 1.0:
            raise CheckpointError(
                f"{config.path}: partial rotary embeddings are not built",
                found=f"partial_rotary_factor {where['partial_rotary_factor']!r}",
                expected="1.0",
            )
    if "rope_theta" in parameters:
        return _Options(path=config.path, values=parameters).positive_float("rope_theta")
    return config.positive_float("rope_theta", 10000.0)


def _token_ids(options: _Options, key: str) -> tuple[int, ...]:
    value = options.values.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if any(type(token) is not int or token < 0 for token in ids):
        raise options.wrong(key, "a token id, or a list of them")
    return tuple(ids)


def _facts(folder: Path, config: _Options, generation: _Options, architecture: Architecture) -> ModelFacts:
    n_heads = config.positive_int("num_attention_heads")
    n_kv_heads = config.positive_int("num_key_value_heads", n_heads)
    hidden_size = config.positive_int("hidden_size")
    head_dim = config.positive_int("head_dim", hidden_size // n_heads)
    if n_heads % n_kv_heads:
        raise config.wrong("num_key_value_heads", f"a divisor of num_attention_heads, which is {n_heads}")
    if head_dim % 2:
        raise config.wrong("head_dim", "an even number: RoPE turns pairs")
    bos = _token_ids(config, "bos_token_id")
    eos = _token_ids(generation, "eos_token_id") or _token_ids(config, "eos_token_id")
    facts = ModelFacts(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name) or "model",
        architecture=architecture.name,
        n_layers=config.positive_int("num_hidden_layers"),
        hidden_size=hidden_size,
        intermediate_size=config.positive_int("intermediate_size"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        vocab_size=config.positive_int("vocab_size"),
        max_context=config.positive_int("max_position_embeddings"),
        rope_theta=_rope_theta(config, architecture),
        rms_norm_eps=config.positive_float("rms_norm_eps", 1e-6),
        tied_embeddings=config.flag("tie_word_embeddings", False),
        bos_id=bos[0] if bos else None,
        eos_ids=eos,
        n_parameters=0,
    )
    for token in (*bos, *eos):
        if token >= facts.vocab_size:
            raise CheckpointError(
                f"{config.path}: a special token lies outside the vocabulary",
                found=f"id {token}",
                expected=f"below vocab_size {facts.vocab_size}",
            )
    n_parameters = sum(int(np.prod(shape)) for shape in expected_shapes(facts).values())
    return replace(facts, n_parameters=n_parameters)


def _check_tokenizer(path: Path, vocab_size: int) -> None:
    from tokenizers import Tokenizer

    _require(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as exc:
        raise CheckpointError(
            f"{path} is damaged", found=str(exc), expected="a tokenizers file", next_step="fetch the checkpoint again"
        ) from exc
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= vocab_size:
        raise CheckpointError(
            f"{path} does not belong to this model",
            found=f"token id {highest}",
            expected=f"ids below vocab_size {vocab_size} of {CONFIG}",
            next_step="fetch tokenizer and weights of the same model",
        )


def _check_weights(folder: Path, expected: dict[str, tuple[int, ...]]) -> None:
    path = folder / WEIGHTS
    if not path.is_file() and (folder / INDEX).is_file():
        raise CheckpointError(
            f"{folder} holds its weights in several files",
            found=INDEX,
            expected=f"one {WEIGHTS}",
            next_step="merge the shards into one safetensors file",
        )
    _require(path)
    with _open_weights(path) as weights:
        present = set(weights.keys())
        for name, shape in expected.items():
            if name not in present:
                raise CheckpointError(
                    f"tensor {name} is missing from {path}",
                    found=f"{len(present)} other tensors",
                    expected=f"shape {shape}",
                    next_step="fetch the checkpoint again, or check config.json",
                )
            tensor = weights.get_slice(name)
            found = tuple(tensor.get_shape())
            if found != shape:
                raise CheckpointError(
                    f"tensor {name} of {path} has another shape than {CONFIG} says",
                    found=str(found),
                    expected=str(shape),
                    next_step="fetch config.json and weights of the same model",
                )
            if tensor.get_dtype() not in FLOAT_DTYPES:
                raise CheckpointError(
                    f"tensor {name} of {path} has an unsupported element type",
                    found=tensor.get_dtype(),
                    expected=" or ".join(FLOAT_DTYPES),
                    next_step="choose the float version of the checkpoint",
                )
