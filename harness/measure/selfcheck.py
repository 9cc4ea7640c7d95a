"""Checks that can refute a measurement. What a failed one voids is written in ``harness.results.refute``.

``record_checks`` needs the run's record only, so it can be repeated from a journal. The others need raw logits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from harness.measure.quality import Rows
from harness.record.comparison import SelfCheck
from harness.record.run import Cell, RunRecord
from harness.record.runner import Generation, RunnerLog

PROMPT_SENSITIVITY: Final = "prompt_sensitivity"
NON_CONSTANT_OUTPUT: Final = "non_constant_output"
TOKEN_COUNT: Final = "token_count"
CLOCK: Final = "clock"
HEAP_ALLOCATIONS: Final = "heap_allocations"
PREFILL_DECODE_IDENTITY: Final = "prefill_decode_identity"
DETERMINISM: Final = "determinism"
TOY_GRAPH: Final = "toy_graph"
MODE_FLIP: Final = "mode_flip"
OBSERVED: Final = "observer_effect"

MIN_CONSTANT_TOKENS: Final = 8
"""So many equal tokens in a row, and nothing else, are called constant output."""
MIN_COMPARED_TOKENS: Final = 4
"""Fewer equal tokens prove nothing: two prompts may well share their first token."""
SUSPEND_TOLERANCE_NS: Final = 50_000_000
"""CLOCK_BOOTTIME may run ahead of CLOCK_MONOTONIC by this much before the phone is said to have slept."""
MODE_FLIP_FACTOR: Final = 3.0
"""Two repetitions of one prompt that differ by more than this are of two modes (clocks not voted for, another core, a
fallback: 15 times has been seen), and their median is the speed of neither."""
WALL_TOLERANCE: Final = 0.02
WALL_TOLERANCE_S: Final = 1.0


def record_checks(run: RunRecord) -> tuple[SelfCheck, ...]:
    """Every check that the record alone allows; none for a run that generated nothing."""
    log = run.log
    if not log.generations:
        return ()
    found = [
        (NON_CONSTANT_OUTPUT, _constant_generations(log)),
        (TOKEN_COUNT, list(_count_faults(log))),
        (CLOCK, list(_clock_faults(run))),
        (HEAP_ALLOCATIONS, list(_allocations(log))),
        (MODE_FLIP, list(_mode_flips(log))),
        (OBSERVED, list(_observed(log))),
    ]
    checks = [
        _check(run.run_id, run.cell, name, not faults, "; ".join(faults[:5]) or "no fault found")
        for name, faults in found
    ]
    if run.prompt_sensitivity_expected:
        checks.append(_token_sensitivity(run))
    if any(g.repetition > 0 or g.warmup for g in log.generations):
        checks.append(_determinism(run))
    return tuple(checks)


def _check(run_id: str, cell: Cell, name: str, passed: bool | None, detail: str) -> SelfCheck:
    return SelfCheck(run_id=run_id, cell=cell, name=name, passed=passed, detail=detail)


def _named(generation: Generation) -> str:
    return f"{generation.prompt_id} repetition {generation.repetition}"


def _constant_generations(log: RunnerLog) -> list[str]:
    return [
        f"{_named(g)}: all {len(g.argmax_ids)} tokens are {g.argmax_ids[0]}"
        for g in log.generations
        if len(g.argmax_ids) >= MIN_CONSTANT_TOKENS and len(set(g.argmax_ids)) == 1 and not _is_made_up(g)
    ]


def _is_made_up(g: Generation) -> bool:
    """Behind a cache that no text stands for, the output means nothing."""
    return g.n_cached > 0 and not g.n_carried


def _determinism(run: RunRecord) -> SelfCheck:
    """Every repetition of a prompt has to give the same tokens and NLL; sampled ones start with one seed."""
    seen: dict[str, Generation] = {}
    faults = []
    n_compared = 0
    for g in run.log.generations:
        first = seen.setdefault(g.prompt_id, g)
        if first is g:
            continue
        n_compared += 1
        if (g.token_ids, g.argmax_ids, g.nll) != (first.token_ids, first.argmax_ids, first.nll):
            faults.append(f"{_named(g)} differs from {_named(first)}")
    detail = "; ".join(faults[:5]) or f"{n_compared} repetitions gave the same answer"
    return _check(run.run_id, run.cell, DETERMINISM, not faults if n_compared else None, detail)


def _mode_flips(log: RunnerLog) -> Iterator[str]:
    """Among the repetitions of one prompt, warm-ups left out: time per token, or to the first token."""
    by_prompt: dict[str, list[Generation]] = {}
    for g in log.generations:
        if not g.warmup and g.mode == "generate" and len(g.token_ns) > 0:
            by_prompt.setdefault(g.prompt_id, []).append(g)
    for prompt_id, group in by_prompt.items():
        for what, times in (
            ("time to the first token", [g.token_ns[0] - g.start_ns for g in group]),
            ("time per token", [_per_token(g) for g in group if len(g.token_ns) > 1]),
        ):
            if len(times) > 1 and min(times) > 0 and max(times) > MODE_FLIP_FACTOR * min(times):
                yield (
                    f"{prompt_id}: {what} flips between {min(times) / 1e6:.1f} and {max(times) / 1e6:.1f} ms"
                    f" ({max(times) / min(times):.1f} times)"
                )


def _per_token(g: Generation) -> float:
    return (g.token_ns[-1] - g.token_ns[0] - g.pace_ns) / (len(g.token_ns) - 1)


def _observed(log: RunnerLog) -> Iterator[str]:
    """Profiling by the library, and copying graph outputs at every step, are work of the measurement's own."""
    if log.profiles:
        yield f"the library profiled its graphs ({log.profiles[0].level})"
    for g in log.generations:
        if g.outputs:
            names = ", ".join(copy.name for copy in g.outputs[:3])
            yield f"{_named(g)}: {len(g.outputs)} graph outputs were copied at every step ({names})"


def _token_sensitivity(run: RunRecord) -> SelfCheck:
    """Fails when every prompt of the run gave the same greedy tokens (over the length that all have)."""
    outputs: dict[str, tuple[int, ...]] = {}
    for generation in run.log.generations:
        if generation.mode == "generate" and generation.argmax_ids and not _is_made_up(generation):
            outputs.setdefault(generation.prompt_id, generation.argmax_ids)
    n_common = min((len(ids) for ids in outputs.values()), default=0)
    passed: bool | None
    if len(outputs) < 2:
        passed, detail = None, f"{len(outputs)} prompt generated tokens, 2 are needed"
    elif len({ids[:n_common] for ids in outputs.values()}) > 1:
        passed, detail = True, f"{len(outputs)} prompts, outputs differ within {n_common} tokens"
    elif n_common < MIN_COMPARED_TOKENS:
        passed, detail = None, f"only {n_common} tokens to compare, {MIN_COMPARED_TOKENS} are needed"
    else:
        passed, detail = False, f"{len(outputs)} different prompts gave the same {n_common} tokens"
    return _check(run.run_id, run.cell, PROMPT_SENSITIVITY, passed, detail)


def _count_faults(log: RunnerLog) -> Iterator[str]:
    for g in log.generations:
        counts = {"token_ns": len(g.token_ns), "token_ids": len(g.token_ids), "argmax_ids": len(g.argmax_ids)}
        if len(set(counts.values())) != 1:
            yield f"{_named(g)}: " + ", ".join(f"{n} {name}" for name, n in counts.items())
        n_prefilled = sum(chunk.n_tokens for chunk in g.prefill)
        expected = g.n_prompt + g.n_carried
        if g.prefill and n_prefilled != expected:
            carried = " and one was carried over" if g.n_carried else ""
            yield f"{_named(g)}: {n_prefilled} tokens went through prefill, the prompt has {g.n_prompt}{carried}"
        if any(not 0 < chunk.n_tokens <= chunk.n_graph_tokens for chunk in g.prefill):
            yield f"{_named(g)}: a prefill chunk holds more tokens than its graph, or none"
        if g.mode == "score" and len(g.nll) != max(g.n_prompt - 1, 0):
            yield f"{_named(g)}: {len(g.nll)} NLL values for {g.n_prompt} tokens"
        if g.mode == "generate" and not g.token_ids:
            yield f"{_named(g)}: no token was generated"


def _clock_faults(run: RunRecord) -> Iterator[str]:
    for g in run.log.generations:
        stamps = [
            g.start_ns,
            *itertools.chain.from_iterable((chunk.start_ns, chunk.end_ns) for chunk in g.prefill),
            *g.token_ns,
            g.end_ns,
        ]
        if any(b < a for a, b in itertools.pairwise(stamps)):
            yield f"{_named(g)}: stamps run backwards"
        elif any(b <= a for a, b in itertools.pairwise(g.token_ns)):
            yield f"{_named(g)}: two tokens have the same stamp"
    start, end = run.log.start, run.log.end
    if start is None or end is None:
        return
    monotonic_ns = end.clock.monotonic_ns - start.clock.monotonic_ns
    slept_ns = end.clock.boottime_ns - start.clock.boottime_ns - monotonic_ns
    if monotonic_ns < 0:
        yield "the end stamp is before the start stamp"
    if abs(slept_ns) > SUSPEND_TOLERANCE_NS:
        yield f"the phone was suspended: boot time ran {slept_ns / 1e9:.3f} s ahead of monotonic time"
    if monotonic_ns / 1e9 > run.wall_s * (1 + WALL_TOLERANCE) + WALL_TOLERANCE_S:
        yield f"the phone's clock counted {monotonic_ns / 1e9:.3f} s, the host's {run.wall_s:.3f} s"


def _allocations(log: RunnerLog) -> Iterator[str]:
    for g in log.generations:
        if g.heap_allocations != 0:
            yield f"{_named(g)}: {g.heap_allocations} heap allocations while generating"


def logits_not_constant(run_id: str, cell: Cell, rows_by_prompt: Mapping[str, Rows]) -> SelfCheck:
    """No row may be all zero, constant or not finite, and not all rows of a prompt may be the same.

    Rows are (n_rows, n_columns) of real values; raw fixed-point rows are not, their zero point hides zeros.
    """
    faults: list[str] = []
    n_rows = 0
    for prompt_id, rows in rows_by_prompt.items():
        values = rows.astype(np.float64)
        n_rows += len(values)
        if values.size == 0:
            continue
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            faults.append(f"{prompt_id}: {int((~finite).sum())} of {len(values)} rows hold NaN or Inf")
        flat = finite & (values == values[:, :1]).all(axis=1)
        if flat.any():
            kind = "all zero" if not values[flat].any() else "constant"
            faults.append(f"{prompt_id}: {int(flat.sum())} of {len(values)} rows are {kind}")
        if len(values) >= MIN_CONSTANT_TOKENS and finite.all() and (values == values[0]).all():
            faults.append(f"{prompt_id}: all {len(values)} rows are the same")
    if n_rows == 0:
        return _check(run_id, cell, NON_CONSTANT_OUTPUT, None, "no logits were recorded")
    return _check(run_id, cell, NON_CONSTANT_OUTPUT, not faults, "; ".join(faults[:5]) or f"{n_rows} rows of logits")


def logits_prompt_sensitivity(run_id: str, cell: Cell, last_rows: Mapping[str, Sequence[float] | Rows]) -> SelfCheck:
    """No two different prompts may have bit-identical logits at their last position. The caller passes prompts whose
    tokens differ, and one row for each."""
    if len(last_rows) < 2:
        return _check(run_id, cell, PROMPT_SENSITIVITY, None, f"{len(last_rows)} prompt with logits, 2 are needed")
    same = [
        f"{a} and {b}"
        for (a, row_a), (b, row_b) in itertools.combinations(last_rows.items(), 2)
        if np.array_equal(np.asarray(row_a), np.asarray(row_b), equal_nan=True)
    ]
    detail = f"identical logits for {', '.join(same[:5])}" if same else f"{len(last_rows)} prompts, all logits differ"
    return _check(run_id, cell, PROMPT_SENSITIVITY, not same, detail)


def prefill_decode_identity(run_id: str, cell: Cell, chunk_rows: Rows, token_rows: Rows) -> SelfCheck:
    """Bit identity of one prompt's logits by the AR-N graph (``chunk_rows``) and by the AR-1 graph (``token_rows``),
    raw as the graph wrote them, (n_prompt, n_columns) each. Holds where key and value keep one scale in both graphs."""
    passed: bool | None
    if chunk_rows.size == 0 or token_rows.size == 0:
        passed, detail = None, "no logits were recorded"
    elif chunk_rows.shape != token_rows.shape or chunk_rows.dtype != token_rows.dtype:
        passed = False
        detail = f"{chunk_rows.dtype} {chunk_rows.shape} against {token_rows.dtype} {token_rows.shape}"
    else:
        # Bytes, not values: NaN equals itself here, and 0.0 differs from -0.0.
        a = np.ascontiguousarray(chunk_rows).view(np.uint8).reshape(len(chunk_rows), -1)
        b = np.ascontiguousarray(token_rows).view(np.uint8).reshape(len(token_rows), -1)
        differing = np.flatnonzero((a != b).any(axis=1))
        passed = len(differing) == 0
        detail = (
            f"{chunk_rows.size} logits bit-identical"
            if passed
            else f"{len(differing)} of {len(a)} positions differ, the first is {differing[0]}"
        )
    return _check(run_id, cell, PREFILL_DECODE_IDENTITY, passed, detail)
