"""The range of every float tensor of a graph, over real text.

One AR-N graph is enough: its tensors have the same names in every other AR-N graph of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from harness.errors import UserError
from harness.model.decoder import Decoder
from harness.model.embeddings import with_embeddings
from harness.model.perplexity import read_text, tokenize
from harness.model.reference import CpuGraph
from harness.record.artifact import GraphSpec, ModelFacts, sha256_of

SEED: Final = 7
N_SEQUENCES: Final = 8
MAX_SELF_WRITTEN_WORK: Final = 5e11
"""Tokens times parameters: a model that would need longer for full contexts writes shorter texts."""
_MIN, _MAX = "range_min/", "range_max/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    low: float
    high: float

    def union(self, other: Range) -> Range:
        return Range(low=min(self.low, other.low), high=max(self.high, other.high))

    def widened(self, factor: float) -> Range:
        return Range(low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationText:
    method: str
    """Where the text came from."""
    sequences: tuple[tuple[int, ...], ...]
    sha256: str
    """Of the file; of self-generated text, of its token ids as little-endian int32, sequence after sequence."""

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.sequences))


def text_from_file(path: Path, tokenizer: Path, facts: ModelFacts, *, context_length: int) -> CalibrationText:
    """The first ``N_SEQUENCES`` contexts of a text, each with the begin token in front."""
    ids = tokenize(tokenizer, read_text(path))
    prefix = () if facts.bos_id is None else (facts.bos_id,)
    stride = context_length - len(prefix)
    pieces = [(*prefix, *ids[at : at + stride]) for at in range(0, min(len(ids), N_SEQUENCES * stride), stride)]
    if not pieces:
        raise UserError(f"{path} holds no text to calibrate on", found="0 tokens", expected="some pages of plain text")
    return CalibrationText(method=path.name, sequences=tuple(pieces), sha256=sha256_of(path))


def self_generated_text(decoder: Decoder, *, progress: Callable[[str], None] = lambda _: None) -> CalibrationText:
    """Text the float model writes itself: sampled at temperature 1 from its own begin token, seeded.

    It needs no data, and it is not the held-out text. End tokens are never sampled, so every sequence fills the
    context (of a large model as much of it as ``MAX_SELF_WRITTEN_WORK`` allows, but a whole chunk). A model without a
    begin token starts from a random token.
    """
    facts = decoder.facts
    affordable = int(MAX_SELF_WRITTEN_WORK / N_SEQUENCES / facts.n_parameters)
    length = min(decoder.context_length, max(decoder.chunk_tokens, affordable))
    random = np.random.default_rng(SEED)
    sequences = []
    for index in range(N_SEQUENCES):
        progress(f"calibration: the model writes text {index + 1} of {N_SEQUENCES}")
        start = facts.bos_id if facts.bos_id is not None else int(random.integers(facts.vocab_size))
        sequences.append(_sample(decoder, start, length, random))
    digest = hashlib.sha256(np.array(sequences, dtype="<i4").tobytes()).hexdigest()
    return CalibrationText(method=f"self-generated, seed {SEED}", sequences=tuple(sequences), sha256=digest)


def _sample(decoder: Decoder, start: int, length: int, random: np.random.Generator) -> tuple[int, ...]:
    decoder.reset()
    tokens = [start]
    while len(tokens) < length:
        logits = decoder.real(decoder.extend(tokens[-1:], step_with="token"))[0].astype(np.float64)
        logits[list(decoder.facts.eos_ids)] = -np.inf
        weights = np.exp(logits - logits.max())
        cumulative = np.cumsum(weights)
        at = int(np.searchsorted(cumulative, random.random() * cumulative[-1], side="right"))
        tokens.append(min(at, len(weights) - 1))
    return tuple(tokens)


def collect_ranges(
    model: onnx.ModelProto,
    text: CalibrationText,
    facts: ModelFacts,
    *,
    context_length: int,
    mask_value: float,
    folder: Path | None = None,
    embeddings: NDArray[Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Range]:
    """Smallest and largest value of every float graph input and node output over ``text``.

    Only whole chunks are used: padding would put ranges into the table that no text reaches. Zero is in every range.
    ``folder``: where the model's data file is. ``embeddings``: the table of a graph that takes its rows.
    """
    recorder = RangeRecorder(model, folder)
    chunk = recorder.spec.n_tokens
    decoder = Decoder(
        [with_embeddings(recorder, embeddings)], facts, context_length=context_length, mask_value=mask_value
    )
    sequences = whole_chunks(text, chunk)
    for index, sequence in enumerate(sequences):
        progress(f"calibration: ranges over text {index + 1} of {len(sequences)}")
        decoder.reset()
        decoder.extend(sequence)
    return recorder.ranges


def whole_chunks(text: CalibrationText, chunk: int) -> tuple[tuple[int, ...], ...]:
    """Of each sequence what fills chunks; at least one is not empty."""
    whole = tuple(sequence[: len(sequence) // chunk * chunk] for sequence in text.sequences)
    if not any(whole):
        raise UserError(
            "the calibration text is too short",
            found=f"{max(map(len, text.sequences))} tokens",
            expected=f"at least one chunk of {chunk}",
            next_step="give a longer --calibration text",
        )
    return tuple(sequence for sequence in whole if sequence)


class RangeRecorder:
    """Runs a graph that also puts out the minimum and maximum of each of its tensors, and keeps their union."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None) -> None:
        watched = onnx.ModelProto()
        watched.CopyFrom(model)
        graph = watched.graph
        kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
        names = [name for node in graph.node for name in node.output if kinds[name] == TensorProto.FLOAT]
        names = [value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT] + names
        for name in names:
            for prefix, op in ((_MIN, "ReduceMin"), (_MAX, "ReduceMax")):
                graph.node.append(helper.make_node(op, [name], [prefix + name], keepdims=0))
                graph.output.append(helper.make_tensor_value_info(prefix + name, TensorProto.FLOAT, ()))
        self._graph = CpuGraph(watched.SerializeToString(), folder=folder)
        spec = self._graph.spec
        self._spec = GraphSpec(
            name=spec.name,
            n_tokens=spec.n_tokens,
            inputs=spec.inputs,
            outputs=tuple(tensor for tensor in spec.outputs if not tensor.name.startswith((_MIN, _MAX))),
            epcontext_nodes=0,
            cpu_nodes=0,
        )
        self._names = names
        self.ranges: dict[str, Range] = {}

    @property
    def spec(self) -> GraphSpec:
        return self._spec

    def run(self, feed: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        outputs = self._graph.run(feed)
        for name in self._names:
            seen = Range(low=min(0.0, float(outputs[_MIN + name])), high=max(0.0, float(outputs[_MAX + name])))
            self.ranges[name] = self.ranges[name].union(seen) if name in self.ranges else seen
        return outputs
