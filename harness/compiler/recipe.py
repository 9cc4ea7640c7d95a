"""What the user asked for, checked against what the checkpoint and the SoC can do, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.errors import UserError
from harness.model.form import Attention, Compiler, Contexts, Embeddings, GraphForm, Linear, Logits, Refused, RmsNorm
from harness.model.recipes import SCHEMES
from harness.model.shards import cut_evenly, layer_bytes, shard_sizes
from harness.record.artifact import ModelFacts, PerplexityFigure, sha256_of
from harness.soc import HTP_CONTEXT_BYTES, KvPrecision, Precision, Soc, check_precision

FORMS: Final[Mapping[str, tuple[str, type[StrEnum]]]] = MappingProxyType(
    {
        "rmsnorm": ("RMSNorm", RmsNorm),
        "attention": ("attention", Attention),
        "linear": ("linear layer", Linear),
        "logits": ("logits", Logits),
        "embeddings": ("embedding", Embeddings),
        "contexts": ("context", Contexts),
        "compiler": ("compiler", Compiler),
        "refused": ("way with refused operators", Refused),
    }
)
"""Field of a plan: what it is called, and what it may be."""
WEIGHTS: Final = ("rtn", "gptq")
BUILDS: Final = ("auto", "whole", "by-layer")
LARGE_PARAMETERS: Final = 2_000_000_000
"""From here on a model is prepared layer by layer. Whole it takes 9 bytes of memory a parameter and 15 of disk."""
MAX_COMPILED_PARAMETERS: Final[Mapping[str, float]] = MappingProxyType(
    {Contexts.SEPARATE: 2.0e9, Contexts.ONE: 1.1e9, Contexts.SHARED: 1.1e9}
)
"""Of a shard of a model that is prepared layer by layer: compiling takes 4.6 GiB of memory a billion parameters, and
about as much again for the second graph of a binary (``docs/prepare-sizes.md``)."""
KV8_MAX_COST: Final = 0.001
"""kv8 is the default where its perplexity is at most 0.1 % above that of kv16."""
KV16_ARCH: Final = 73
"""First HTP arch whose matrix product takes signed 16-bit keys and values: compiled and executed for soc 57, refused
for soc 36 (v69). Unsigned ones, which v69 would take, it rounds to 8 bits inside: twice the cache for nothing."""
KV_CHOICES: Final[Mapping[Precision, tuple[KvPrecision, ...]]] = MappingProxyType(
    {
        Precision.FP16: (KvPrecision.KVFP16,),
        Precision.W8A16: (KvPrecision.KV16, KvPrecision.KV8),
        Precision.W8A16_FP16ATTN: (KvPrecision.KV16, KvPrecision.KV8),
        Precision.W8A8: (KvPrecision.KV8,),
        Precision.W4A16: (KvPrecision.KV16, KvPrecision.KV8),
        Precision.W4A16_B32: (KvPrecision.KV16, KvPrecision.KV8),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    soc: Soc
    precision: Precision
    kv: KvPrecision | None
    """None: the measured perplexities decide."""
    context_length: int
    prefill_tokens: int
    rmsnorm: str = "operator"
    attention: str = "multi-head"
    linear: str = "matmul"
    logits: str = "all"
    embeddings: str = "graph"
    contexts: str = "separate"
    compiler: str = "onnxruntime-qnn"
    refused: str = "error"
    other_prefill_tokens: tuple[int, ...] = ()
    """Further AR-N graphs, all smaller than ``prefill_tokens``."""
    weights: str = "rtn"
    overrides: Path | None = None
    """An encodings file."""
    shards: int | None = None
    """Pieces the model is cut into; None: as few as the HTP's limits allow."""
    build: str = "auto"
    """One of ``BUILDS``; ``auto`` goes by the model's size."""

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Tokens a step, prefill first."""
        return tuple(sorted({self.prefill_tokens, *self.other_prefill_tokens, 1}, reverse=True))

    @property
    def form(self) -> GraphForm:
        """Of a plan that ``check_plan`` accepts."""
        return GraphForm(
            rmsnorm=RmsNorm(self.rmsnorm),
            attention=Attention(self.attention),
            linear=Linear(self.linear),
            logits=Logits(self.logits),
            embeddings=Embeddings(self.embeddings),
        )

    @property
    def kv_candidates(self) -> tuple[KvPrecision, ...]:
        """What is built and measured: the one that was asked for, or all there is to choose from."""
        if self.kv is not None:
            return (self.kv,)
        return tuple(
            kv for kv in KV_CHOICES[self.precision] if kv is not KvPrecision.KV16 or self.soc.htp_arch >= KV16_ARCH
        )


def check_plan(plan: Plan, facts: ModelFacts) -> None:
    check_precision(plan.precision, plan.soc)
    choices = KV_CHOICES[plan.precision]
    if plan.kv is not None and plan.kv not in choices:
        raise UserError(
            f"KV precision {plan.kv} does not go with {plan.precision}",
            found=plan.kv,
            expected=" or ".join(choices),
            next_step="leave --kv out to take the default",
        )
    if plan.kv is KvPrecision.KV16 and plan.soc.htp_arch < KV16_ARCH:
        raise UserError(
            f"{plan.kv} does not run on {plan.soc.marketing_name}",
            found=f"HTP v{plan.soc.htp_arch}",
            expected=f"HTP v{KV16_ARCH} or newer",
            next_step=f"choose --kv {KvPrecision.KV8}",
        )
    if plan.weights not in WEIGHTS:
        raise UserError(
            "unknown way to round weights", found=plan.weights, expected=" or ".join(WEIGHTS), next_step="choose one"
        )
    if plan.weights != "rtn" and plan.precision not in (Precision.W4A16, Precision.W4A16_B32):
        raise UserError(
            f"{plan.weights} does not go with {plan.precision}",
            found="no four-bit weights",
            expected=f"{Precision.W4A16} or {Precision.W4A16_B32}",
            next_step="leave --weights out",
        )
    if plan.build not in BUILDS:
        raise UserError("unknown way to build", found=plan.build, expected=" or ".join(BUILDS), next_step="choose one")
    if is_by_layer(plan, facts):
        _check_by_layer(plan, facts)
    if plan.overrides is not None and plan.precision is Precision.FP16:
        raise UserError(
            f"overrides do not go with {plan.precision}",
            found=str(plan.overrides),
            expected="a quantised precision",
            next_step="leave --overrides out",
        )
    if not 2 <= plan.context_length <= facts.max_context:
        raise UserError(
            f"context does not fit {facts.name}",
            found=str(plan.context_length),
            expected=f"2 to {facts.max_context} (max_position_embeddings)",
            next_step="choose another --context",
        )
    if not 1 <= plan.prefill_tokens < plan.context_length:
        raise UserError(
            "prefill chunk does not fit the context",
            found=str(plan.prefill_tokens),
            expected=f"1 to {plan.context_length - 1}",
            next_step="choose another --prefill",
        )
    others = plan.other_prefill_tokens
    if any(not 1 < n < plan.prefill_tokens for n in others) or len(set(others)) < len(others):
        raise UserError(
            "the sizes of prefill steps are not usable",
            found=", ".join(map(str, (plan.prefill_tokens, *others))),
            expected=f"different sizes from 2 to {plan.context_length - 1} (AR-1 is always made)",
            next_step="choose another --prefill",
        )
    _check_refused(plan, n_cuts=len(shard_cuts(plan, facts)))
    for field, (called, kind) in FORMS.items():
        if getattr(plan, field) not in list(kind):
            raise UserError(
                f"unknown {called} form",
                found=getattr(plan, field),
                expected=" or ".join(kind),
                next_step="choose one of them",
            )


def _check_refused(plan: Plan, *, n_cuts: int) -> None:
    if plan.refused != Refused.CPU:
        return
    against = {
        f"--contexts {plan.contexts}": plan.contexts != Contexts.SEPARATE,
        f"--compiler {plan.compiler}": plan.compiler != Compiler.ONNXRUNTIME_QNN,
        f"{n_cuts + 1} shards": n_cuts > 0,
    }
    for found, wrong in against.items():
        if wrong:
            raise UserError(
                f"--refused {plan.refused} does not go with {found}",
                found=found,
                expected="whole graphs, a binary for each piece, compiled by onnxruntime-qnn",
                next_step=f"leave {found.split()[0] if found.startswith('--') else '--shards'} out, or --refused",
            )


def is_by_layer(plan: Plan, facts: ModelFacts) -> bool:
    """Whether one layer's floats and one shard's graphs are kept at a time, and no reference graphs."""
    return plan.build == "by-layer" or (plan.build == "auto" and facts.n_parameters >= LARGE_PARAMETERS)


def _check_by_layer(plan: Plan, facts: ModelFacts) -> None:
    against = {
        f"--overrides {plan.overrides}": plan.overrides is not None,
        f"--refused {plan.refused}": plan.refused != Refused.ERROR,
    }
    for found, wrong in against.items():
        if wrong:
            billions = facts.n_parameters / 1e9
            raise UserError(
                f"{found} needs the whole model at once, and {facts.name} is prepared layer by layer",
                found=f"{billions:.2f} billion parameters",
                expected=f"--build whole: about {9 * billions:.1f} GB of memory and {15 * billions:.1f} GB of disk",
                next_step=f"leave {found.split()[0]} out, or add --build whole",
            )


def shard_cuts(plan: Plan, facts: ModelFacts) -> tuple[int, ...]:
    """The last layer of every shard but the last; nothing where the model stays whole."""
    scheme = SCHEMES.get(plan.precision)
    layer_bits = 16 if scheme is None else scheme.weight_bits
    block = None if scheme is None else scheme.block
    sizes = layer_bytes(
        facts,
        context_length=plan.context_length,
        bits=layer_bits + (0 if block is None else -(-32 // block)),
        head_bits=16 if scheme is None else 8,
        copies=len(plan.graph_sizes) if plan.contexts == Contexts.ONE else 1,
        kv_bytes=1 if plan.kv is KvPrecision.KV8 or plan.precision is Precision.W8A8 else 2,
    )
    if plan.shards is not None:
        if not 1 <= plan.shards <= facts.n_layers:
            raise UserError(
                f"{facts.name} cannot be cut into so many shards",
                found=str(plan.shards),
                expected=f"1 to {facts.n_layers}, its layers",
                next_step="choose another --shards",
            )
        return cut_evenly(sizes, plan.shards)
    parameters = layer_bytes(facts, context_length=0, bits=8, head_bits=8, kv_bytes=0)
    affordable = MAX_COMPILED_PARAMETERS.get(plan.contexts, 0.0) if is_by_layer(plan, facts) else float("inf")
    for n_shards in range(1, facts.n_layers + 1):
        cuts = cut_evenly(sizes, n_shards)
        compiles = max(shard_sizes(parameters, cuts)) <= affordable or n_shards == facts.n_layers
        if compiles and max(shard_sizes(sizes, cuts)) <= HTP_CONTEXT_BYTES:
            return cuts
    raise UserError(
        f"a single layer of {facts.name} does not fit the HTP",
        found=f"{max(sizes) / 2**30:.1f} GiB with its KV cache",
        expected=f"at most {HTP_CONTEXT_BYTES / 2**30:.1f} GiB a context",
        next_step="choose fewer bits a weight, or a shorter --context",
    )


def recorded_weights(plan: Plan) -> str | None:
    """``Recipe.weights`` of an artifact made by ``plan``."""
    return None if plan.precision is Precision.FP16 else plan.weights


def overrides_sha256(plan: Plan) -> str | None:
    """``Recipe.overrides_sha256`` of an artifact made by ``plan``."""
    return None if plan.overrides is None else sha256_of(plan.overrides)


def kv8_cost(quality: tuple[PerplexityFigure, ...]) -> float | None:
    """Perplexity of kv8 over that of kv16, minus 1. None: not measured."""
    figures = {figure.graph: figure.perplexity for figure in quality}
    try:
        return figures[KvPrecision.KV8] / figures[KvPrecision.KV16] - 1
    except KeyError:
        return None


def choose_kv(plan: Plan, quality: tuple[PerplexityFigure, ...]) -> tuple[KvPrecision, str]:
    """The KV precision to build, and why."""
    choices = KV_CHOICES[plan.precision] if plan.kv is not None else plan.kv_candidates
    cost = kv8_cost(quality)
    shown = "the cost of kv8 against kv16 in perplexity was not measured"
    if cost is not None:
        shown = f"kv8 costs {cost:+.2%} perplexity against kv16"
    if len(choices) == 1:
        return choices[0], "the only one for this precision and SoC"
    if plan.kv is not None:
        return plan.kv, f"as asked; {shown}"
    if cost is None:
        return KvPrecision.KV8, f"the default; {shown}"
    chosen = KvPrecision.KV8 if cost <= KV8_MAX_COST else KvPrecision.KV16
    return chosen, f"{shown}, the limit is {KV8_MAX_COST:+.2%}"
