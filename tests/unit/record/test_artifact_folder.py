"""Reading an artifact folder: whole and of this schema, or not at all."""

from __future__ import annotations

import dataclasses
import json

import pytest

from harness.errors import ArtifactError, UserError
from harness.record.artifact import (
    ARTIFACT_SCHEMA,
    Artifact,
    ArtifactManifest,
    ContextFile,
    GraphSpec,
    ModelFacts,
    Recipe,
    Target,
    TensorSpec,
    load_artifact,
    sha256_of,
)
from harness.record.codec import write_json
from harness.record.vocabulary import DType
from harness.soc import KvPrecision, Precision

TENSOR = TensorSpec(name="logits", dtype=DType.UFIXED16, shape=(1, 64, 1024), scale=0.001, zero_point=5)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ar64.bin").write_bytes(b"context")
    (tmp_path / "rope.bin").write_bytes(b"rope")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    hashes = {path.name: sha256_of(path) for path in tmp_path.iterdir()}
    graphs = tuple(
        GraphSpec(name=f"ar{n}", n_tokens=n, inputs=(), outputs=(TENSOR,), epcontext_nodes=1, cpu_nodes=0)
        for n in (64, 1)
    )
    manifest = ArtifactManifest(
        schema=ARTIFACT_SCHEMA,
        model=ModelFacts(
            name="tiny", architecture="LlamaForCausalLM", n_layers=1, hidden_size=8, intermediate_size=16, n_heads=2,
            n_kv_heads=1, head_dim=4, vocab_size=32, max_context=128, rope_theta=1e4, rms_norm_eps=1e-5,
            tied_embeddings=True, bos_id=1, eos_ids=(2,), n_parameters=100,
        ),
        recipe=Recipe(
            precision=Precision.W8A16, kv=KvPrecision.KV8, context_length=128, prefill_tokens=64, rmsnorm="operator",
            mask_value=-50.0, calibration_method=None, calibration_samples=None, calibration_tokens=None,
            calibration_text_sha256=None,
        ),
        target=Target(part="SM8650", soc_number=57, htp_arch=75, vtcm_mb=8, optimization_level=3),
        contexts=(ContextFile(file="ar64.bin", sha256=hashes["ar64.bin"], n_bytes=7, graphs=graphs),),
        tools={},
        checkpoint_sha256={},
        files_sha256=hashes,
        quality=(),
    )  # fmt: skip
    write_json(tmp_path / "manifest.json", manifest)
    return tmp_path


def test_a_whole_artifact_is_read(folder):
    artifact = load_artifact(folder)
    assert artifact.manifest.name == "tiny-w8a16-kv8-SM8650"
    assert artifact.manifest.graph(64)[1].outputs[0].n_bytes == 1 * 64 * 1024 * 2
    assert artifact.path("ar64.bin").read_bytes() == b"context"


def test_the_id_depends_on_every_field_of_the_manifest(folder):
    manifest = load_artifact(folder).manifest
    assert len(manifest.artifact_id) == 16
    assert load_artifact(folder).manifest.artifact_id == manifest.artifact_id
    assert dataclasses.replace(manifest, tools={"x": "1"}).artifact_id != manifest.artifact_id


def test_fields_that_came_later_leave_the_id_of_an_older_artifact_as_it_was(folder):
    """The constant is the id at the time of writing; the runs of a journal name their artifact by it."""
    assert load_artifact(folder).manifest.artifact_id == "15903b56299ac06e"
    raw = json.loads((folder / "manifest.json").read_text())
    older = {key: value for key, value in raw.items() if key not in ("accuracy", "notes")}
    required = {field.name for field in dataclasses.fields(Recipe) if field.default is dataclasses.MISSING}
    older["recipe"] = {key: value for key, value in raw["recipe"].items() if key in required}
    assert len(older["recipe"]) < len(raw["recipe"])
    (folder / "manifest.json").write_text(json.dumps(older))
    assert load_artifact(folder).manifest.artifact_id == "15903b56299ac06e"


def test_one_changed_byte_is_found_unless_verification_is_off(folder):
    (folder / "ar64.bin").write_bytes(b"contexT")
    with pytest.raises(ArtifactError, match=r"ar64\.bin is damaged"):
        load_artifact(folder)
    assert load_artifact(folder, verify=False).manifest.model.name == "tiny"


def test_a_missing_file_is_found(folder):
    (folder / "ar64.bin").unlink()
    with pytest.raises(ArtifactError, match="no such file"):
        load_artifact(folder)


def test_a_folder_without_a_manifest_and_a_manifest_of_another_schema_are_refused(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match=r"no manifest\.json"):
        load_artifact(tmp_path / "empty")
    manifest = load_artifact(folder).manifest
    write_json(folder / "manifest.json", dataclasses.replace(manifest, schema="snapgate.artifact/9"))
    with pytest.raises(ArtifactError, match="another schema"):
        load_artifact(folder)


def test_a_damaged_manifest_is_refused(folder):
    (folder / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json"):
        load_artifact(folder)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret"])
def test_a_path_that_leaves_the_folder_is_refused(folder, path):
    artifact = Artifact(folder=folder, manifest=load_artifact(folder).manifest)
    with pytest.raises(ArtifactError, match="outside itself"):
        artifact.path(path)


def test_a_graph_that_is_not_there_is_named_with_those_that_are(folder):
    with pytest.raises(ArtifactError, match=r"no AR-32 graph.*\[1, 64\]"):
        load_artifact(folder).manifest.graph(32)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: m["target"].update(htp_arch=79), r"found: SM8650, HTP v79; expected: SM8650, HTP v75"),
        (lambda m: m["target"].update(part="SM8750"), r"found: SM8750, HTP v75; expected: SM8750, HTP v79"),
        (lambda m: m["target"].update(part="SM1"), r"no known SoC.*found: SM1, HTP v75"),
        (lambda m: m["recipe"].update(context_length=256), r"contradict each other; found: 64, 256, 128"),
        (lambda m: m["recipe"].update(prefill_tokens=0), r"contradict each other; found: 0, 128, 128"),
        (lambda m: m["recipe"].update(prefill_tokens=32), r"no AR-32 graph"),
        (lambda m: m.update(contexts=[]), r"no AR-(1|64) graph; found: \[\]"),
        (lambda m: m["contexts"][0].update(sha256="0" * 64), r"ar64\.bin does not go by one hash; found: 0000"),
        (lambda m: m["contexts"][0].update(file="../other.bin"), r"\.\./other\.bin does not go by one hash"),
        (lambda m: m["files_sha256"].pop("ar64.bin"), r"ar64\.bin does not go by one hash.*not listed"),
        (lambda m: m["files_sha256"].pop("rope.bin"), r"rope\.bin has no hash"),
        (lambda m: m["files_sha256"].pop("tokenizer.json"), r"tokenizer\.json has no hash"),
        (lambda m: m["files_sha256"].update({"../x": "0"}), r"names a file outside itself; found: \.\./x"),
        (lambda m: m.update(schema="snapgate.artifact/2", later=1), r"another schema; found: 'snapgate\.artifact/2'"),
    ],
)
def test_an_edited_manifest_is_refused_by_name(folder, edit, words):
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=f"{words}.*next step: prepare the artifact again"):
        load_artifact(folder)


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 100_000])
def test_a_manifest_that_is_no_json_object_is_refused_with_the_next_step(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json .*found: .*expected: .*next step: "):
        load_artifact(folder)
