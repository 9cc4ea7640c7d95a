"""Perplexity over held-out text, in windows that never overlap and never share a cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import UserError
from harness.model.decoder import Decoder
from harness.record.artifact import ModelFacts, PerplexityFigure, sha256_of

WINDOW_TOKENS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Windows of token ids; every token of a window but the first is scored."""

    sha256: str
    windows: tuple[tuple[int, ...], ...]


def tokenize(tokenizer: Path, text: str) -> list[int]:
    """Token ids of ``text`` without special tokens."""
    from tokenizers import Tokenizer

    ids: list[int] = Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids
    return ids


def read_text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        if "\0" in text:
            raise ValueError(f"a NUL character at {text.index(chr(0))}, so it is a binary file")
    except (OSError, ValueError) as exc:
        raise UserError(
            f"{path} cannot be read as text", found=str(exc), expected="a UTF-8 text file", next_step="check the path"
        ) from exc
    return text


def load_corpus(text: Path, tokenizer: Path, facts: ModelFacts, *, context_length: int) -> Corpus:
    """The text tokenised whole and cut into windows of the begin token and 255 tokens (fewer in a smaller context).

    A last piece that does not fill a window is dropped. A model without a begin token gets windows of 256 tokens.
    """
    ids = tokenize(tokenizer, read_text(text))
    length = min(WINDOW_TOKENS, context_length)
    prefix = () if facts.bos_id is None else (facts.bos_id,)
    stride = length - len(prefix)
    windows = tuple((*prefix, *ids[at : at + stride]) for at in range(0, len(ids) - stride + 1, stride))
    if not windows:
        raise UserError(
            f"{text} is too short for one perplexity window",
            found=f"{len(ids)} tokens",
            expected=f"at least {stride}",
            next_step="give a longer held-out text",
        )
    return Corpus(sha256=sha256_of(text), windows=windows)


def measure_perplexity(
    decoder: Decoder,
    corpus: Corpus,
    *,
    engine: str,
    graph: str,
    windows: Sequence[int] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    progress_every: int = 26,
) -> PerplexityFigure:
    """exp(mean NLL) over ``windows`` (indices; default all)."""
    chosen = range(len(corpus.windows)) if windows is None else windows
    sums: list[float] = []
    n_scored = 0
    for n_done, index in enumerate(chosen):
        if n_done and n_done % progress_every == 0:
            progress(f"perplexity of {graph}: {n_done} of {len(chosen)} windows")
        nll = decoder.window_nll(corpus.windows[index])
        sums.append(float(nll.sum()))
        n_scored += len(nll)
    return PerplexityFigure(
        engine=engine,
        graph=graph,
        perplexity=math.exp(math.fsum(sums) / n_scored),
        n_windows=len(chosen),
        n_scored_tokens=n_scored,
        corpus_sha256=corpus.sha256,
        window_nll=tuple(sums),
    )
