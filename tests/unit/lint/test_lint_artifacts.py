from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="needs the prepare extra")

from harness.lint import artifacts
from harness.model.rope import rope_file_bytes
from harness.record.artifact import (
    Artifact,
    ArtifactManifest,
    ContextFile,
    GraphSpec,
    ModelFacts,
    Recipe,
    Target,
    TensorSpec,
)
from harness.record.vocabulary import DType
from harness.soc import KvPrecision, Precision, find_soc

FACTS = ModelFacts(
    name="m", architecture="LlamaForCausalLM", n_layers=1, hidden_size=8, intermediate_size=8, n_heads=1, n_kv_heads=1,
    head_dim=8, vocab_size=5, max_context=32, rope_theta=100.0, rms_norm_eps=1e-5, tied_embeddings=True, bos_id=0,
    eos_ids=(4,), n_parameters=0,
)  # fmt: skip


def graph(n_tokens: int, scale: float = 0.5, *, nodes: int = 1, cpu: int = 0) -> GraphSpec:
    def tensor(name: str) -> TensorSpec:
        return TensorSpec(name=name, dtype=DType.UFIXED8, shape=(1,), scale=scale, zero_point=128)

    return GraphSpec(
        name="g", n_tokens=n_tokens, inputs=(tensor("past_key_0_in"),), outputs=(tensor("past_key_0_out"),),
        epcontext_nodes=nodes, cpu_nodes=cpu,
    )  # fmt: skip


def artifact(folder: Path, *graphs: GraphSpec, precision: str = "w8a16", part: str = "gen3") -> Artifact:
    soc = find_soc(part)
    recipe = Recipe(
        precision=Precision(precision), kv=KvPrecision.KV8, context_length=16, prefill_tokens=4, rmsnorm="operator",
        mask_value=-100.0, calibration_method=None, calibration_samples=None, calibration_tokens=None,
        calibration_text_sha256=None,
    )  # fmt: skip
    manifest = ArtifactManifest(
        schema="snapgate.artifact/1", model=FACTS, recipe=recipe,
        target=Target(
            part=soc.part, soc_number=soc.soc_number, htp_arch=soc.htp_arch, vtcm_mb=8, optimization_level=3
        ),
        contexts=(ContextFile(file="a.bin", sha256="", n_bytes=1, graphs=graphs),),
        tools={}, checkpoint_sha256={}, files_sha256={}, quality=(),
    )  # fmt: skip
    (folder / "rope.bin").write_bytes(rope_file_bytes(FACTS, 16))
    return Artifact(folder=folder, manifest=manifest)


def test_a_cache_with_one_scale_everywhere_is_in_order(tmp_path: Path) -> None:
    assert list(artifacts.kv_scales(artifact(tmp_path, graph(4), graph(1)))) == []


def test_kv_scales_are_compared_as_ratios_across_graphs(tmp_path: Path) -> None:
    found = list(artifacts.kv_scales(artifact(tmp_path, graph(4), graph(1, 0.75))))
    assert [finding.tensors for finding in found] == [
        ("past_key_0_in", "past_key_0_in"),
        ("past_key_0_in", "past_key_0_out"),
    ]
    assert found[0].effect == "what one writes the other reads 1.5 times as large"
    assert "as in AR-4: ufixed8 scale 0.5, zero point 128" in found[0].expected


def test_a_rotary_table_of_another_theta_is_found(tmp_path: Path) -> None:
    one = artifact(tmp_path, graph(4))
    assert list(artifacts.rope(one, None)) == []
    (tmp_path / "rope.bin").write_bytes(rope_file_bytes(replace(FACTS, rope_theta=10000.0), 16))
    (finding,) = artifacts.rope(one, None)
    assert "theta 100, as the manifest says" in finding.expected
    assert float(finding.effect.split("up to ")[1].split(";")[0]) > 0.5


def test_a_rotary_table_of_another_length_is_found(tmp_path: Path) -> None:
    one = artifact(tmp_path, graph(4))
    (tmp_path / "rope.bin").write_bytes(rope_file_bytes(FACTS, 8))
    (finding,) = artifacts.rope(one, None)
    assert finding.found.startswith("64 numbers")
    assert finding.expected.startswith("128 numbers")


@pytest.mark.parametrize(
    ("made", "soc", "rules"),
    [
        ({}, "gen3", []),
        ({}, "elite", ["other-arch"]),
        ({"precision": "w4a16-b32", "part": "sd888"}, "sd888", ["arch-floor"]),
        ({"precision": "w4a16", "part": "sd888"}, "sd888", []),
    ],
)
def test_target_and_precision_are_held_against_the_soc(
    tmp_path: Path, made: dict[str, Any], soc: str, rules: list[str]
) -> None:
    found = artifacts.pieces(artifact(tmp_path, graph(4), **made), find_soc(soc))
    assert [finding.rule for finding in found] == rules


@pytest.mark.parametrize("piece", [graph(4, nodes=2), graph(4, cpu=1)])
def test_a_graph_in_pieces_is_found(tmp_path: Path, piece: GraphSpec) -> None:
    assert [f.rule for f in artifacts.pieces(artifact(tmp_path, piece), find_soc("gen3"))] == ["split-graph"]


def shard(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> GraphSpec:
    def tensors(names: tuple[str, ...]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name=name, dtype=DType.UFIXED16, shape=(4,), scale=1.0, zero_point=0) for name in names)

    return replace(graph(4), inputs=tensors(inputs), outputs=tensors(outputs))


def test_the_edges_of_shards_meet(tmp_path: Path) -> None:
    first = shard(("input_ids", "past_key_0_in"), ("handed", "past_key_0_out"))
    second = shard(("handed", "attention_mask"), ("logits",))
    assert list(artifacts.loose_ends(artifact(tmp_path, first, second))) == []


def test_an_output_nobody_reads_and_an_input_nobody_makes_are_named(tmp_path: Path) -> None:
    first = shard(("input_ids", "past_key_0_in", "past_value_0_in"), ("debug", "past_key_0_out"))
    second = shard(("handed",), ("logits", "past_key_1_out"))
    found = {f.tensors[0]: (f.rule, str(f.severity)) for f in artifacts.loose_ends(artifact(tmp_path, first, second))}
    assert found == {
        "past_value_0_in": ("unfed-input", "error"),
        "debug": ("unused-output", "warning"),
        "handed": ("unfed-input", "error"),
        "past_key_1_out": ("unused-output", "warning"),
    }
