"""GPTQ (Frantar et al., 2022, arXiv:2210.17323) for four-bit weights, in NumPy.

A weight's inputs are rounded one after the other; what rounding one input costs is made good in those not yet rounded,
by the inverse of the second moment of the inputs over the calibration text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from harness.errors import ModelError
from harness.model.calibrate import CalibrationText
from harness.model.decoder import Decoder
from harness.model.embeddings import with_embeddings
from harness.model.quantize import matrix_of
from harness.model.reference import CpuGraph
from harness.model.weights import HIGHEST, LOWEST, FixedWeight, choose_scales
from harness.record.artifact import GraphSpec, ModelFacts

DAMPING: Final = 0.01
"""Of the mean of the diagonal, added to it: inputs that hardly vary would make the inverse explode."""
_PANEL: Final = 128
"""Inputs whose corrections are applied to the rest of the weight in one product."""


def gptq_round(weight: NDArray[np.float32], moment: NDArray[np.float64], block: int | None) -> FixedWeight:
    """``weight`` (inputs, outputs) rounded so that its product with the calibration inputs changes least.

    ``moment``: (inputs, inputs), the sum of x xᵀ over the inputs x. The inputs that vary most go first, while most
    others are still there to make up for them; scales are those of rounding to nearest, chosen beforehand.
    """
    n_inputs, n_outputs = weight.shape
    scales = choose_scales(weight, block)
    order = np.argsort(-np.diag(moment), kind="stable")
    rest = weight.astype(np.float64)[order]
    row_scales = np.repeat(scales, n_inputs // len(scales), axis=0).astype(np.float64)[order]
    factor = _inverse_factor(moment[np.ix_(order, order)])
    rounded = np.zeros((n_inputs, n_outputs), dtype=np.int8)
    for start in range(0, n_inputs, _PANEL):
        end = min(start + _PANEL, n_inputs)
        errors = np.zeros((end - start, n_outputs))
        for row in range(start, end):
            rounded[row] = np.clip(np.rint(rest[row] / row_scales[row]), LOWEST, HIGHEST)
            error = (rest[row] - rounded[row] * row_scales[row]) / factor[row, row]
            rest[row + 1 : end] -= np.outer(factor[row, row + 1 : end], error)
            errors[row - start] = error
        rest[end:] -= factor[start:end, end:].T @ errors
    steps = np.empty_like(rounded)
    steps[order] = rounded
    return FixedWeight(steps=steps, scales=scales)


def _inverse_factor(moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper Cholesky factor U of the inverse of the damped moment: its inverse is Uᵀ U.

    ``moment`` is written over: a large model's widest has a gigabyte.
    """
    damped = moment
    diagonal = np.diag_indices_from(damped)
    damped[diagonal] += DAMPING * max(float(np.mean(damped[diagonal])), 1e-12)
    try:
        lower = np.linalg.cholesky(np.linalg.inv(damped))
    except np.linalg.LinAlgError as exc:
        raise ModelError(
            "the calibration inputs of a weight are degenerate",
            found=str(exc),
            expected="a positive definite second moment",
            next_step="give a longer --calibration text, or --weights rtn",
        ) from exc
    return np.ascontiguousarray(lower.T)


def gptq_weights(
    model: onnx.ModelProto,
    names: list[str],
    text: CalibrationText,
    facts: ModelFacts,
    *,
    block: int | None,
    context_length: int,
    mask_value: float,
    folder: Path | None = None,
    embeddings: NDArray[Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, FixedWeight]:
    """Every weight of ``names`` (right operands of MatMuls or Convs of ``model``, float32) by GPTQ over ``text``.

    ``folder``: where the model's data file is. ``embeddings``: the table of a graph that takes its rows.
    """
    recorder = MomentRecorder(model, names, folder)
    decoder = Decoder(
        [with_embeddings(recorder, embeddings)], facts, context_length=context_length, mask_value=mask_value
    )
    chunk = recorder.spec.n_tokens
    for index, sequence in enumerate(text.sequences):
        progress(f"gptq: inputs of {len(names)} weights over text {index + 1} of {len(text.sequences)}")
        n_whole = len(sequence) // chunk * chunk
        decoder.reset()
        if n_whole:
            decoder.extend(sequence[:n_whole])
    rounded = {}
    for index, name in enumerate(names):
        if index % 7 == 0:
            progress(f"gptq: weight {index + 1} of {len(names)}, {name}")
        rounded[name] = recorder.rounded(name, block)
    return rounded


def _rows(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> str:
    """What a linear layer reads, inputs last: in front of a Conv stands the Transpose that puts them elsewhere."""
    return str(node.input[0] if node.op_type == "MatMul" else makers[node.input[0]].input[0])


class MomentRecorder:
    """Runs a graph that also puts out what the weights ``names`` are multiplied with; keeps the sum of x xᵀ over the
    rows x of each. ``folder``: where the model's data file is."""

    def __init__(self, model: onnx.ModelProto, names: Sequence[str], folder: Path | None) -> None:
        makers = {node.output[0]: node for node in model.graph.node}
        readers = {node.input[1]: node for node in model.graph.node if node.op_type in ("MatMul", "Conv")}
        self._sources = {name: _rows(readers[name], makers) for name in names}
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in self._sources}
        self._folder = folder
        watched = onnx.ModelProto()
        watched.CopyFrom(model)
        own = {value.name for value in watched.graph.output}
        self._names = sorted(set(self._sources.values()))
        for name in self._names:
            if name not in own:
                watched.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        self._graph = CpuGraph(watched.SerializeToString(), folder=folder)
        spec = self._graph.spec
        self._spec = replace(spec, outputs=tuple(tensor for tensor in spec.outputs if tensor.name in own))
        self.moments: dict[str, NDArray[np.float64]] = {}

    def rounded(self, name: str, block: int | None) -> FixedWeight:
        """The weight ``name`` by GPTQ over all that ran."""
        weight = matrix_of(self._weights[name], self._folder).astype(np.float32)
        return gptq_round(weight, self.moments[self._sources[name]], block)

    @property
    def spec(self) -> GraphSpec:
        return self._spec

    def run(self, feed: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        outputs = self._graph.run(feed)
        for name in self._names:
            rows = outputs[name].reshape(-1, outputs[name].shape[-1]).astype(np.float64)
            moment = rows.T @ rows
            if name in self.moments:
                moment += self.moments[name]
            self.moments[name] = moment
        return outputs
