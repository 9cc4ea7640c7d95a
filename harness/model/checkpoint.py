"""A checkpoint, whatever its format: facts, tokenizer, and tensors read one at a time.

Tensors go by the names and layout of the Hugging Face checkpoint of their architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import CheckpointError
from harness.model.architecture import ARCHITECTURES, Role, expected_shapes, rules_of, tensor_name
from harness.model.chat import (
    TEMPLATE_FILE,
    TOKENIZER_CONFIG,
    TextToId,
    TokenizerFacts,
    folder_tokenizer_facts,
    gguf_tokenizer_facts,
)
from harness.model.gguf_checkpoint import GgufWeights, gguf_facts, gguf_rule, vocabulary_rows
from harness.model.gguf_file import open_gguf
from harness.model.gguf_tokenizer import read_tokenizer
from harness.model.hf_config import find_architecture, read_facts
from harness.model.hf_weights import FLOAT_DTYPES, FloatWeights
from harness.model.options import Options, read_optional, read_options
from harness.model.packed import PackedWeights
from harness.model.safetensors_files import INDEX, WEIGHTS, find_safetensors
from harness.model.weight_source import QuantizedTensor, WeightSource
from harness.record.artifact import ModelFacts, sha256_of

__all__ = ["CONFIG", "FLOAT_DTYPES", "GENERATION", "INDEX", "TOKENIZER", "WEIGHTS", "Checkpoint", "load_checkpoint"]

CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
TOKENIZER: Final = "tokenizer.json"
PIECES: Final = "tokenizer.model"
PACKING: Final = "quantize_config.json"
SHOWN_ABOVE_BYTES: Final = 200_000_000
_UNUSED_SUFFIXES: Final = (".rotary_emb.inv_freq",)
"""Tensors that older converters wrote and that hold nothing learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An opened checkpoint: every expected tensor is present with the expected shape and a readable type."""

    folder: Path
    """Where the checkpoint lies; other files of its owner (``heldout.txt``) lie beside it."""
    facts: ModelFacts
    sha256: dict[str, str]
    """File name to sha256 of every file that was read."""
    weights: WeightSource
    tokenizer_path: Path
    chat_template: str | None
    """Jinja text; None: the checkpoint has none."""
    notes: tuple[str, ...]
    """What does not fit together but does not stop the work, in sentences for the user."""

    def tensor(self, name: str) -> NDArray[np.float32]:
        """One tensor as float32. Refuses values that are not finite: they are damage, and would spread silently."""
        values = self.weights.read(name)
        n_bad = int(values.size - np.count_nonzero(np.isfinite(values)))
        if n_bad:
            raise CheckpointError(
                f"tensor {name} of {self.weights.origin(name)} holds values that are not finite",
                found=f"{n_bad} of {values.size} values are NaN or infinite",
                expected="finite numbers",
                next_step="fetch the checkpoint again; if it is still so, the training run diverged",
            )
        return values

    def has(self, role: Role) -> bool:
        """Whether the architecture has such a weight."""
        return role in rules_of(self.facts)

    def weight(self, role: Role, layer: int | None = None) -> NDArray[np.float32]:
        return self.tensor(tensor_name(self.facts, role, layer))

    def quantized(self, role: Role, layer: int | None = None) -> QuantizedTensor | None:
        """The integers a GPTQ or AWQ checkpoint holds for a weight; None: it holds floats."""
        return self.weights.quantized(tensor_name(self.facts, role, layer))


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    progress: Callable[[str], None]
    hash_of: Callable[[Path], str]


def load_checkpoint(
    path: Path,
    *,
    progress: Callable[[str], None] = lambda _: None,
    hash_of: Callable[[Path], str] = sha256_of,
) -> Checkpoint:
    """Read and check a checkpoint: a Hugging Face folder, a GGUF file, or a folder with nothing but one GGUF file.

    Raises CheckpointError for anything missing, damaged or unsupported.
    """
    if not path.exists():
        raise CheckpointError(
            f"checkpoint {path} does not exist",
            expected=f"a folder with {CONFIG}, {WEIGHTS} and {TOKENIZER}, or a GGUF file",
            next_step="check the path",
        )
    how = _How(progress=progress, hash_of=hash_of)
    if path.is_file():
        return _load_gguf(path, how)
    files = sorted(path.glob("*.gguf"))
    if not (path / CONFIG).is_file() and len(files) == 1:
        return _load_gguf(files[0], how)
    return _load_folder(path, how)


def _load_folder(folder: Path, how: _How) -> Checkpoint:
    config, generation = read_options(folder / CONFIG), read_optional(folder / GENERATION)
    architecture = find_architecture(config)
    one_token = read_tokenizer_file(folder / TOKENIZER, config.positive_int("vocab_size"))
    tokenizer = folder_tokenizer_facts(folder, config, generation, architecture, one_token)
    facts = read_facts(folder, config, bos_id=tokenizer.bos_id, eos_ids=tokenizer.eos_ids)
    floats, packing = FloatWeights(stored=find_safetensors(folder)), _packing(folder, config)
    weights = floats if packing is None else PackedWeights(floats, packing)
    if isinstance(weights, PackedWeights):
        tokenizer = replace(tokenizer, notes=(*tokenizer.notes, weights.grid_note()))
    optional = [folder / name for name in (GENERATION, TOKENIZER_CONFIG, TEMPLATE_FILE, PACKING)]
    read = [folder / CONFIG, folder / TOKENIZER, *(path for path in optional if path.is_file()), *weights.files]
    return _checked(folder, facts, tokenizer, weights, folder / TOKENIZER, read, how)


def _packing(folder: Path, config: Options) -> Options | None:
    """How the weights are packed, in config.json or, from older converters, in a file of its own. None: floats."""
    values = config.values.get("quantization_config")
    if values is None:
        return read_options(folder / PACKING) if (folder / PACKING).is_file() else None
    if not isinstance(values, dict):
        raise config.wrong("quantization_config", "a JSON object")
    return Options(path=config.path, values=values)


def _load_gguf(path: Path, how: _How) -> Checkpoint:
    file = open_gguf(path)
    metadata = Options(path=path, values=file.metadata)
    architecture = ARCHITECTURES[gguf_rule(metadata).architecture]
    vocabulary = read_tokenizer(metadata)
    weights = GgufWeights(file, architecture, metadata, vocabulary)
    vocab_size = vocabulary_rows(file, vocabulary.n_tokens)
    one_token = read_tokenizer_file(weights.tokenizer_path, vocab_size, path)
    tokenizer = gguf_tokenizer_facts(metadata, architecture, one_token, adds_bos=vocabulary.adds_bos)
    facts = gguf_facts(file, metadata, vocab_size, bos_id=tokenizer.bos_id, eos_ids=tokenizer.eos_ids)
    return _checked(path.parent, facts, tokenizer, weights, weights.tokenizer_path, [path], how)


def _checked(
    folder: Path,
    facts: ModelFacts,
    tokenizer: TokenizerFacts,
    weights: WeightSource,
    tokenizer_path: Path,
    read: list[Path],
    how: _How,
) -> Checkpoint:
    check_weights(weights, facts)
    n_bytes = sum(path.stat().st_size for path in read)
    if n_bytes > SHOWN_ABOVE_BYTES:
        how.progress(f"checking the {len(read)} files of {facts.name}, {n_bytes / 1e9:.1f} GB")
    return Checkpoint(
        folder=folder,
        facts=facts,
        sha256={path.name: how.hash_of(path) for path in sorted(read)},
        weights=weights,
        tokenizer_path=tokenizer_path,
        chat_template=tokenizer.chat_template,
        notes=tokenizer.notes,
    )


def read_tokenizer_file(path: Path, vocab_size: int, origin: Path | None = None) -> TextToId:
    """Checks the tokenizer and returns its look-up of texts. ``origin``: the file that it was made from."""
    from tokenizers import Tokenizer

    if not path.is_file():
        only_pieces = path.with_name(PIECES).is_file()
        raise CheckpointError(
            f"{path} is missing",
            found=f"only {PIECES}, SentencePiece's own format" if only_pieces else None,
            expected=f"a checkpoint folder with {CONFIG}, {WEIGHTS} and {TOKENIZER}",
            next_step=f"make {TOKENIZER} with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            if only_pieces
            else "fetch the checkpoint again, or check the path",
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as exc:
        raise CheckpointError(
            f"{path} is damaged" if origin is None else f"the tokenizer of {origin} cannot be used",
            found=str(exc),
            expected="a tokenizers file" if origin is None else "a vocabulary that holds every merge",
            next_step="fetch the checkpoint again",
        ) from exc
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= vocab_size:
        raise CheckpointError(
            f"{path} does not belong to this model" if origin is None else f"{origin} contradicts itself",
            found=f"token id {highest}",
            expected=f"ids below the vocab_size {vocab_size} of {CONFIG if origin is None else 'its embedding'}",
            next_step="fetch tokenizer and weights of the same model",
        )
    ids: TextToId = tokenizer.token_to_id
    return ids


def check_weights(weights: WeightSource, facts: ModelFacts) -> None:
    """Every expected tensor is there, with its shape and a readable type, and no other changes what is computed."""
    expected, shapes = expected_shapes(facts), weights.shapes
    for name, shape in expected.items():
        if name not in shapes:
            raise CheckpointError(
                f"tensor {name} is missing from {weights.files[0]}",
                found=f"{len(shapes)} other tensors",
                expected=f"shape {shape}",
                next_step="fetch the checkpoint again, or check config.json",
            )
        if shapes[name] != shape:
            raise CheckpointError(
                f"tensor {name} of {weights.origin(name)} has another shape than {CONFIG} says",
                found=str(shapes[name]),
                expected=str(shape),
                next_step="fetch config.json and weights of the same model",
            )
        unreadable = weights.unreadable(name)
        if unreadable is not None:
            raise CheckpointError(
                f"tensor {name} of {weights.origin(name)} has an unsupported element type",
                found=unreadable[0],
                expected=unreadable[1],
                next_step="choose the float version of the checkpoint",
            )
    _refuse_other_tensors(weights, facts, expected.keys())


def _refuse_other_tensors(weights: WeightSource, facts: ModelFacts, expected: Collection[str]) -> None:
    head = rules_of(facts)[Role.HEAD].name  # a tied model may store its head a second time
    others = sorted(weights.shapes.keys() - set(expected) - {head})
    for name in others:
        if name.endswith(_UNUSED_SUFFIXES) or (name.endswith(".bias") and not np.any(weights.read(name))):
            continue
        raise CheckpointError(
            f"tensor {name} of {weights.origin(name)} has no place in {facts.architecture}",
            found=f"shape {weights.shapes[name]}",
            expected=f"only the {len(expected)} tensors that are built",
            next_step="leaving it out would change what the model computes: choose a checkpoint without it",
        )
