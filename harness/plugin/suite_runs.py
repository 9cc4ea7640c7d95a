"""Workloads of the suites that make runs of their own, sized for a phone or for the emulator.

The emulator takes about 0.1 s a token, and none of its speeds is judged: there the suites show that they run, with few
repetitions. On a phone they are as long as the statistics need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.measure.suite_metrics import DEPTHS, LENGTHS, PAUSES
from harness.model.perplexity import read_text, tokenize
from harness.record.artifact import Artifact
from harness.record.comparison import EDGE_PREFIX
from harness.record.job import Logits, Prompt, RunOptions
from harness.record.vocabulary import Suite
from harness.results.sustained import SEED_TOKENS
from harness.run.workload import Workload
from harness.spec.models import Catalogue, ModelSpec

PACE_SHARE: Final = 0.7
_DIALOGUE_ROUNDS: Final = 3
_TURN_TOKENS: Final = 6
_CHARACTERS_PER_TOKEN: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much a suite does."""

    repetitions: int
    depth_tokens: int
    """Generated at each depth"""
    lengths: tuple[int, ...]
    depths: tuple[int, ...]
    idle_tokens: int
    pauses: tuple[int, ...]
    """Seconds before a request"""
    sustained: int
    """Generations in a leg of sustained load"""
    sustained_tokens: int
    """Of each, as far as the context holds them"""
    legs: int
    """At most; the load ends earlier in a steady state"""
    cooldown_s: int
    rounds: int
    """Of endurance"""
    dialogues: tuple[int, ...]
    """In a round; taken in turn"""
    turn_gen: int
    deadline_s: float


PHONE: Final = Size(
    repetitions=5,
    depth_tokens=64,
    lengths=LENGTHS,
    depths=DEPTHS,
    idle_tokens=16,
    pauses=PAUSES,
    sustained=3,
    sustained_tokens=SEED_TOKENS,
    legs=14,
    cooldown_s=300,
    rounds=200,
    dialogues=(4, 4, 4, 8),
    turn_gen=24,
    deadline_s=3600,
)
EMULATED: Final = Size(
    repetitions=1,
    depth_tokens=4,
    lengths=(1, 31, 64, 128),
    depths=(0, 128, 256),
    idle_tokens=2,
    pauses=(0, 1),
    sustained=1,
    sustained_tokens=96,
    legs=2,
    cooldown_s=6,
    rounds=7,
    dialogues=(1, 1, 1, 2),
    turn_gen=4,
    deadline_s=900,
)


def size_for(*, virtual: bool) -> Size:
    return EMULATED if virtual else PHONE


def text_tokens(artifact: Artifact, model: ModelSpec, catalogue: Catalogue, n: int) -> tuple[int, ...]:
    """Begin token and held-out text, ``n`` tokens in all; the text is repeated if it is shorter."""
    bos = artifact.manifest.model.bos_id
    text = read_text(catalogue.heldout(model))[: _CHARACTERS_PER_TOKEN * n]
    ids = tokenize(artifact.path("tokenizer.json"), text)
    prefix = [] if bos is None else [bos]
    while len(prefix) < n:
        prefix.extend(ids)
    return tuple(prefix[:n])


def _generate(
    prompt_id: str,
    tokens: Sequence[int],
    n_gen: int,
    *,
    warmups: int = 0,
    repetitions: int = 1,
    n_cached: int = 0,
    keep_cache: bool = False,
    logits: Logits = Logits.NONE,
) -> Prompt:
    return Prompt(
        prompt_id=prompt_id,
        mode="generate",
        tokens=tuple(tokens),
        n_gen=n_gen,
        ignore_eos=True,
        warmups=warmups,
        repetitions=repetitions,
        n_cached=n_cached,
        keep_cache=keep_cache,
        logits=logits,
    )


def _workload(suite: Suite, prompts: Sequence[Prompt], size: Size, pace_tps: float | None = None) -> Workload:
    return Workload(
        name=str(suite),
        prompts=tuple(prompts),
        deadline_s=size.deadline_s,
        stall_s=120,
        options=RunOptions(pace_tps=pace_tps),
    )


def smoke(tokens: Sequence[int], size: Size) -> Workload:
    """One token after a prompt of a few."""
    return _workload(Suite.SMOKE, [_generate("smoke", tokens[:4], 1)], size)


def edge_lengths(artifact: Artifact) -> tuple[int, ...]:
    """1, one less than a chunk, a chunk, one more, two chunks, and the whole context."""
    chunk, context = artifact.manifest.recipe.prefill_tokens, artifact.manifest.recipe.context_length
    return tuple(sorted({n for n in (1, chunk - 1, chunk, chunk + 1, 2 * chunk, context) if 1 <= n <= context}))


def edges(tokens: Sequence[int], artifact: Artifact, size: Size) -> Workload:
    """Every length once with all logits; a short prompt three times, for determinism."""
    prompts = [_generate(f"{EDGE_PREFIX}{n}", tokens[:n], 1, logits=Logits.ALL) for n in edge_lengths(artifact)]
    prompts.append(_generate("again", tokens[:8], 4, repetitions=3))
    return _workload(Suite.EDGES, prompts, size)


def sweep(tokens: Sequence[int], artifact: Artifact, size: Size) -> Workload:
    """Prompt lengths from an empty cache, then depths with one token of prompt."""
    context = artifact.manifest.recipe.context_length
    warmups = 1 if size.repetitions > 1 else 0
    prompts = [
        _generate(f"length-{n}", tokens[:n], 1, warmups=warmups, repetitions=size.repetitions)
        for n in size.lengths
        if n <= context
    ]
    prompts += [
        _generate(
            f"depth-{n}",
            tokens[:1],
            size.depth_tokens,
            warmups=warmups,
            repetitions=size.repetitions,
            n_cached=n,
        )
        for n in size.depths
        if n + size.depth_tokens <= context
    ]
    return _workload(Suite.SWEEP, prompts, size)


def idle(tokens: Sequence[int], size: Size) -> Workload:
    """A token every 2 s: what the phone loses between requests."""
    return _workload(
        Suite.IDLE, [_generate("idle", tokens[:8], size.idle_tokens, repetitions=size.repetitions)], size, pace_tps=0.5
    )


def pauses(tokens: Sequence[int], size: Size) -> Workload:
    """The same short request after a rest of so many seconds: what the phone loses between requests."""
    prompts = [
        dataclasses.replace(
            _generate(f"pause-{seconds}", tokens[:8], 2, repetitions=size.repetitions), pause_s=float(seconds)
        )
        for seconds in size.pauses
    ]
    return _workload(Suite.PAUSES, prompts, size)


def longest(tokens: Sequence[int], n: int, size: Size) -> Workload:
    """A text of ``n`` tokens that fill the cache, the last ones generated."""
    n_gen = min(4, n)
    return _workload(Suite.LONGEST, [_generate(f"longest-{n}", tokens[: n - n_gen + 1], n_gen)], size)


def operators(tokens: Sequence[int], artifact: Artifact, size: Size) -> Workload:
    """A whole prefill chunk and some steps while the library counts the cycles of each operator."""
    n = artifact.manifest.recipe.prefill_tokens
    n_gen = min(size.depth_tokens, artifact.manifest.recipe.context_length - n)
    prompt = _generate("operators", tokens[:n], n_gen, repetitions=size.repetitions)
    return dataclasses.replace(_workload(Suite.OPERATORS, [prompt], size), options=RunOptions(profiling="detailed"))


def sustained(
    tokens: Sequence[int], artifact: Artifact, size: Size, *, legs: int = 1, pace_tps: float | None = None
) -> Workload:
    """The same generation again and again; with ``pace_tps`` held back."""
    n_gen = min(size.sustained_tokens, artifact.manifest.recipe.context_length - 16)
    prompt = _generate("sustained", tokens[:16], n_gen, repetitions=legs * size.sustained)
    return _workload(Suite.SUSTAINED if pace_tps is None else Suite.PACED, [prompt], size, pace_tps=pace_tps)


def cooldown(tokens: Sequence[int], size: Size) -> Workload:
    """The loaded model at rest, then a token as proof that it still was there."""
    prompt = dataclasses.replace(_generate("cooldown", tokens[:8], 2), pause_s=float(size.cooldown_s))
    workload = _workload(Suite.COOLDOWN, [prompt], size)
    return dataclasses.replace(workload, stall_s=workload.stall_s + size.cooldown_s)


def endurance(tokens: Sequence[int], number: int, size: Size) -> Workload:
    """Round ``number``: dialogues of three turns, each turn behind what the one before left in the cache."""
    prompts = []
    for dialogue in range(size.dialogues[number % len(size.dialogues)]):
        for turn in range(_DIALOGUE_ROUNDS):
            said = tokens[turn * _TURN_TOKENS : (turn + 1) * _TURN_TOKENS]
            prompts.append(_generate(f"dialogue-{dialogue}-round-{turn}", said, size.turn_gen, keep_cache=turn > 0))
    return _workload(Suite.ENDURANCE, prompts, size)
