from __future__ import annotations

from dataclasses import replace

from harness.cli.prepare import accuracy_lines
from harness.record.artifact import (
    AccuracyFigures,
    ArtifactManifest,
    ContextFile,
    GraphSpec,
    ModelFacts,
    PerplexityFigure,
    Recipe,
    Target,
    TensorSpec,
)
from harness.record.vocabulary import DType
from harness.soc import KvPrecision, Precision


def figure(graph: str, perplexity: float, nll: tuple[float, ...]) -> PerplexityFigure:
    return PerplexityFigure(
        engine="e",
        graph=graph,
        perplexity=perplexity,
        n_windows=3,
        n_scored_tokens=30,
        corpus_sha256="c",
        window_nll=nll,
    )


def manifest() -> ArtifactManifest:
    cache = TensorSpec(name="past_key_0_in", dtype=DType.UFIXED16, shape=(2**18,), scale=1.0, zero_point=0)
    graph = GraphSpec(name="g", n_tokens=1, inputs=(cache,), outputs=(), epcontext_nodes=1, cpu_nodes=0)
    return ArtifactManifest(
        schema="snapgate.artifact/1",
        model=ModelFacts(
            name="m", architecture="a", n_layers=2, hidden_size=8, intermediate_size=8, n_heads=1, n_kv_heads=1,
            head_dim=8, vocab_size=5, max_context=32, rope_theta=1.0, rms_norm_eps=1.0,
            tied_embeddings=True, bos_id=0, eos_ids=(),
            n_parameters=0,
        ),
        recipe=Recipe(
            precision=Precision.W8A16, kv=KvPrecision.KV8, context_length=16, prefill_tokens=4, rmsnorm="operator",
            mask_value=-100.0, calibration_method=None, calibration_samples=None, calibration_tokens=None,
            calibration_text_sha256=None,
        ),
        target=Target(part="SM8650", soc_number=57, htp_arch=75, vtcm_mb=8, optimization_level=3),
        contexts=(ContextFile(file="ar1.bin", sha256="", n_bytes=2**20, graphs=(graph,)),),
        tools={}, checkpoint_sha256={}, files_sha256={},
        quality=(figure("fp32", 10.0, (20.0, 22.0, 24.0)), figure("kv8", 10.1, (20.1, 22.1, 24.1))),
        accuracy=AccuracyFigures(layer_snr_db=(40.0, 30.0), logits_snr_db=25.5, top1_agreement=0.75, n_positions=8),
    )  # fmt: skip


NEED = (
    "at least 1.50 MiB in memory (binaries, 0.50 MiB of KV cache, inputs and outputs): 0.04% of what an HTP session "
    "maps (3.5 GiB), 0.07% of what a context may have (2 GiB), 0.02% / 0.01% / 0.01% of a phone's 8 / 12 / 16 GiB"
)
"""1 MiB of binary and 2^18 elements of 2 bytes."""


def test_every_figure_is_said_with_its_interval_and_unit() -> None:
    """Each window costs 0.1 nats more over 10 tokens: exp(0.01) with no spread between windows."""
    assert accuracy_lines(manifest()) == [
        "perplexity 10.1000, +1.00 % over fp32 (95 %: +1.01 to +1.01, paired over windows); 99.0 % of fp32's quality",
        "SNR in dB behind each layer 40.0 30.0, logits 25.5; same first choice as fp32 at 75.0% of 8 positions",
        "1.00 MiB of binaries; about 1.50 MiB moved per token",
        NEED,
    ]


def test_what_was_not_measured_is_not_said() -> None:
    found = accuracy_lines(replace(manifest(), quality=(), accuracy=None))
    assert found == ["1.00 MiB of binaries; about 1.50 MiB moved per token", NEED]


def test_without_the_windows_there_is_no_interval() -> None:
    bare = replace(manifest(), quality=(figure("fp32", 10.0, ()), figure("kv8", 10.1, ())))
    assert accuracy_lines(bare)[0] == "perplexity 10.1000, +1.00 % over fp32; 99.0 % of fp32's quality"
