from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.model.checkpoint import Checkpoint, load_checkpoint
from harness.model.decoder import Decoder
from harness.model.numpy_llama import numpy_logits
from harness.model.perplexity import tokenize
from harness.model.reference import CpuGraph

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

from harness.model.form import GraphForm, RmsNorm
from harness.model.graph import FloatType, build_graph

VERSE = (
    "And God said, Let there be light: and there was light. And God saw the light, that it was good: and God "
    "divided the light from the darkness. And God called the light Day, and the darkness he called Night."
)


def decoder(
    checkpoint: Checkpoint,
    *sizes: int,
    context: int,
    rmsnorm: RmsNorm = RmsNorm.OPERATOR,
    float_type: FloatType = FloatType.FLOAT32,
) -> Decoder:
    graphs = [
        build_graph(
            checkpoint, n_tokens=n, context_length=context, form=GraphForm(rmsnorm=rmsnorm), float_type=float_type
        )
        for n in sizes
    ]
    runners = [CpuGraph(graph.SerializeToString()) for graph in graphs]
    return Decoder(runners, checkpoint.facts, context_length=context, mask_value=-100.0)


def relative_l2(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def verse_tokens(checkpoint: Checkpoint) -> list[int]:
    return [0, *tokenize(checkpoint.tokenizer_path, VERSE)]


@pytest.mark.parametrize("rmsnorm", list(RmsNorm))
def test_the_fp32_graph_computes_what_numpy_computes_from_the_checkpoint(
    tiny_llama: Checkpoint, rmsnorm: RmsNorm
) -> None:
    tokens = verse_tokens(tiny_llama)
    assert len(tokens) > 64
    found = decoder(tiny_llama, 32, 1, context=128, rmsnorm=rmsnorm).extend(tokens)
    assert relative_l2(found, numpy_logits(tiny_llama, tokens)) < 1e-5


def test_an_untied_model_without_groups_and_another_rope_theta_agrees_with_numpy(
    make_checkpoint: Callable[..., Path],
) -> None:
    checkpoint = load_checkpoint(make_checkpoint())
    tokens = [1, *(7 * at % 64 for at in range(40))]
    found = decoder(checkpoint, 8, 1, context=64).extend(tokens)
    assert relative_l2(found, numpy_logits(checkpoint, tokens)) < 1e-5


def test_the_fp16_graph_is_close_to_numpy(tiny_llama: Checkpoint) -> None:
    tokens = verse_tokens(tiny_llama)[:40]
    model = decoder(tiny_llama, 32, 1, context=64, float_type=FloatType.FLOAT16)
    raw = model.extend(tokens)
    assert raw.dtype == np.float16
    assert relative_l2(model.real(raw), numpy_logits(tiny_llama, tokens)) < 2e-3


def test_prefill_then_decode_agrees_with_one_long_prefill(tiny_llama: Checkpoint) -> None:
    tokens = verse_tokens(tiny_llama)[:64]
    whole = decoder(tiny_llama, 64, 1, context=128)
    at_once = whole.extend(tokens)
    whole.reset()
    stepped = np.concatenate([whole.extend(tokens[:20]), whole.extend(tokens[20:], step_with="token")])
    assert relative_l2(stepped, at_once) < 1e-5


def test_chunks_of_another_size_give_the_same_logits(tiny_llama: Checkpoint) -> None:
    tokens = verse_tokens(tiny_llama)[:60]
    in_one = decoder(tiny_llama, 64, 1, context=96).extend(tokens)
    in_padded_chunks = decoder(tiny_llama, 16, 1, context=96).extend(tokens)
    assert relative_l2(in_padded_chunks, in_one) < 1e-5


def test_a_context_that_is_no_multiple_of_the_chunk_can_be_filled_to_the_last_slot(tiny_llama: Checkpoint) -> None:
    tokens = verse_tokens(tiny_llama)[:50]
    full = decoder(tiny_llama, 16, 1, context=50)
    assert relative_l2(full.extend(tokens), numpy_logits(tiny_llama, tokens)) < 1e-5
    assert full.n_cached == 50


def test_greedy_decoding_continues_as_the_models_readme_says(tiny_llama: Checkpoint) -> None:
    from tokenizers import Tokenizer

    prompt = [0, *tokenize(tiny_llama.tokenizer_path, "And God said, Let there")]
    chosen, logits = decoder(tiny_llama, 16, 1, context=128).generate(prompt, 40)
    text = Tokenizer.from_file(str(tiny_llama.tokenizer_path)).decode(chosen)
    assert text.startswith(" be a great nation, and the people is not come to pass, that the LORD hath given to")
    assert logits.shape == (len(prompt) + 39, 1024)


def test_graph_inputs_and_outputs_have_the_agreed_names_and_shapes(tiny_llama: Checkpoint) -> None:
    spec = CpuGraph(build_graph(tiny_llama, n_tokens=16, context_length=128).SerializeToString()).spec
    inputs = {tensor.name: (tensor.shape, tensor.dtype) for tensor in spec.inputs}
    outputs = {tensor.name: (tensor.shape, tensor.dtype) for tensor in spec.outputs}
    assert list(inputs)[:4] == ["input_ids", "attention_mask", "position_ids_cos", "position_ids_sin"]
    assert len(inputs) == 4 + 2 * 4
    assert len(outputs) == 1 + 2 * 4
    assert inputs["input_ids"] == ((1, 16), "int32")
    assert inputs["attention_mask"] == ((1, 1, 16, 128), "float32")
    assert inputs["position_ids_cos"] == inputs["position_ids_sin"] == ((1, 1, 16, 16), "float32")
    assert inputs["past_key_3_in"] == ((2, 1, 32, 112), "float32")
    assert inputs["past_value_3_in"] == ((2, 1, 112, 32), "float32")
    assert outputs["logits"] == ((1, 16, 1024), "float32")
    assert outputs["past_key_3_out"] == ((2, 1, 32, 16), "float32")
    assert outputs["past_value_3_out"] == ((2, 1, 16, 32), "float32")


def test_the_basic_form_has_no_rms_norm_operator(tiny_llama: Checkpoint) -> None:
    basic = build_graph(tiny_llama, n_tokens=1, context_length=32, form=GraphForm(rmsnorm=RmsNorm.BASIC))
    one_node = build_graph(tiny_llama, n_tokens=1, context_length=32, form=GraphForm(rmsnorm=RmsNorm.OPERATOR))
    assert not [node for node in basic.graph.node if node.op_type == "RMSNormalization"]
    assert len([node for node in one_node.graph.node if node.op_type == "RMSNormalization"]) == 9
