"""Prefill and decode in one binary: with weights of their own, which runs here; shared, which only a phone loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.compiler.execute import emulated_decoder, run_context
from harness.compiler.libraries import library_folder
from harness.compiler.metadata import read_binary
from harness.errors import CompileError, HostError
from harness.record.artifact import Artifact
from harness.soc import KvPrecision

pytestmark = [pytest.mark.slow, pytest.mark.lane("qnn"), pytest.mark.lane("runner")]

Prepare = Callable[..., Artifact]
PROMPT = (0, 300, 301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313, 314)
"""16 tokens: a whole chunk."""


@pytest.fixture(scope="module")
def made(prepare_small: Prepare, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Into one folder: all stages but the compiles are shared."""
    out = tmp_path_factory.mktemp("contexts")
    found = {}
    for contexts in ("separate", "one", "shared"):
        artifact = prepare_small(out, contexts=contexts, kv=KvPrecision.KV8)
        moved = artifact.folder.rename(out / f"kept-{contexts}")
        found[contexts] = Artifact(folder=moved, manifest=artifact.manifest)
    return found


def test_both_graphs_lie_in_one_binary(made: dict[str, Artifact]) -> None:
    sizes = {}
    for contexts, files in (("separate", 2), ("one", 1), ("shared", 1)):
        manifest = made[contexts].manifest
        assert manifest.recipe.contexts == contexts
        assert len(manifest.contexts) == files
        graphs = [graph for context in manifest.contexts for graph in context.graphs]
        assert [(g.n_tokens, g.epcontext_nodes, g.cpu_nodes) for g in graphs] == [(16, 1, 0), (1, 1, 0)]
        assert len({graph.name for graph in graphs}) == 2
        sizes[contexts] = sum(context.n_bytes for context in manifest.contexts)
    # Weights of its own: as large as both. One set of weights: hardly larger than the larger.
    assert sizes["one"] == pytest.approx(sizes["separate"], rel=0.03)
    assert sizes["shared"] < 0.6 * sizes["separate"]


@pytest.mark.parametrize("contexts", ["one", "shared"])
def test_the_library_reads_the_same_edges_out_of_the_binary(made: dict[str, Artifact], contexts: str) -> None:
    artifact = made[contexts]
    (context,) = artifact.manifest.contexts
    facts = read_binary(artifact.path(context.file), library_folder() / "libQnnSystem.so")
    assert (facts.soc_number, facts.htp_arch) == (57, 75)
    read = {graph.name: {t.name: t for t in (*graph.inputs, *graph.outputs)} for graph in facts.graphs}
    apart = {graph.n_tokens: graph for c in made["separate"].manifest.contexts for graph in c.graphs}
    for graph in context.graphs:
        assert read[graph.name] == {t.name: t for t in (*graph.inputs, *graph.outputs)}
        assert (graph.inputs, graph.outputs) == (apart[graph.n_tokens].inputs, apart[graph.n_tokens].outputs)


def test_two_graphs_in_one_context_compute_what_they_compute_apart(made: dict[str, Artifact]) -> None:
    rows = []
    for contexts in ("separate", "one"):
        decoder = emulated_decoder(made[contexts])
        rows.append(np.concatenate([decoder.extend(PROMPT), decoder.extend((5,), step_with="token")]))
    assert len(np.unique(rows[0][:, :50], axis=0)) == 17
    assert np.array_equal(*rows)


def test_shared_weights_do_not_load_here_and_that_is_said_before_it_is_tried(made: dict[str, Artifact]) -> None:
    artifact = made["shared"]
    with pytest.raises(CompileError, match="does not load on the HTP emulator"):
        emulated_decoder(artifact)
    context, graph = artifact.manifest.graph(1)
    decoder = emulated_decoder(made["one"])
    feed = {t.name: np.zeros(t.shape, np.int32) for t in graph.inputs}
    with pytest.raises(CompileError, match=r"executing .* failed"):  # if this passes one day, the refusal can go
        run_context(artifact.path(context.file), graph, [feed])
    assert decoder.n_cached == 0


def test_one_context_has_equal_bytes_when_it_is_made_again(
    made: dict[str, Artifact], prepare_small: Prepare, tmp_path: Path
) -> None:
    said: list[str] = []
    again = prepare_small(tmp_path, contexts="one", kv=KvPrecision.KV8, progress=said.append)
    assert [c.sha256 for c in again.manifest.contexts] == [c.sha256 for c in made["one"].manifest.contexts]
    assert sum(line.startswith("compiling AR-16 and AR-1 for SM8650") for line in said) == 1


def test_a_library_that_is_not_built_is_named(
    prepare_small: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPGATE_BUILD", str(tmp_path / "nowhere"))
    with pytest.raises(HostError, match="need a library that is not built"):  # before any work is done
        prepare_small(tmp_path / "out", warm=False, contexts="one")
    assert not (tmp_path / "out").exists()
