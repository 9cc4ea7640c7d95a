"""Bytes a token moves at least, and speed as a share of what the memory allows."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import ArtifactError
from harness.measure.roofline import Roof, fault
from harness.record.artifact import (
    ARTIFACT_SCHEMA,
    ArtifactManifest,
    ContextFile,
    GraphSpec,
    ModelFacts,
    Recipe,
    Target,
    TensorSpec,
)
from harness.record.moved import bytes_per_token, operations_per_token
from harness.record.vocabulary import DType
from harness.soc import KvPrecision, Precision


def manifest(*, precision=Precision.W8A16, tied=True, n_tokens=1):
    """One layer, 2 heads of 4, a context of 16; 1000 parameters, of which a table of 10 x 8."""
    tensors = (
        TensorSpec(name="input_ids", dtype=DType.INT32, shape=(1, 1)),
        TensorSpec(name="attention_mask", dtype=DType.UFIXED16, shape=(1, 1, 1, 16)),
        TensorSpec(name="past_key_0_in", dtype=DType.UFIXED8, shape=(2, 1, 4, 15)),
        TensorSpec(name="past_value_0_in", dtype=DType.UFIXED8, shape=(2, 1, 15, 4)),
    )
    outputs = (
        TensorSpec(name="logits", dtype=DType.UFIXED16, shape=(1, 1, 10)),
        TensorSpec(name="past_key_0_out", dtype=DType.UFIXED8, shape=(2, 1, 4, 1)),
        TensorSpec(name="past_value_0_out", dtype=DType.UFIXED8, shape=(2, 1, 1, 4)),
    )
    graph = GraphSpec(name="ar1", n_tokens=n_tokens, inputs=tensors, outputs=outputs, epcontext_nodes=1, cpu_nodes=0)
    return ArtifactManifest(
        schema=ARTIFACT_SCHEMA,
        model=ModelFacts(
            name="m", architecture="LlamaForCausalLM", n_layers=1, hidden_size=8, intermediate_size=16, n_heads=2,
            n_kv_heads=2, head_dim=4, vocab_size=10, max_context=16, rope_theta=1e4, rms_norm_eps=1e-5,
            tied_embeddings=tied, bos_id=1, eos_ids=(2,), n_parameters=1000,
        ),
        recipe=Recipe(
            precision=precision, kv=KvPrecision.KV8, context_length=16, prefill_tokens=8, rmsnorm="operator",
            mask_value=-100.0, calibration_method=None, calibration_samples=None, calibration_tokens=None,
            calibration_text_sha256=None,
        ),
        target=Target(part="SM8650", soc_number=57, htp_arch=75, vtcm_mb=8, optimization_level=3),
        contexts=(ContextFile(file="ar1.bin", sha256="0" * 64, n_bytes=1, graphs=(graph,)),),
        tools={}, checkpoint_sha256={}, files_sha256={}, quality=(),
    )  # fmt: skip


def test_kv_and_activations_are_the_tensors_of_one_step():
    """KV: 120 + 120 in, 8 + 8 out. Others: 4 (token id) + 32 (mask) + 20 (logits)."""
    moved = bytes_per_token(manifest())
    assert (moved.kv, moved.activations) == (256, 56)
    assert moved.total == 1000 + 256 + 56


@pytest.mark.parametrize(
    ("precision", "tied", "n_bytes"),
    [
        (Precision.W8A16, True, 1000),
        (Precision.W8A8, True, 1000),
        (Precision.FP16, True, 2000),
        (Precision.W8A16, False, 928),  # a table of 80 of which one row of 8 is read
        (Precision.W4A16, True, 540),  # 920 at half a byte, 80 of the head at one
        (Precision.W4A16_B32, False, 504),  # 928 used, 80 of them the head
    ],
)
def test_each_weight_that_a_token_uses_counts_once(precision, tied, n_bytes):
    assert bytes_per_token(manifest(precision=precision, tied=tied)).weights == n_bytes


def test_every_shard_of_the_step_counts():
    """The same tensors once more in a second shard."""
    whole = manifest()
    (context,) = whole.contexts
    shards = dataclasses.replace(whole, contexts=(context, dataclasses.replace(context, file="ar1_shard2.bin")))
    assert bytes_per_token(shards).kv == 2 * 256
    assert bytes_per_token(shards).activations == 2 * 56


@pytest.mark.parametrize(("tied", "n"), [(True, 2 * (1000 - 24)), (False, 2 * (1000 - 24 - 80))])
def test_each_weight_of_a_linear_layer_is_two_operations(tied, n):
    """1000 parameters, of which three norms of 8 multiply only; a table of 80 that is not the head is looked up."""
    assert operations_per_token(manifest(tied=tied)) == n


def test_without_an_ar1_graph_nothing_is_computed():
    with pytest.raises(ArtifactError, match="no AR-1 graph"):
        bytes_per_token(manifest(n_tokens=8))


def test_the_roof_is_bandwidth_over_bytes():
    """1312 bytes a token at 1.312 MB/s are 1000 tokens/s; 450 of them are 45 %."""
    roof = Roof(gb_per_s=1.312e-3, source="test")
    moved = bytes_per_token(manifest())
    assert roof.fastest_tps(moved) == pytest.approx(1000.0)
    assert roof.efficiency_percent(moved, 450.0) == pytest.approx(45.0)


def test_more_than_the_memory_can_move_is_a_fault():
    assert fault(100.0) is None
    assert "measurement_fault" in fault(100.1)
