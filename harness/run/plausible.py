"""Whether the records of a run answer its job. What does not was made, or damaged, on the way: the lab's fault.

Only what no model can cause is looked at here: which generations there are, how many tokens they hold, where their
logits lie. What a model can get wrong (which token it chose, which arch its binary is for) is judged elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from harness.device.text import printable
from harness.record.artifact import ArtifactManifest
from harness.record.job import Logits, Prompt
from harness.record.runner import Clock, Generation, LogitsFile, RunnerLog
from harness.record.vocabulary import DTYPE_BYTES
from harness.run.workload import Workload

_ROUNDING: Final = 1e-6
"""A score of a certain token may come out this far below 0."""


def contradictions(
    log: RunnerLog, *, workload: Workload, manifest: ArtifactManifest, pulled: Mapping[str, int] | None = None
) -> Iterator[str]:
    """What of a log that calls itself whole cannot be true. ``pulled``: bytes of each fetched file, None: not known."""
    asked = list(_asked(workload))
    given = [(g.prompt_id, g.warmup, g.repetition) for g in log.generations]
    if len(given) != len(asked):
        yield f"the runner said OK after {len(given)} of {len(asked)} generations"
        return
    if log.fault is not None:
        yield f"the runner said OK and reports {printable(log.fault.error, 40)}"
        return
    if log.start is None:
        yield "there is no `start` record, so nothing says whose records they are"
        return
    if foreign := [name for name, *_ in given if name not in {prompt.prompt_id for prompt, _ in asked}]:
        yield f"a generation of prompt {printable(foreign[0], 60)!r}, which was not asked for"
        return
    expected = sorted((prompt.prompt_id, warmup) for prompt, warmup in asked)
    if len(set(given)) != len(given) or sorted((name, warmup) for name, warmup, _ in given) != expected:
        yield "repetitions of the prompts are missing, or there twice"
        return
    known = {context.sha256 for context in manifest.contexts}
    if any(context.sha256 not in known for context in log.contexts):
        yield "a context binary was loaded that is not the artifact's"
    prompts = {prompt.prompt_id: prompt for prompt in workload.prompts}
    window = (log.start.clock, log.end.clock) if log.end is not None else None
    for generation in log.generations:
        where = f"{generation.prompt_id} repetition {generation.repetition}"
        prompt = prompts[generation.prompt_id]
        for text in itertools.chain(
            _counts(generation, prompt, manifest.model.vocab_size),
            _stamps(generation, window),
            _logits(generation, prompt, manifest.model.vocab_size, pulled),
        ):
            yield f"{where}: {text}"


def _asked(workload: Workload) -> Iterator[tuple[Prompt, bool]]:
    for prompt in workload.prompts:
        yield from ((prompt, True) for _ in range(prompt.warmups))
        yield from ((prompt, False) for _ in range(prompt.repetitions))


def _counts(generation: Generation, prompt: Prompt, vocabulary: int) -> Iterator[str]:
    if generation.mode != prompt.mode or generation.step_with != prompt.step_with:
        yield f"{printable(generation.mode, 20)} by {printable(generation.step_with, 20)} was not asked for"
    if generation.n_prompt != len(prompt.tokens):
        yield f"{generation.n_prompt} prompt tokens, {len(prompt.tokens)} were given"
    if generation.n_carried > 1 or (generation.n_carried and not prompt.keep_cache):
        yield f"{generation.n_carried} tokens carried over from the round before"
    if not prompt.keep_cache and generation.n_cached != prompt.n_cached:
        yield f"{generation.n_cached} tokens in the cache at the start, {prompt.n_cached} were asked for"
    ids = generation.token_ids
    foreign = [token for token in (*ids, *generation.argmax_ids) if not 0 <= token < vocabulary]
    if foreign:
        yield f"token id {foreign[0]}, there are 0 to {vocabulary - 1}"
    if prompt.mode == "generate" and (not ids or len(ids) > prompt.n_gen):
        yield f"{len(ids)} tokens generated, {prompt.n_gen} were asked for"
    if (
        prompt.mode == "generate"
        and prompt.ignore_eos
        and len(ids) < prompt.n_gen
        and generation.stop not in ("context", "stop_id")
    ):
        yield f"only {len(ids)} of {prompt.n_gen} tokens generated, without an end token"
    if prompt.forced and ids != prompt.forced[: len(ids)]:
        yield "the tokens are not those that were forced"
    if prompt.mode == "score" and len(generation.nll) != max(len(prompt.tokens) - 1, 0):
        yield f"{len(generation.nll)} scores for {len(prompt.tokens)} tokens"
    if any(value < -_ROUNDING for value in generation.nll):
        yield "a negative log likelihood below 0"


def _stamps(generation: Generation, window: tuple[Clock, Clock] | None) -> Iterator[str]:
    if window is None:
        return
    first, last = window[0].monotonic_ns, window[1].monotonic_ns
    chunks = itertools.chain.from_iterable((chunk.start_ns, chunk.end_ns) for chunk in generation.prefill)
    stamps = (generation.start_ns, *chunks, *generation.token_ns, generation.end_ns)
    outside = [stamp for stamp in stamps if not first <= stamp <= last]
    if outside:
        yield f"stamp {outside[0]} ns lies outside the run, {first} to {last} ns"


def _logits(generation: Generation, prompt: Prompt, n_columns: int, pulled: Mapping[str, int] | None) -> Iterator[str]:
    spec = generation.logits
    if (spec is None) != (prompt.logits is Logits.NONE):
        yield "no logits, they were asked for" if spec is None else "logits that were not asked for"
    if spec is None:
        return
    n_rows = (
        len(prompt.tokens)
        + generation.n_carried
        + (max(len(generation.token_ids) - 1, 0) if prompt.mode == "generate" else 0)
    )
    if (spec.n_rows, spec.n_columns) != (n_rows, n_columns):
        yield f"{spec.n_rows} x {spec.n_columns} logits, {n_rows} x {n_columns} were computed"
    size = {str(dtype): n_bytes for dtype, n_bytes in DTYPE_BYTES.items()}.get(spec.dtype)
    if size is None:
        yield f"logits of the unknown type {printable(spec.dtype, 20)!r}"
    elif pulled is not None and not _holds(spec, size, pulled.get(spec.file, 0)):
        yield f"{printable(spec.file, 60)} has {pulled.get(spec.file, 0)} bytes and does not hold its logits"


def _holds(spec: LogitsFile, element_bytes: int, n_bytes: int) -> bool:
    return 0 <= spec.offset_bytes <= spec.offset_bytes + spec.n_rows * spec.n_columns * element_bytes <= n_bytes
