"""A model prepared layer by layer: the same binaries, and on disk never more than a layer's floats and a shard."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

from harness.compiler.by_layer import bundled_text
from harness.compiler.layer_quality import MAX_WINDOWS, LayerQuality
from harness.compiler.prepare import prepare
from harness.compiler.recipe import LARGE_PARAMETERS, Plan, check_plan, is_by_layer
from harness.compiler.stages import Meter, Stages
from harness.errors import ArtifactError, CompileError, UserError
from harness.lint.run import lint
from harness.model.checkpoint import load_checkpoint
from harness.model.encodings_file import read_encodings
from harness.model.perplexity import Corpus
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


@pytest.fixture(scope="module")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some windows of it."""
    path = tmp_path_factory.mktemp("text") / "heldout.txt"
    path.write_text((TINY_LLAMA / "heldout.txt").read_text(encoding="utf-8")[:2500], encoding="utf-8")
    return path


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "options"),
    [
        (Precision.W8A16, {"logits": "last"}),
        (Precision.W4A16_B32, {"weights": "gptq", "embeddings": "host"}),
        (Precision.FP16, {}),
    ],
    ids=str,
)
def test_quality_and_gptq_weights_are_those_of_the_whole_preparation(
    make: Make, tmp_path: Path, heldout: Path, precision: Precision, options: dict[str, object]
) -> None:
    whole, made = (
        make(tmp_path / build, build=build, precision=precision, heldout=heldout, **options)
        for build in ("whole", "by-layer")
    )
    assert [context.sha256 for context in made.manifest.contexts] == [c.sha256 for c in whole.manifest.contexts]
    floats, graph = made.manifest.quality
    assert [floats.graph, graph.graph] == ["fp32", str(made.manifest.recipe.kv)]
    assert 5 < floats.n_windows < MAX_WINDOWS
    assert floats.n_scored_tokens == floats.n_windows * 63
    for figure, expected in zip((floats, graph), whole.manifest.quality, strict=True):
        assert figure.window_nll == pytest.approx(expected.window_nll, rel=1e-6)
        assert figure.perplexity == pytest.approx(math.exp(sum(figure.window_nll) / figure.n_scored_tokens))
    accuracy, expected_accuracy = made.manifest.accuracy, whole.manifest.accuracy
    assert accuracy is not None
    assert expected_accuracy is not None
    assert len(accuracy.layer_snr_db) == 4
    assert accuracy.layer_snr_db == pytest.approx(expected_accuracy.layer_snr_db, abs=0.01)
    assert accuracy.logits_snr_db == pytest.approx(expected_accuracy.logits_snr_db, abs=0.01)
    assert accuracy.n_positions == expected_accuracy.n_positions == 2 * 64
    assert accuracy.top1_agreement == expected_accuracy.top1_agreement


@pytest.mark.slow
def test_held_out_text_passes_the_floats_once_for_all_precisions_and_goes_on_after_an_interruption(
    make: Make, tmp_path: Path, heldout: Path
) -> None:
    def stop_at(beginning: str) -> Callable[[str], None]:
        def progress(line: str) -> None:
            if line.startswith(beginning):
                raise KeyboardInterrupt

        return progress

    options = {"heldout": heldout}
    for beginning in ("held-out text through the floats of layer 2", "held-out text through the graph of shard 2"):
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, progress=stop_at(beginning), **options)
    said: list[str] = []
    artifact = make(tmp_path, progress=said.append, **options)
    assert not [
        line for line in said if line.startswith(("held-out text through the floats", "ranges of", "compiling"))
    ]
    through = [line for line in said if line.startswith("held-out text through the graph")]
    assert [line.partition(":")[0] for line in through] == ["held-out text through the graph of shard 2"] * len(through)
    assert len(through) == artifact.manifest.quality[1].n_windows > 5
    for beginning in ("perplexity of fp32: ", "perplexity of kv8: "):
        assert [line for line in said if line.startswith(beginning)]
    assert artifact.manifest.accuracy is not None

    said.clear()
    other = make(tmp_path, precision=Precision.W4A16, progress=said.append, **options)
    assert not [line for line in said if line.startswith(("held-out text through the floats", "ranges of"))]
    assert other.manifest.quality[0] == artifact.manifest.quality[0]
    assert other.manifest.quality[1].perplexity != artifact.manifest.quality[1].perplexity


def test_windows_are_as_many_as_a_large_model_affords_and_end_where_its_steps_do(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(TINY_LLAMA)
    plan = Plan(soc=find_soc("gen3"), precision=Precision.W8A16, kv=None, context_length=2048, prefill_tokens=128)
    meter = Meter(progress=lambda _: None)
    stages = Stages(tmp_path, meter)

    def windows(n_parameters: int, length: int, **changes: int) -> list[int]:
        quality = LayerQuality(
            facts=replace(checkpoint.facts, n_parameters=n_parameters),
            plan=replace(plan, **changes),  # type: ignore[arg-type]
            corpus=Corpus(sha256="", windows=((5,) * length,) * 104),
            base={},
            embeddings=None,
            stages=stages,
            progress=lambda _: None,
        )
        return [len(window) for window in quality.windows]

    assert windows(7_000_000_000, 256) == [256] * 3  # 7e12 / 256 / 7e9 = 3.9
    assert windows(70_000_000_000, 256) == [256] * 2
    assert windows(1_000_000, 256) == [256] * 32
    assert windows(1_000_000, 200, context_length=200) == [128] * 32  # a second step would end at 256
    assert windows(1_000_000, 200, context_length=256) == [200] * 32


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


def test_large_models_go_layer_by_layer_unless_asked_otherwise() -> None:
    facts = load_checkpoint(TINY_LLAMA).facts
    large = replace(facts, n_parameters=LARGE_PARAMETERS)
    plan = Plan(soc=find_soc("gen3"), precision=Precision.W8A16, kv=None, context_length=64, prefill_tokens=16)
    assert [is_by_layer(plan, each) for each in (facts, large)] == [False, True]
    assert [is_by_layer(replace(plan, build="whole"), each) for each in (facts, large)] == [False, False]
