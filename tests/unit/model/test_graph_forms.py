"""Forms of a graph compute what the default form computes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from harness.errors import ArtifactError
from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint
from harness.model.decoder import Decoder
from harness.model.numpy_llama import numpy_logits
from harness.model.perplexity import tokenize
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from onnx import numpy_helper

from harness.model.calibrate import CalibrationText, collect_ranges
from harness.model.embeddings import with_embeddings
from harness.model.form import Attention, Embeddings, GraphForm, Linear, Logits
from harness.model.gptq import gptq_weights
from harness.model.graph import build_graph
from harness.model.io_specs import io_specs
from harness.model.quantize import encoding_table, four_bit_names, four_bit_weights, quantize_graph
from harness.model.quantized_io import check_quantized_io, with_cache
from harness.model.recipes import SCHEMES
from harness.soc import KvPrecision, Precision

CONTEXT, CHUNK = 64, 16
TEXT = "And God said, Let there be light: and there was light. And God saw the light, that it was good. " * 2
PLAIN = GraphForm()
PER_HEAD = GraphForm(attention=Attention.PER_HEAD)
CONV = GraphForm(linear=Linear.CONV)
HOST = GraphForm(embeddings=Embeddings.HOST)
LAST = GraphForm(logits=Logits.LAST)


def graphs(checkpoint: Checkpoint, form: GraphForm) -> dict[int, Any]:
    return {n: build_graph(checkpoint, n_tokens=n, context_length=CONTEXT, form=form) for n in (CHUNK, 1)}


def decoder(checkpoint: Checkpoint, form: GraphForm) -> Decoder:
    table = checkpoint.weight(Role.EMBEDDING) if form.embeddings is Embeddings.HOST else None
    runners = [CpuGraph(model.SerializeToString()) for model in graphs(checkpoint, form).values()]
    return Decoder(
        [with_embeddings(runner, table) for runner in runners],
        checkpoint.facts,
        context_length=CONTEXT,
        mask_value=-100.0,
    )


def tokens_of(checkpoint: Checkpoint) -> list[int]:
    return [0, *tokenize(checkpoint.tokenizer_path, TEXT)][:40]


@pytest.mark.parametrize("form", [PER_HEAD, CONV, HOST], ids=["per-head", "conv", "host embeddings"])
def test_a_form_computes_what_numpy_computes_from_the_checkpoint(tiny_llama: Checkpoint, form: GraphForm) -> None:
    tokens = tokens_of(tiny_llama)
    found, expected = decoder(tiny_llama, form).extend(tokens), numpy_logits(tiny_llama, tokens)
    assert float(np.linalg.norm(found - expected) / np.linalg.norm(expected)) < 1e-5


def test_a_step_that_puts_out_its_last_row_gives_that_row_and_the_rest_goes_by_tokens(tiny_llama: Checkpoint) -> None:
    tokens = tokens_of(tiny_llama)
    last = decoder(tiny_llama, LAST)
    rows, expected = last.extend(tokens), numpy_logits(tiny_llama, tokens)
    assert len(tokens) == 40
    assert len(rows) == 2 + 8  # two chunks of 16, eight single tokens
    expected = expected[[15, 31, *range(32, 40)]]
    assert float(np.linalg.norm(rows - expected) / np.linalg.norm(expected)) < 1e-5
    with pytest.raises(ArtifactError, match="perplexity needs the logits of every token; found: 1 row of 16"):
        last.window_nll(tokens)


def test_nodes_of_each_form(tiny_llama: Checkpoint) -> None:
    """4 layers, 6 query heads over 2 key heads; 7 linear layers a layer, and the head."""

    def count(form: GraphForm) -> Counter[str]:
        model = build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT, form=form)
        return Counter(node.op_type for node in model.graph.node)

    assert count(PLAIN)["MatMul"] == 4 * (7 + 2) + 1
    assert (count(PER_HEAD)["Softmax"], count(PER_HEAD)["MatMul"]) == (4 * 6, 4 * (7 + 2 * 6) + 1)
    assert (count(CONV)["Conv"], count(CONV)["MatMul"]) == (4 * 7 + 1, 4 * 2)
    assert count(HOST)["Gather"] == 0
    assert count(LAST)["Slice"] == count(PLAIN)["Slice"] + 1


@pytest.mark.parametrize("form", [PER_HEAD, CONV], ids=["per-head", "conv"])
@pytest.mark.parametrize("kv", [KvPrecision.KV8, KvPrecision.KV16])
def test_a_quantised_form_keeps_integers_at_its_edges_and_one_encoding_for_the_cache(
    tiny_llama: Checkpoint, form: GraphForm, kv: KvPrecision
) -> None:
    scheme = SCHEMES[Precision.W8A16]
    floats = graphs(tiny_llama, form)
    text = CalibrationText(method="", sequences=(tuple(tokens_of(tiny_llama)),), sha256="")
    ranges = collect_ranges(floats[CHUNK], text, tiny_llama.facts, context_length=CONTEXT, mask_value=-100.0)
    table = encoding_table(ranges, 4, scheme)
    scores = [name for name in table if name.endswith("_scores") and "masked" not in name]
    assert len(scores) == (4 * 6 if form is PER_HEAD else 4)
    for name in scores:
        assert table[name.replace("_scores", "_attention")].scale == float(np.float32(1 / 65535))
    for model in floats.values():
        quantised = with_cache(quantize_graph(model, table, scheme), kv, 4)
        check_quantized_io(*io_specs(quantised), 4)
        pieces = {t.name: numpy_helper.to_array(t) for t in quantised.graph.initializer if "cache_scale" in t.name}
        assert len(pieces) == 8
        assert CpuGraph(quantised.SerializeToString()) is not None


@pytest.mark.parametrize(
    ("precision", "weights"),
    [(Precision.W8A16, "rtn"), (Precision.W4A16, "gptq"), (Precision.W4A16_B32, "rtn"), (Precision.W4A16_B32, "gptq")],
)
def test_a_convolution_gets_the_very_integers_that_a_matrix_product_gets(
    tiny_llama: Checkpoint, precision: Precision, weights: str
) -> None:
    scheme, text = SCHEMES[precision], CalibrationText(method="", sequences=(tuple(tokens_of(tiny_llama)),), sha256="")
    found = []
    for form in (PLAIN, CONV):
        model = build_graph(tiny_llama, n_tokens=CHUNK, context_length=CONTEXT, form=form)
        settings: dict[str, Any] = {"context_length": CONTEXT, "mask_value": -100.0}
        table = encoding_table(collect_ranges(model, text, tiny_llama.facts, **settings), 4, scheme)
        rounded = four_bit_weights(model, scheme)
        if weights == "gptq":
            names = four_bit_names(model)[:3]
            rounded = {**rounded, **gptq_weights(model, names, text, tiny_llama.facts, block=scheme.block, **settings)}
        constants = quantize_graph(model, table, scheme, rounded).graph.initializer
        found.append({tensor.name: numpy_helper.to_array(tensor) for tensor in constants})
    plain, conv = found
    for name in ("layer0_query_weight", "layer2_down_weight", "lm_head"):
        for end in ("quantized", "scale"):
            expected, kernel = plain[f"{name}_{end}"], conv[f"{name}_{end}"]
            got = kernel[:, :, 0, 0].T if kernel.ndim == 4 else kernel
            difference = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
            assert difference <= (1e-6 if end == "scale" else int(weights == "gptq"))  # sums in another order
    assert conv["layer0_query_weight_quantized"].shape == (192, 192, 1, 1)
