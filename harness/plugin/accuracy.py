"""The accuracy workload: what the host reference computes, what the phone is asked, and how the two are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.journal import Entry
from harness.measure.quality import compare_logits, raw_logits, real_logits
from harness.measure.selfcheck import (
    logits_not_constant,
    logits_prompt_sensitivity,
    prefill_decode_identity,
    record_checks,
)
from harness.model.perplexity import load_corpus, tokenize
from harness.model.reference import load_reference, reference_facts
from harness.record.artifact import Artifact
from harness.record.comparison import Leg, ReferenceFacts, SelfCheck, WindowScores
from harness.record.job import Logits, Prompt
from harness.record.run import Cell, RunRecord
from harness.record.runner import Generation
from harness.run.workload import Workload
from harness.soc import KvPrecision
from harness.spec.models import Catalogue, ModelSpec

IDENTITY_CHUNK: Final = "identity-chunk"
IDENTITY_TOKEN: Final = "identity-token"
WINDOW_PREFIX: Final = "window-"
_IDENTITY_EXTRA_TOKENS: Final = 8
"""The identity prompt is a whole prefill chunk and this many tokens of the next."""

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReference:
    """One prompt with the fp32 reference's greedy continuation, and the logits of both host legs along it.

    ``rows[leg]``: (n_prompt + n_gen - 1, vocabulary); row i was computed from token i of prompt and continuation.
    """

    prompt_id: str
    tokens: tuple[int, ...]
    continuation: tuple[int, ...]
    rows: Mapping[Leg, Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReference:
    facts: ReferenceFacts
    prompts: tuple[PromptReference, ...]
    corpus_sha256: str
    windows: tuple[tuple[int, ...], ...]
    window_nll: Mapping[Leg, tuple[float, ...]]
    """Summed NLL (nats) per window."""


def prompt_tokens(model: ModelSpec, artifact: Artifact) -> tuple[tuple[int, ...], ...]:
    """Token ids of the catalogue's prompts, each behind the begin token if the model has one."""
    bos = artifact.manifest.model.bos_id
    prefix = () if bos is None else (bos,)
    tokenizer = artifact.path("tokenizer.json")
    return tuple((*prefix, *tokenize(tokenizer, text)) for text in model.prompts)


def compute_reference(
    artifact: Artifact, model: ModelSpec, catalogue: Catalogue, progress: Callable[[str], None]
) -> HostReference:
    """Both host legs: the fp32 graph's own greedy tokens, and the logits of both graphs along them."""
    progress(f"{artifact.manifest.name}: reference on the host's CPU")
    decoders = {leg: load_reference(artifact, leg) for leg in (Leg.FP32, Leg.GRAPH)}
    context = artifact.manifest.recipe.context_length
    prompts = []
    for number, tokens in enumerate(prompt_tokens(model, artifact)):
        n_gen = min(model.n_gen, context - len(tokens))
        continuation, fp32_raw = decoders[Leg.FP32].generate(tokens, n_gen, ignore_eos=True)
        _, graph_raw = decoders[Leg.GRAPH].generate(tokens, n_gen, forced=continuation)
        rows = {Leg.FP32: decoders[Leg.FP32].real(fp32_raw), Leg.GRAPH: decoders[Leg.GRAPH].real(graph_raw)}
        prompts.append(
            PromptReference(prompt_id=f"prompt-{number}", tokens=tokens, continuation=continuation, rows=rows)
        )
    corpus = load_corpus(
        catalogue.heldout(model),
        artifact.path("tokenizer.json"),
        artifact.manifest.model,
        context_length=context,
    )
    windows = corpus.windows[: model.perplexity_windows]
    nll = {leg: tuple(float(decoders[leg].window_nll(window).sum()) for window in windows) for leg in decoders}
    return HostReference(
        facts=reference_facts(artifact),
        prompts=tuple(prompts),
        corpus_sha256=corpus.sha256,
        windows=windows,
        window_nll=nll,
    )


def accuracy_workload(reference: HostReference, artifact: Artifact) -> Workload:
    """Every prompt along the fp32 continuation, every window scored, and (quantised) one prompt through both graphs."""
    prompts = [
        Prompt(
            prompt_id=prompt.prompt_id,
            mode="generate",
            tokens=prompt.tokens,
            n_gen=len(prompt.continuation),
            forced=prompt.continuation,
            ignore_eos=True,
            logits=Logits.ALL,
        )
        for prompt in reference.prompts
    ]
    prompts += [
        Prompt(prompt_id=f"{WINDOW_PREFIX}{index}", mode="score", tokens=window, n_gen=0)
        for index, window in enumerate(reference.windows)
    ]
    recipe = artifact.manifest.recipe
    if recipe.kv is KvPrecision.KVFP16:
        # The fp16 kernels of the two graphs differ in precision, so there is nothing to be identical.
        return _workload(prompts)
    n_identity = recipe.prefill_tokens + _IDENTITY_EXTRA_TOKENS
    for prompt_id, step_with in ((IDENTITY_CHUNK, "chunk"), (IDENTITY_TOKEN, "token")):
        prompts.append(
            Prompt(
                prompt_id=prompt_id,
                mode="score",
                tokens=reference.windows[0][:n_identity],
                n_gen=0,
                step_with=step_with,
                logits=Logits.ALL,
            )
        )
    return _workload(prompts)


def _workload(prompts: Sequence[Prompt]) -> Workload:
    return Workload(name="accuracy", prompts=tuple(prompts), performance_mode="burst", deadline_s=900, stall_s=120)


def host_comparisons(reference: HostReference, cell: Cell) -> Iterator[Entry]:
    """What needs no phone: the graph leg against fp32, and both legs' window scores."""
    yield reference.facts
    for prompt in reference.prompts:
        yield from _compare_prompt(reference, prompt, prompt.rows[Leg.GRAPH], leg=Leg.GRAPH, run_id=None, cell=cell)
    for leg, scores in reference.window_nll.items():
        yield _window_scores(reference, cell, leg, None, dict(enumerate(scores)))


def phone_comparisons(reference: HostReference, record: RunRecord, results: Path) -> Iterator[Entry]:
    """The phone leg of one run against the reference, and every self-check that the run allows."""
    cell = record.cell
    yield from record_checks(record)
    generations = {generation.prompt_id: generation for generation in record.log.generations if not generation.warmup}
    data = _pulled_logits(record, results)
    real: dict[str, NDArray[np.float64]] = {}
    for prompt in reference.prompts:
        generation = generations.get(prompt.prompt_id)
        if generation is None or generation.logits is None or data is None:
            continue
        rows = real_logits(raw_logits(data, generation.logits), generation.logits)
        real[prompt.prompt_id] = rows
        if len(rows) == len(prompt.rows[Leg.FP32]):
            yield from _compare_prompt(reference, prompt, rows, leg=Leg.PHONE, run_id=record.run_id, cell=cell)
    scored = {
        index: float(sum(generation.nll))
        for index in range(len(reference.windows))
        if (generation := generations.get(f"{WINDOW_PREFIX}{index}")) is not None
        and len(generation.nll) == len(reference.windows[index]) - 1
    }
    if scored:
        yield _window_scores(reference, cell, Leg.PHONE, record.run_id, scored)
    if real:
        yield logits_not_constant(record.run_id, cell, real)
        last = {
            prompt.prompt_id: real[prompt.prompt_id][len(prompt.tokens) - 1]
            for prompt in reference.prompts
            if prompt.prompt_id in real
        }
        yield logits_prompt_sensitivity(record.run_id, cell, last)
    check = _identity(record, generations, data)
    if check is not None:
        yield check


def _compare_prompt(
    reference: HostReference,
    prompt: PromptReference,
    rows: NDArray[np.float64] | Rows,
    *,
    leg: Leg,
    run_id: str | None,
    cell: Cell,
) -> Iterator[Entry]:
    n_prompt = len(prompt.tokens)
    for phase, part in (("prefill", slice(0, n_prompt)), ("decode", slice(n_prompt, None))):
        wanted = prompt.rows[Leg.FP32][part]
        if len(wanted) == 0:
            continue
        yield compare_logits(
            wanted,
            rows[part],
            run_id=run_id,
            reference_id=reference.facts.reference_id,
            cell=cell,
            leg=leg,
            prompt_id=prompt.prompt_id,
            phase=phase,
            positions=range(len(prompt.rows[Leg.FP32]))[part],
        )


def _window_scores(
    reference: HostReference, cell: Cell, leg: Leg, run_id: str | None, scores: Mapping[int, float]
) -> WindowScores:
    return WindowScores(
        run_id=run_id,
        reference_id=reference.facts.reference_id,
        cell=cell,
        leg=leg,
        corpus_sha256=reference.corpus_sha256,
        context_length=max(len(window) for window in reference.windows),
        window_ids=tuple(scores),
        nll_sum=tuple(scores.values()),
        n_scored=tuple(len(reference.windows[index]) - 1 for index in scores),
    )


def _pulled_logits(record: RunRecord, results: Path) -> bytes | None:
    relative = next((name for name in record.files_sha256 if name.endswith("/logits.bin")), None)
    return None if relative is None else (results / relative).read_bytes()


def _identity(record: RunRecord, generations: Mapping[str, Generation], data: bytes | None) -> SelfCheck | None:
    chunk, token = generations.get(IDENTITY_CHUNK), generations.get(IDENTITY_TOKEN)
    if data is None or chunk is None or token is None or chunk.logits is None or token.logits is None:
        return None
    return prefill_decode_identity(
        record.run_id, record.cell, raw_logits(data, chunk.logits), raw_logits(data, token.logits)
    )
