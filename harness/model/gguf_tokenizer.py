"""The tokenizer of a GGUF file as a ``tokenizers`` file.

Two kinds are known: byte-level BPE with listed merges (``gpt2``), cut beforehand by one of a few rules, and
SentencePiece BPE (``llama``), whose merges follow from the scores of its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import CheckpointError
from harness.model.options import Options

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""Token types of ``tokenizer.ggml.token_type``."""
_SPACE: Final = "\u2581"
"""SentencePiece's visible space."""

_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CuttingRule:
    """How text is cut into words before byte-level BPE."""

    cut: tuple[Mapping[str, Any], ...]
    """``tokenizers`` pre-tokenizers that run before the byte-level one."""
    gpt2_words: bool
    """Whether the byte-level step cuts by GPT-2's own rule."""
    normalizer: Mapping[str, Any] | None = None
    whole_words: bool = False
    """A word that is itself a token is taken as it is."""
    adds_bos: bool = False
    """Where the file does not say."""


def _split(pattern: str) -> Mapping[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_LLAMA3: Final = CuttingRule(
    cut=(_split(_WORDS.format(digits="{1,3}")),), gpt2_words=False, whole_words=True, adds_bos=True
)
CUTTING_RULES: Final[Mapping[str, CuttingRule]] = {
    "gpt-2": CuttingRule(cut=(), gpt2_words=True),
    "smollm": CuttingRule(cut=({"type": "Digits", "individual_digits": True},), gpt2_words=True),
    "qwen2": CuttingRule(cut=(_split(_WORDS.format(digits="")),), gpt2_words=False, normalizer={"type": "NFC"}),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}
"""By the file's ``tokenizer.ggml.pre``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTokenizer:
    json: dict[str, Any]
    """The contents of ``tokenizer.json``."""
    n_tokens: int
    """Rows the file lists, unused ones included."""
    adds_bos: bool


def read_tokenizer(metadata: Options) -> GgufTokenizer:
    tokens, types = metadata.values.get("tokenizer.ggml.tokens"), metadata.values.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not tokens:
        raise CheckpointError(
            f"{metadata.path} holds no tokenizer",
            found="no tokenizer.ggml.tokens",
            expected="a GGUF file with a vocabulary",
        )
    kinds = types if isinstance(types, list) else [1] * len(tokens)
    if len(kinds) != len(tokens):
        raise CheckpointError(
            f"{metadata.path}: tokenizer.ggml.token_type does not fit",
            found=f"{len(kinds)} types",
            expected=f"{len(tokens)}",
        )
    model = metadata.text("tokenizer.ggml.model")
    build = _BUILDERS.get(model)
    if build is None:
        raise metadata.wrong("tokenizer.ggml.model", " or ".join(map(repr, _BUILDERS)))
    vocabulary = {text: at for at, (text, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != _UNUSED}
    parts, adds_bos = build(metadata, vocabulary)
    added = [
        {
            "id": at,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for at, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    json = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None}
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", adds_bos)
    return GgufTokenizer(json={**json, **parts}, n_tokens=len(tokens), adds_bos=adds_bos)


def _model(vocabulary: Mapping[str, int], merges: list[list[str]], **options: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(vocabulary),
        "merges": merges,
        **options,
    }


def _byte_level(metadata: Options, vocabulary: Mapping[str, int]) -> tuple[dict[str, Any], bool]:
    name = metadata.values.get("tokenizer.ggml.pre")
    rule = CUTTING_RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise metadata.wrong("tokenizer.ggml.pre", " or ".join(map(repr, CUTTING_RULES)))
    merges = [str(merge).split(" ") for merge in metadata.values.get("tokenizer.ggml.merges") or []]
    if not merges or any(len(pair) != 2 for pair in merges):
        raise CheckpointError(
            f"{metadata.path}: tokenizer.ggml.merges cannot be used",
            found=f"{len(merges)} merges" if not merges else "a merge that is no pair",
            expected="pairs of tokens with a space between",
        )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    parts = {
        "normalizer": rule.normalizer,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*rule.cut, {**byte_level, "use_regex": rule.gpt2_words}],
        },
        "decoder": {**byte_level, "use_regex": True},
        "model": _model(vocabulary, merges, ignore_merges=rule.whole_words),
    }
    return parts, rule.adds_bos


def _sentence_piece(metadata: Options, vocabulary: Mapping[str, int]) -> tuple[dict[str, Any], bool]:
    scores = metadata.values.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(metadata.values["tokenizer.ggml.tokens"]):
        raise CheckpointError(
            f"{metadata.path}: tokenizer.ggml.scores cannot be used", expected="one score for each token"
        )
    unknown = metadata.token_ids("tokenizer.ggml.unknown_token_id")
    by_id = {at: text for text, at in vocabulary.items()}
    prefix = [{"type": "Prepend", "prepend": _SPACE}] if metadata.flag("tokenizer.ggml.add_space_prefix", True) else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, spaces]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": _model(
            vocabulary,
            merges_from_scores(vocabulary, scores),
            unk_token=by_id.get(unknown[0]) if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        ),
    }
    return parts, True


def merges_from_scores(vocabulary: Mapping[str, int], scores: list[float]) -> list[list[str]]:
    """Every way to join two pieces into a third, best score of the joined piece first.

    SentencePiece joins whichever neighbours make the best-scored piece; of equal scores it takes the leftmost, which a
    merge list cannot say: there the order of the pieces' ids decides.
    """
    found = [
        (-scores[at], vocabulary[piece[:cut]], vocabulary[piece[cut:]], piece[:cut], piece[cut:])
        for piece, at in vocabulary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    return [[left, right] for _, _, _, left, right in sorted(found)]


_Builder = Callable[[Options, Mapping[str, int]], tuple[dict[str, Any], bool]]
_BUILDERS: Final[Mapping[str, _Builder]] = {"gpt2": _byte_level, "llama": _sentence_piece}
