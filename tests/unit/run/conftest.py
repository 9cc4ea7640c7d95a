"""A small artifact for tests of the run room: two files, one graph, 512 places of context, 1024 token ids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.artifact import (
    ARTIFACT_SCHEMA,
    Artifact,
    ArtifactManifest,
    ContextFile,
    GraphSpec,
    ModelFacts,
    Recipe,
    Target,
)
from harness.soc import KvPrecision, Precision

CONTEXT_BYTES = b"context binary"
ROPE_BYTES = b"rope table"


def make_artifact(folder: Path, *, part: str = "SM8650", soc_number: int = 57, htp_arch: int = 75) -> Artifact:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ar1.bin").write_bytes(CONTEXT_BYTES)
    (folder / "rope.bin").write_bytes(ROPE_BYTES)
    sha = hashlib.sha256(CONTEXT_BYTES).hexdigest()
    graph = GraphSpec(name="g", n_tokens=1, inputs=(), outputs=(), epcontext_nodes=1, cpu_nodes=0)
    manifest = ArtifactManifest(
        schema=ARTIFACT_SCHEMA,
        model=ModelFacts(
            name="tiny",
            architecture="LlamaForCausalLM",
            n_layers=4,
            hidden_size=192,
            intermediate_size=512,
            n_heads=6,
            n_kv_heads=2,
            head_dim=32,
            vocab_size=1024,
            max_context=512,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
            tied_embeddings=True,
            bos_id=1,
            eos_ids=(2,),
            n_parameters=1_800_000,
        ),
        recipe=Recipe(
            precision=Precision.FP16,
            kv=KvPrecision.KVFP16,
            context_length=512,
            prefill_tokens=64,
            rmsnorm="basic",
            mask_value=-100.0,
            calibration_method=None,
            calibration_samples=None,
            calibration_tokens=None,
            calibration_text_sha256=None,
        ),
        target=Target(part=part, soc_number=soc_number, htp_arch=htp_arch, vtcm_mb=8, optimization_level=3),
        contexts=(ContextFile(file="ar1.bin", sha256=sha, n_bytes=len(CONTEXT_BYTES), graphs=(graph,)),),
        tools={},
        checkpoint_sha256={},
        files_sha256={"ar1.bin": sha, "rope.bin": hashlib.sha256(ROPE_BYTES).hexdigest()},
        quality=(),
    )
    return Artifact(folder=folder, manifest=manifest)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "artifact")


@pytest.fixture
def artifact_for(tmp_path: Path) -> Callable[..., Artifact]:
    return lambda **target: make_artifact(tmp_path / "other", **target)
