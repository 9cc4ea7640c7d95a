"""Times and rates from the runner's raw stamps. What cannot be computed is None, never 0."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.record.runner import Generation, Phase

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationTiming:
    """One generation. See ``harness.measure.metrics`` for what each figure counts."""

    ttft_ms: float | None
    prefill_ms: float | None
    prefill_tps: float | None
    decode_tps: float | None
    tpot_ms: float | None
    itl_ms: tuple[float, ...]
    """Gaps between successive tokens, n_gen - 1 of them."""

    def itl_quantile_ms(self, fraction: float) -> float | None:
        """The ``fraction`` quantile of the gaps by linear interpolation; 1.0 is the largest. None without gaps."""
        return float(np.quantile(self.itl_ms, fraction)) if self.itl_ms else None


def timing_of(generation: Generation) -> GenerationTiming:
    tokens = generation.token_ns
    ttft_ms = (tokens[0] - generation.start_ns) / _NS_PER_MS if tokens else None
    prefill_ms = None
    prefill_tps = None
    if generation.prefill:
        prefill_ns = generation.prefill[-1].end_ns - generation.prefill[0].start_ns
        prefill_ms = prefill_ns / _NS_PER_MS
        prefill_tps = _rate(sum(chunk.n_tokens for chunk in generation.prefill), prefill_ns)
    decode_tps = None
    tpot_ms = None
    if len(tokens) >= 2:
        decode_tps = _rate(len(tokens) - 1, tokens[-1] - tokens[0])
        tpot_ms = (tokens[-1] - tokens[0]) / _NS_PER_MS / (len(tokens) - 1)
    return GenerationTiming(
        ttft_ms=ttft_ms,
        prefill_ms=prefill_ms,
        prefill_tps=prefill_tps,
        decode_tps=decode_tps,
        tpot_ms=tpot_ms,
        itl_ms=tuple((b - a) / _NS_PER_MS for a, b in itertools.pairwise(tokens)),
    )


def _rate(n_tokens: int, duration_ns: int) -> float | None:
    """Tokens per second; None when the clock did not advance."""
    return n_tokens / (duration_ns / 1e9) if duration_ns > 0 else None


def comparable_repetitions(generations: Iterable[Generation]) -> tuple[Generation, ...]:
    """The repetitions that speed is taken from, so that only like is averaged with like.

    Counted: generate mode, no warm-up, prompt through the AR-N graph, no logits written (writing them takes time). Of
    these the ones with the longest prompt, and of these the ones with the most tokens in the cache.
    """
    counted = [
        g for g in generations if g.mode == "generate" and not g.warmup and g.step_with == "chunk" and g.logits is None
    ]
    longest = max(((g.n_prompt, g.n_cached) for g in counted), default=None)
    return tuple(g for g in counted if (g.n_prompt, g.n_cached) == longest)


def load_total_ms(phases: Sequence[Phase]) -> float | None:
    """From the start of the first phase to the end of the last, gaps included; without the first execution, which is
    part of a generation."""
    loading = [phase for phase in phases if phase.name != "first_execute"]
    if not loading:
        return None
    return (max(p.end_ns for p in loading) - min(p.start_ns for p in loading)) / _NS_PER_MS


def load_phase_ms(phases: Iterable[Phase]) -> dict[str, float]:
    """Time per phase name, summed over its details (context binaries, graphs)."""
    total: dict[str, float] = {}
    for phase in phases:
        total[phase.name] = total.get(phase.name, 0.0) + (phase.end_ns - phase.start_ns) / _NS_PER_MS
    return total
