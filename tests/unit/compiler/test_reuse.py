from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.compiler.recipe import Plan
from harness.compiler.reuse import find_reusable
from harness.model.checkpoint import Checkpoint, load_checkpoint
from harness.model.perplexity import Corpus, load_corpus
from harness.record.artifact import Artifact
from harness.soc import KvPrecision, Precision, find_soc

pytestmark = pytest.mark.lane("qnn")

TINY_LLAMA = Path(__file__).parents[3] / "models" / "tiny-llama"
PLAN = Plan(
    soc=find_soc("gen3"),
    precision=Precision.FP16,
    kv=None,
    context_length=64,
    prefill_tokens=16,
    rmsnorm="operator",
)


@pytest.fixture(scope="module")
def artifact(prepare_small: Callable[..., Artifact], tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return prepare_small(tmp_path_factory.mktemp("reuse"), precision=Precision.FP16)


def question_about(artifact: Artifact, plan: Plan, heldout: Path) -> dict[str, Any]:
    """What ``prepare`` asks before it would build ``artifact`` again."""
    checkpoint = load_checkpoint(TINY_LLAMA)
    tools = {name: version for name, version in artifact.manifest.tools.items() if name != "qnn_build_id"}
    corpus = load_corpus(heldout, checkpoint.tokenizer_path, checkpoint.facts, context_length=64)
    return {
        "out": artifact.folder.parent,
        "checkpoint": checkpoint,
        "plan": plan,
        "tools": tools,
        "calibration": None,
        "corpus": corpus,
    }


@pytest.fixture
def question(artifact: Artifact, heldout: Path) -> dict[str, Any]:
    return question_about(artifact, PLAN, heldout)


def test_the_artifact_of_the_same_inputs_is_found(artifact: Artifact, question: dict[str, Any]) -> None:
    found = find_reusable(**question)
    assert found is not None
    assert found.manifest == artifact.manifest


@pytest.mark.parametrize(
    "changes",
    [
        {"context_length": 48},
        {"prefill_tokens": 8},
        {"rmsnorm": "basic"},
        {"precision": Precision.W8A16},
        {"soc": find_soc("elite")},
        {"soc": replace(find_soc("gen3"), vtcm_mb=4)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_plan_is_not_served_from_it(question: dict[str, Any], changes: dict[str, Any]) -> None:
    assert find_reusable(**{**question, "plan": replace(PLAN, **changes)}) is None


def test_another_checkpoint_is_not_served_from_it(question: dict[str, Any]) -> None:
    checkpoint: Checkpoint = question["checkpoint"]
    other = replace(checkpoint, sha256={**checkpoint.sha256, "model.safetensors": "0" * 64})
    assert find_reusable(**{**question, "checkpoint": other}) is None


def test_another_tool_version_is_not_served_from_it(question: dict[str, Any]) -> None:
    assert find_reusable(**{**question, "tools": {**question["tools"], "onnxruntime": "0.0.1"}}) is None


def test_another_held_out_text_is_not_served_from_it(question: dict[str, Any]) -> None:
    corpus: Corpus = question["corpus"]
    assert find_reusable(**{**question, "corpus": replace(corpus, sha256="0" * 64)}) is None
    assert find_reusable(**{**question, "corpus": None}) is None


def test_a_damaged_artifact_is_not_taken(artifact: Artifact, question: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / artifact.folder.name
    shutil.copytree(artifact.folder, copy)
    assert find_reusable(**{**question, "out": tmp_path}) is not None
    (copy / "ar1.bin").write_bytes(b"damage")
    assert find_reusable(**{**question, "out": tmp_path}) is None


def test_a_kv_precision_that_was_asked_for_is_not_served_from_another(
    prepare_small: Callable[..., Artifact], heldout: Path, tmp_path: Path
) -> None:
    kv16 = prepare_small(tmp_path, kv=KvPrecision.KV16)
    _, graph = kv16.manifest.graph(1)
    assert kv16.folder.name == "tiny-llama-w8a16-kv16-SM8650"
    assert {str(t.dtype) for t in graph.inputs if t.name.startswith("past_")} == {"sfixed16"}

    def found(kv: KvPrecision | None) -> Artifact | None:
        return find_reusable(**question_about(kv16, replace(PLAN, precision=Precision.W8A16, kv=kv), heldout))

    assert found(KvPrecision.KV16) is not None
    assert found(KvPrecision.KV8) is None
    assert found(None) is None
