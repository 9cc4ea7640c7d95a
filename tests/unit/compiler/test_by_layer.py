"""A model prepared layer by layer: the same binaries, and on disk never more than a layer's floats and a shard."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.compiler.by_layer import bundled_text
from harness.compiler.prepare import prepare
from harness.compiler.recipe import LARGE_PARAMETERS, Plan, check_plan, is_by_layer
from harness.errors import ArtifactError, CompileError, UserError
from harness.lint.run import lint
from harness.model.checkpoint import load_checkpoint
from harness.model.encodings_file import read_encodings
from harness.model.reference import load_reference
from harness.record.artifact import Artifact, load_artifact
from harness.record.comparison import Leg
from harness.soc import KvPrecision, Precision, find_soc

pytestmark = pytest.mark.lane("qnn")

TINY_LLAMA = Path(__file__).parents[3] / "models" / "tiny-llama"
Make = Callable[..., Artifact]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The bundled model without its held-out text, in two shards, calibrated on a page."""
    folder = tmp_path_factory.mktemp("by-layer")
    model, text = folder / "tiny", folder / "page.txt"
    shutil.copytree(TINY_LLAMA, model, ignore=shutil.ignore_patterns("heldout.txt"))
    text.write_text(bundled_text().read_text(encoding="utf-8")[:1500], encoding="utf-8")

    def run(out: Path, *, precision: Precision = Precision.W8A16, **changes: object) -> Artifact:
        fp16 = precision is Precision.FP16
        options = {
            "kv": None if fp16 else KvPrecision.KV8,
            "calibration": None if fp16 else text,
            "build": "by-layer",
            "shards": 2,
            **changes,
        }
        return prepare(model, soc=find_soc("gen3"), precision=precision, context=64, prefill=16, out=out, **options)  # type: ignore[arg-type]

    return run


def stages(out: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[0] for path in (out / ".stages").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "shards"), [("w8a16", 2), ("fp16", 1)])
def test_binaries_are_those_of_the_whole_preparation_byte_for_byte(
    make: Make, tmp_path: Path, precision: str, shards: int
) -> None:
    said: list[str] = []
    whole, made = (
        make(tmp_path / build, build=build, precision=Precision(precision), shards=shards, progress=said.append)
        for build in ("whole", "by-layer")
    )
    assert [context.sha256 for context in made.manifest.contexts] == [c.sha256 for c in whole.manifest.contexts]
    assert made.manifest.contexts == whole.manifest.contexts
    assert made.manifest.recipe == whole.manifest.recipe
    if shards == 2:  # the second shard is quantised while the first is compiled
        second, compiled = (
            max(index for index, line in enumerate(said) if line.startswith(beginning))
            for beginning in ("shard 2 of 2, AR-16", "compile ar1_shard1")
        )
        assert second < compiled


@pytest.mark.slow
def test_shared_weights_are_checked_by_the_graphs_that_the_emulator_can_afford(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.compiler.shard_binaries.MAX_CHECKED_WORK", 0)
    said: list[str] = []
    options = {"precision": Precision.W4A16_B32, "contexts": "shared", "shards": 1}
    artifact = make(tmp_path / "made", progress=said.append, **options)
    notes = [line for line in said if "the emulator" in line]
    assert notes[0] == ("note: AR-16 of shard 1 is not run on the emulator, where it would take 0 minutes or so")
    assert notes[1] == "running AR-1 of shard 1 on the emulator beside the CPU"
    assert float(notes[2].split()[-4]) > 0.99  # "... correlate with the CPU's to 0.9999 at the least"
    assert len(artifact.manifest.contexts) == 1
    assert not [name for name in stages(tmp_path / "made") if name.startswith("compile-ar")]

    monkeypatch.setattr("harness.compiler.shard_binaries.MIN_CORRELATION", 2.0)
    shutil.rmtree(artifact.folder)
    with pytest.raises(CompileError, match="shard 1 does not compute on the HTP what it computes on the CPU"):
        make(tmp_path / "made", **options)


def test_an_interrupted_one_goes_on_and_nothing_large_stays(make: Make, tmp_path: Path) -> None:
    """Stopped between two layers, then between two graphs of the second shard."""
    seen: list[list[str]] = []

    def stop_at(beginning: str) -> Callable[[str], None]:
        def progress(line: str) -> None:
            if line.startswith(beginning):
                raise KeyboardInterrupt

        return progress

    for beginning in ("ranges of layer 3 of 4", "compiling AR-1, shard 2 of 2"):
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, progress=stop_at(beginning))
        seen.append(stages(tmp_path))
    assert seen[0] == ["layer-1-ranges", "layer-2-ranges", "layer-2-states"]
    ranges = [f"layer-{layer}-ranges" for layer in (1, 2, 3, 4)]
    compiled = ["compile-ar16_shard1", "compile-ar16_shard2", "compile-ar1_shard1"]
    assert seen[1] == [*compiled, *ranges, "quantised-shard-2"]

    said: list[str] = []
    artifact = make(tmp_path, progress=said.append)
    again = [line.partition(":")[0] for line in said if line.endswith("finished before, taken as it is")]
    finished = [*(name.replace("-", " ", 2) for name in ranges), "compile ar16_shard1", "compile ar1_shard1"]
    assert again == [*finished, "compile ar16_shard2", "quantised shard 2"]
    assert stages(tmp_path) == [*compiled, "compile-ar1_shard2", "encodings", *ranges]
    assert not list((tmp_path / ".stages").rglob("*.data"))
    for context in artifact.manifest.contexts:
        assert artifact.path(context.file).stat().st_nlink == 2  # of the stage and of the artifact: once on disk

    _check_what_it_is(artifact)
    said.clear()
    assert make(tmp_path, progress=said.append).manifest == artifact.manifest
    assert said[-1].endswith("taken as it is")


def _check_what_it_is(artifact: Artifact) -> None:
    assert load_artifact(artifact.folder).manifest == artifact.manifest
    assert not [name for name in artifact.manifest.files_sha256 if name.startswith("reference/")]
    assert (artifact.manifest.quality, artifact.manifest.accuracy) == ((), None)
    with pytest.raises(ArtifactError, match=r"holds no fp32 reference graph.*--build whole"):
        load_reference(artifact, Leg.FP32)
    encodings = read_encodings(artifact.path("encodings.json"))
    assert {"logits", "layer3_after_feed_forward"} <= {encoding.name for encoding in encodings.activations}
    assert not encodings.parameters
    assert [f.rule for f in lint(artifact.folder, find_soc("gen3"))] == ["no-graphs"]


def test_damaged_states_are_made_again_from_the_first_layer_on(make: Make, tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("ranges of layer 3 of 4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, progress=stop)
    (states,) = (tmp_path / ".stages").glob("layer-2-states-*/text0.npy")
    states.write_bytes(states.read_bytes()[:-1] + b"!")
    said: list[str] = []

    def stop_later(line: str) -> None:
        said.append(line)
        if line.startswith("shard 1 of 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, progress=stop_later)
    assert [line for line in said if line.startswith("ranges of")] == [
        f"ranges of layer {n} of 4" for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "gptq", "precision": Precision.W4A16}, r"--weights gptq needs the whole model at once"),
        ({"overrides": Path("e.json")}, r"--overrides e.json needs the whole model at once.*about 0.0 GB of memory"),
        ({"build": "half"}, r"unknown way to build"),
    ],
)
def test_what_needs_the_whole_model_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    plan = Plan(
        soc=find_soc("gen3"), precision=Precision.W8A16, kv=None, context_length=64, prefill_tokens=16, build="by-layer"
    )
    with pytest.raises(UserError, match=message):
        check_plan(replace(plan, **changes), load_checkpoint(TINY_LLAMA).facts)  # type: ignore[arg-type]


def test_held_out_text_is_refused_where_it_would_not_be_used(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="perplexity of a model that is prepared layer by layer is not measured"):
        make(tmp_path, heldout=bundled_text())


def test_large_models_go_layer_by_layer_unless_asked_otherwise() -> None:
    facts = load_checkpoint(TINY_LLAMA).facts
    large = replace(facts, n_parameters=LARGE_PARAMETERS)
    plan = Plan(soc=find_soc("gen3"), precision=Precision.W8A16, kv=None, context_length=64, prefill_tokens=16)
    assert [is_by_layer(plan, each) for each in (facts, large)] == [False, True]
    assert [is_by_layer(replace(plan, build="whole"), each) for each in (facts, large)] == [False, False]
