"""What was compared with the reference, as plain numbers: a journal can be judged with no phone and no model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.record.run import Cell

EDGE_PREFIX: Final = "edge-"
"""Prompt ids of the edges suite: ``edge-65`` is a prompt of 65 tokens. Not part of the ordinary accuracy figures."""


class Leg(StrEnum):
    """The three legs of the accuracy triangle."""

    FP32 = "fp32"
    """The float graph on ONNX Runtime's CPU provider."""
    GRAPH = "graph"
    """The very graph that was compiled (QDQ, or float16) on ONNX Runtime's CPU provider."""
    PHONE = "phone"
    """The context binary on the phone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFacts:
    """The host that computed the reference. Numbers of another host or version are not comparable to the bit."""

    reference_id: str
    artifact_id: str
    onnxruntime_version: str
    cpu_model: str
    cpu_flags: tuple[str, ...]
    """Those that change integer kernels: avx2, avx512f, avx512_vnni, avx_vnni, amx_int8."""
    n_threads: int
    optimization_level: str
    """``disabled``: graph optimisations off"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsComparison:
    """Logits of ``leg`` against those of fp32, one value per position of one prompt.

    relative_l2 = |x - r| / |r|; snr_db = -20 log10(relative_l2); kl_nats = KL(softmax(r) || softmax(x));
    margin = largest minus second largest fp32 logit.
    """

    run_id: str | None
    """None for a leg that did not run on a phone."""
    reference_id: str
    cell: Cell
    leg: Leg
    prompt_id: str
    phase: str
    """``prefill`` or ``decode``"""
    positions: tuple[int, ...]
    relative_l2: tuple[float, ...]
    snr_db: tuple[float, ...]
    kl_nats: tuple[float, ...]
    argmax: tuple[int, ...]
    reference_argmax: tuple[int, ...]
    reference_margin: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScores:
    """Summed NLL (nats) and number of scored tokens per held-out window."""

    run_id: str | None
    reference_id: str
    cell: Cell
    leg: Leg
    corpus_sha256: str
    context_length: int
    window_ids: tuple[int, ...]
    nll_sum: tuple[float, ...]
    n_scored: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScore:
    """One task set, answered by one leg; one value per item."""

    run_id: str | None
    reference_id: str
    cell: Cell
    leg: Leg
    task: str
    task_sha256: str
    """Of the JSONL file"""
    item_ids: tuple[str, ...]
    correct: tuple[bool, ...]
    chance: tuple[float, ...]
    """What guessing gets: 1 / number of choices, 0 for exact match"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """A check that can refute a measurement. ``passed is None``: could not be carried out, ``detail`` says why."""

    run_id: str
    cell: Cell
    name: str
    """One of the names in ``harness.measure.selfcheck``"""
    passed: bool | None
    detail: str
