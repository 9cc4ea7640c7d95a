"""What each precision costs the bundled model, over 24 held-out windows on onnxruntime's CPU kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from harness.model.calibrate import CalibrationText, Range, collect_ranges
from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.perplexity import Corpus, load_corpus, measure_perplexity
from harness.model.reference import CpuGraph
from harness.record.artifact import GraphSpec

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

import onnx

from harness.model.gptq import gptq_weights
from harness.model.graph import build_graph
from harness.model.io_specs import io_specs
from harness.model.quantize import encoding_table, four_bit_names, four_bit_weights, quantize_graph
from harness.model.quantized_io import check_quantized_io, with_cache
from harness.model.recipes import SCHEMES
from harness.soc import KvPrecision, Precision

CONTEXT, CHUNK = 256, 64
FP32 = 11.5275
"""Perplexity of the float graph over the same windows."""


@dataclass(frozen=True)
class Float:
    checkpoint: Checkpoint
    model: Any
    corpus: Corpus
    ranges: dict[str, Range]
    text: CalibrationText


@pytest.fixture(scope="module")
def floats(tiny_llama: Checkpoint) -> Float:
    """Calibrated on the last 16 held-out windows; the tests look at the first 24."""
    corpus = load_corpus(
        tiny_llama.folder / "heldout.txt", tiny_llama.tokenizer_path, tiny_llama.facts, context_length=CONTEXT
    )
    model = build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT)
    text = CalibrationText(method="", sequences=corpus.windows[-16:], sha256="")
    ranges = collect_ranges(model, text, tiny_llama.facts, context_length=CONTEXT, mask_value=-50.0)
    return Float(checkpoint=tiny_llama, model=model, corpus=corpus, ranges=ranges, text=text)


def quantized(floats: Float, precision: Precision) -> Any:
    scheme = SCHEMES[precision]
    table = encoding_table(floats.ranges, 4, scheme)
    return quantize_graph(floats.model, table, scheme, four_bit_weights(floats.model, scheme))


def perplexity(floats: Float, model: Any, mask_value: float, windows: range = range(24)) -> float:
    inputs, outputs = io_specs(model)
    spec = GraphSpec(name="", n_tokens=CHUNK, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)
    runner = CpuGraph(model.SerializeToString(), spec)
    decoder = Decoder([runner], floats.checkpoint.facts, context_length=CONTEXT, mask_value=mask_value)
    return measure_perplexity(decoder, floats.corpus, engine="", graph="", windows=windows).perplexity


@pytest.mark.parametrize(
    ("precision", "at_most_percent"), [("w8a16-fp16attn", 0.2), ("w8a8", 4.0), ("w4a16", 3.5), ("w4a16-b32", 1.5)]
)
def test_a_precision_costs_no_more_perplexity_than_its_limit(
    floats: Float, precision: str, at_most_percent: float
) -> None:
    model = quantized(floats, Precision(precision))
    if precision != "w8a8":
        model = with_cache(model, KvPrecision.KV8, 4)
    check_quantized_io(*io_specs(model), 4)
    found = perplexity(floats, model, SCHEMES[Precision(precision)].mask_value)
    assert -0.2 < 100 * (found / FP32 - 1) < at_most_percent


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["w4a16", "w4a16-b32"])
def test_gptq_costs_less_perplexity_than_rounding_to_nearest(floats: Float, precision: str) -> None:
    scheme = SCHEMES[Precision(precision)]
    gptq = gptq_weights(
        floats.model,
        four_bit_names(floats.model),
        floats.text,
        floats.checkpoint.facts,
        block=scheme.block,
        context_length=CONTEXT,
        mask_value=-100.0,
    )
    table = encoding_table(floats.ranges, 4, scheme)
    # The difference is small: all windows that were not calibrated on.
    windows = range(len(floats.corpus.windows) - len(floats.text.sequences))
    found = perplexity(floats, quantize_graph(floats.model, table, scheme, gptq), -100.0, windows)
    assert found < perplexity(floats, quantized(floats, Precision(precision)), -100.0, windows)


def test_only_the_attention_of_fp16attn_computes_in_float(floats: Float) -> None:
    model = quantized(floats, Precision.W8A16_FP16ATTN)
    made_by = {name: node for node in model.graph.node for name in node.output}
    readers = {name: node for node in model.graph.node for name in node.input}

    def floating(node: Any) -> bool:
        """Read by an operator without being quantised in between."""
        behind = readers.get(node.output[0])
        return behind is not None and behind.op_type not in ("QuantizeLinear", "DequantizeLinear")

    plain = [
        node.name
        for node in model.graph.node
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") and floating(node)
    ]
    assert plain == [f"layer{n}_{part}" for n in range(4) for part in ("scores", "masked_scores", "attention")]
    assert made_by["attention_mask_DequantizeLinear_Output"].op_type == "DequantizeLinear"


@pytest.mark.parametrize(("precision", "block"), [("w4a16", None), ("w4a16-b32", 32)])
def test_four_bit_weights_have_zero_points_of_zero_and_the_head_keeps_eight_bits(
    floats: Float, precision: str, block: int | None
) -> None:
    model = quantized(floats, Precision(precision))
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    four = [t for t in constants.values() if t.data_type == onnx.TensorProto.INT4 and t.name.endswith("_quantized")]
    assert len(four) == len(four_bit_names(floats.model)) == 28
    for tensor in four:
        stem = tensor.name.removesuffix("_quantized")
        n_inputs, n_outputs = tensor.dims
        wanted = (n_outputs,) if block is None else (n_inputs // block, n_outputs)
        assert tuple(constants[f"{stem}_scale"].dims) == wanted
        assert not any(constants[f"{stem}_zero_point"].raw_data)
    assert constants["lm_head_quantized"].data_type == onnx.TensorProto.INT8


def test_keys_and_values_of_w8a8_are_symmetric(floats: Float) -> None:
    inputs, outputs = io_specs(quantized(floats, Precision.W8A8))
    cache = [tensor for tensor in (*inputs, *outputs) if tensor.name.startswith("past_")]
    assert len(cache) == 16
    assert {(str(tensor.dtype), tensor.zero_point) for tensor in cache} == {("ufixed8", 128)}
