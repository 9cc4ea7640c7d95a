"""How the graphs of a model are built, where several forms compute the same: the choices, and what they rest on.

``docs/graph-choices.md`` has the measurements behind the defaults, which come first in each enumeration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RmsNorm(StrEnum):
    OPERATOR = "operator"
    """One RMSNormalization node."""
    BASIC = "basic"
    """Pow, ReduceMean, Add, Sqrt, Div, Mul."""


class Attention(StrEnum):
    MULTI_HEAD = "multi-head"
    """One MatMul, Softmax, MatMul over all heads, grouped queries by batch broadcast."""
    PER_HEAD = "per-head"
    """MatMul, Add, Softmax, MatMul of each query head on its own, with scales of its own."""


class Linear(StrEnum):
    MATMUL = "matmul"
    CONV = "conv"
    """Conv with a 1x1 kernel over a (1, inputs, 1, N) picture."""


class Logits(StrEnum):
    ALL = "all"
    """(1, N, vocabulary)"""
    LAST = "last"
    """(1, 1, vocabulary): of the last of the N tokens of a step."""


class Embeddings(StrEnum):
    GRAPH = "graph"
    """The graph takes ``input_ids`` and looks them up in a table of its own."""
    HOST = "host"
    """The graph takes ``input_embeds``; the artifact's ``embeddings.bin`` is the table."""


class Contexts(StrEnum):
    """How the AR-N graphs of a model, or of a shard, go into context binaries."""

    SEPARATE = "separate"
    """A binary each."""
    ONE = "one"
    """All in one, each with weights of its own: for a phone, and for the emulator."""
    SHARED = "shared"
    """All in one, with one set of weights: for a phone only, since the x86 libraries do not load it."""


class Compiler(StrEnum):
    """What makes context binaries of ONNX graphs."""

    ONNXRUNTIME_QNN = "onnxruntime-qnn"
    QAIRT = "qairt"
    """The tools of a QAIRT SDK."""


class Refused(StrEnum):
    """What is done about operators that the HTP does not take."""

    ERROR = "error"
    CPU = "cpu"
    """The graph is cut around them, and they run on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphForm:
    rmsnorm: RmsNorm = RmsNorm.OPERATOR
    attention: Attention = Attention.MULTI_HEAD
    linear: Linear = Linear.MATMUL
    logits: Logits = Logits.ALL
    embeddings: Embeddings = Embeddings.GRAPH
