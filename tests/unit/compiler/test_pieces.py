"""``--refused cpu``: HTP | CPU | HTP, from the cut to what the artifact says and computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.compiler import pieces
from harness.compiler.execute import emulated_decoder
from harness.compiler.operators import inspect_operators
from harness.errors import ArtifactError, UserError
from harness.model.reference import load_reference
from harness.record.artifact import Artifact
from harness.record.comparison import Leg
from harness.record.job import Prompt
from harness.run.workload import Workload, check_workload
from harness.soc import KvPrecision

Prepare = Callable[..., Artifact]
TOKENS = list(range(300, 318))


def refuse_softmax_of_layer_1(model: Path, soc: Any, **options: Any) -> Any:
    """What the library says of a graph it takes whole, but for one operator: no SoC of the catalogue refuses one."""
    report = inspect_operators(model, soc, **options)
    assert not report.refused
    nodes = [
        replace(node, taken=False, reason="not today") if node.op == "Softmax" and "1" in node.name else node
        for node in report.nodes
    ]
    assert sum(not node.taken for node in nodes) == 1
    return replace(report, nodes=tuple(nodes))


@pytest.mark.slow
@pytest.mark.lane("qnn")
def test_a_model_with_one_operator_on_the_cpu(
    prepare_small: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    whole = prepare_small(out, kv=KvPrecision.KV8, refused="cpu")
    assert [context.on_cpu for context in whole.manifest.contexts] == [(), ()]
    whole = Artifact(folder=whole.folder.rename(tmp_path / "whole"), manifest=whole.manifest)
    (out / ".prepared.json").unlink()
    for stage in (out / ".stages").glob("pieces-*"):
        stage.rename(tmp_path / stage.name)
    monkeypatch.setattr(pieces, "inspect_operators", refuse_softmax_of_layer_1)
    cut = prepare_small(out, kv=KvPrecision.KV8, refused="cpu")
    for n_tokens in (16, 1):
        chain = cut.manifest.chain(n_tokens)
        assert [graph.epcontext_nodes for _, graph in chain] == [1, 0, 1]
        assert [graph.cpu_nodes > 0 for _, graph in chain] == [False, True, False]
        assert [len(context.on_cpu) for context, _ in chain] == [0, 1, 0]
        assert chain[1][0].on_cpu[0].startswith("Softmax (")
        assert chain[1][0].on_cpu[0].endswith("): not today")
        assert chain[1][0].file == f"reference/graph_ar{n_tokens}_shard2.onnx"
        edges = (*chain[1][1].inputs, *chain[1][1].outputs)
        assert all(tensor.scale is not None for tensor in edges), "quantised values pass as integers"
    reference, emulated = (load_reference(cut, Leg.GRAPH), emulated_decoder(cut))
    np.testing.assert_array_equal(
        reference.extend(TOKENS), load_reference(whole, Leg.GRAPH).extend(TOKENS), err_msg="the CPU computes the same"
    )
    ours, theirs = emulated.extend(TOKENS), emulated_decoder(whole).extend(TOKENS)
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.argmax(axis=-1), theirs.argmax(axis=-1))
    assert "Softmax" in str(cut.manifest.runner_lacks)
    prompt = Prompt(prompt_id="p", mode="generate", tokens=(300,), n_gen=1)
    with pytest.raises(ArtifactError, match="native runner does not run"):
        check_workload(Workload(name="w", prompts=(prompt,)), cut.manifest)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"contexts": "one"}, "--contexts one"),
        ({"contexts": "shared"}, "--contexts shared"),
        ({"shards": 2}, "2 shards"),
        ({"build": "by-layer"}, "--refused cpu"),
    ],
)
def test_what_does_not_go_with_cuts_is_refused(
    prepare_small: Prepare, tmp_path: Path, options: dict[str, Any], what: str
) -> None:
    with pytest.raises(UserError) as error:
        prepare_small(tmp_path / "out", refused="cpu", warm=False, **options)
    assert what in f"{error.value.what} {error.value.found}"
