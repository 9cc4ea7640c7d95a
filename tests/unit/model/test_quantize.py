from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.perplexity import load_corpus, measure_perplexity
from harness.model.reference import CpuGraph
from harness.record.artifact import GraphSpec, TensorSpec

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

import onnx

from harness.errors import ModelError
from harness.model.calibrate import CalibrationText, Range, collect_ranges
from harness.model.form import GraphForm, RmsNorm
from harness.model.graph import build_graph
from harness.model.io_specs import io_specs
from harness.model.quantize import Encoding, encoding_table, quantize_graph
from harness.model.quantized_io import check_quantized_io, with_cache
from harness.model.recipes import SCHEMES
from harness.soc import KvPrecision, Precision

W8A16 = SCHEMES[Precision.W8A16]
CONTEXT = 256
CHUNK = 64


@dataclass(frozen=True)
class Quantized:
    table: Mapping[str, Encoding]
    kv16: Mapping[int, Any]
    kv8: Mapping[int, Any]


@pytest.fixture(scope="module", params=list(RmsNorm))
def quantized(tiny_llama: Checkpoint, request: pytest.FixtureRequest) -> Quantized:
    """Calibrated on the last 16 held-out windows; the tests look at the first 8."""
    heldout = tiny_llama.folder / "heldout.txt"
    corpus = load_corpus(heldout, tiny_llama.tokenizer_path, tiny_llama.facts, context_length=CONTEXT)
    text = CalibrationText(method="minmax", sequences=corpus.windows[-16:], sha256="")
    floats = {
        n: build_graph(tiny_llama, n_tokens=n, context_length=CONTEXT, form=GraphForm(rmsnorm=request.param))
        for n in (CHUNK, 1)
    }
    ranges = collect_ranges(floats[CHUNK], text, tiny_llama.facts, context_length=CONTEXT, mask_value=-100.0)
    table = encoding_table(ranges, tiny_llama.facts.n_layers, W8A16)
    wide = {n: quantize_graph(model, table, W8A16) for n, model in floats.items()}
    kv16 = {n: with_cache(model, KvPrecision.KV16, 4) for n, model in wide.items()}
    return Quantized(
        table=table, kv16=kv16, kv8={n: with_cache(model, KvPrecision.KV8, 4) for n, model in wide.items()}
    )


def tensors(model: Any) -> dict[str, TensorSpec]:
    inputs, outputs = io_specs(model)
    return {tensor.name: tensor for tensor in (*inputs, *outputs)}


def encoding(tensor: TensorSpec) -> tuple[str, float | None, int | None]:
    return tensor.dtype, tensor.scale, tensor.zero_point


def perplexity_of_8_windows(models: Mapping[int, Any], checkpoint: Checkpoint) -> float:
    runners = []
    for n_tokens, model in models.items():
        inputs, outputs = io_specs(model)
        spec = GraphSpec(name="", n_tokens=n_tokens, inputs=inputs, outputs=outputs, epcontext_nodes=0, cpu_nodes=0)
        runners.append(CpuGraph(model.SerializeToString(), spec))
    decoder = Decoder(runners, checkpoint.facts, context_length=CONTEXT, mask_value=-100.0)
    heldout = checkpoint.folder / "heldout.txt"
    corpus = load_corpus(heldout, checkpoint.tokenizer_path, checkpoint.facts, context_length=CONTEXT)
    return measure_perplexity(decoder, corpus, engine="", graph="", windows=range(8)).perplexity


@pytest.mark.parametrize("kv", ["kv16", "kv8"])
def test_no_graph_input_or_output_is_a_float(quantized: Quantized, kv: str) -> None:
    for model in getattr(quantized, kv).values():
        found = {tensor.name: str(tensor.dtype) for tensor in tensors(model).values()}
        cache = "ufixed8" if kv == "kv8" else "sfixed16"
        assert found.pop("input_ids") == "int32"
        assert {dtype for name, dtype in found.items() if name.startswith("past_")} == {cache}
        assert {dtype for name, dtype in found.items() if not name.startswith("past_")} == {"ufixed16"}


@pytest.mark.parametrize("kv", ["kv16", "kv8"])
def test_prefill_and_decode_share_every_encoding(quantized: Quantized, kv: str) -> None:
    prefill, decode = (tensors(getattr(quantized, kv)[n]) for n in (CHUNK, 1))
    assert {name: encoding(tensor) for name, tensor in prefill.items()} == {
        name: encoding(tensor) for name, tensor in decode.items()
    }


@pytest.mark.parametrize("kv", ["kv16", "kv8"])
def test_each_key_and_value_leaves_as_it_is_read_back(quantized: Quantized, kv: str) -> None:
    found = tensors(getattr(quantized, kv)[1])
    for layer in range(4):
        for kind in ("key", "value"):
            assert encoding(found[f"past_{kind}_{layer}_in"]) == encoding(found[f"past_{kind}_{layer}_out"])


def test_both_caches_are_symmetric_and_cover_the_calibrated_range(quantized: Quantized) -> None:
    made = quantized.table["past_key_0_out"]
    largest = max(made.zero_point, 65535 - made.zero_point) * made.scale
    for models, zero_point, steps in ((quantized.kv8, 128, 127), (quantized.kv16, 0, 32767)):
        found = tensors(models[1])["past_key_0_in"]
        assert found.zero_point == zero_point
        assert found.scale == pytest.approx(largest / steps)


def test_weights_are_int8_symmetric_per_output_channel(quantized: Quantized) -> None:
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in quantized.kv16[1].graph.initializer}
    for name in ("lm_head", "layer0_query_weight", "layer3_down_weight"):
        weight, scale, zero = (constants[f"{name}_{part}"] for part in ("quantized", "scale", "zero_point"))
        assert weight.dtype == np.int8
        assert scale.shape == (weight.shape[1],)
        assert not zero.any()


def test_the_masked_score_reaches_40_below_the_smallest_score_whatever_the_mask(quantized: Quantized) -> None:
    def lowest(name: str) -> float:
        encoded = quantized.table[name]
        return -encoded.zero_point * encoded.scale

    assert lowest("layer1_masked_scores") == pytest.approx(lowest("layer1_scores") - 40, abs=0.01)
    assert lowest("attention_mask") == pytest.approx(-100)


def test_softmax_covers_exactly_zero_to_one(quantized: Quantized) -> None:
    assert quantized.table["layer2_attention"] == Encoding(scale=float(np.float32(1 / 65535)), zero_point=0)


@pytest.mark.parametrize("kv", ["kv16", "kv8"])
def test_quantising_costs_less_than_0_3_percent_of_perplexity(
    quantized: Quantized, tiny_llama: Checkpoint, kv: str
) -> None:
    assert perplexity_of_8_windows(getattr(quantized, kv), tiny_llama) == pytest.approx(14.233, rel=0.003)


def test_the_float_graph_is_left_as_it_was(tiny_llama: Checkpoint) -> None:
    model = build_graph(tiny_llama, n_tokens=1, context_length=16)
    before = model.SerializeToString(deterministic=True)
    names = [value.name for value in model.graph.input] + [name for node in model.graph.node for name in node.output]
    table = encoding_table(dict.fromkeys(names, Range(low=-1.0, high=1.0)), 4, W8A16)
    quantize_graph(model, table, W8A16)
    assert model.SerializeToString(deterministic=True) == before


def test_an_activation_without_a_range_is_named(tiny_llama: Checkpoint) -> None:
    model = build_graph(tiny_llama, n_tokens=1, context_length=16)
    with pytest.raises(ModelError, match=r"layer0_input_norm_out was not calibrated"):
        quantize_graph(
            model,
            dict.fromkeys(
                (
                    "attention_mask",
                    "position_ids_cos",
                    "position_ids_sin",
                    *(f"past_{kind}_{layer}_in" for kind in ("key", "value") for layer in range(4)),
                ),
                Encoding(scale=1.0, zero_point=0),
            ),
            W8A16,
        )


def test_a_cache_with_two_encodings_is_refused(quantized: Quantized) -> None:
    inputs, outputs = io_specs(quantized.kv16[1])
    broken = tuple(replace(tensor, scale=1.0) if tensor.name == "past_value_2_out" else tensor for tensor in outputs)
    check_quantized_io(inputs, outputs, 4)
    with pytest.raises(ModelError, match=r"past_value_2_in and past_value_2_out are quantised differently"):
        check_quantized_io(inputs, broken, 4)


def test_a_float_output_is_refused(tiny_llama: Checkpoint) -> None:
    inputs, outputs = io_specs(build_graph(tiny_llama, n_tokens=1, context_length=16))
    with pytest.raises(ModelError, match=r"attention_mask is not quantised; found: float32"):
        check_quantized_io(inputs, outputs, 4)
