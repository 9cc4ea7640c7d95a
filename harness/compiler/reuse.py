"""An artifact that is already there and would come out the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from harness.compiler.recipe import (
    FORMS,
    KV_CHOICES,
    Plan,
    choose_kv,
    is_by_layer,
    overrides_sha256,
    recorded_weights,
    shard_cuts,
)
from harness.errors import UserError
from harness.model.checkpoint import Checkpoint
from harness.model.form import Refused
from harness.model.perplexity import Corpus
from harness.model.recipes import mask_value
from harness.model.reference import reference_file
from harness.record.artifact import Artifact, ArtifactManifest, load_artifact, sha256_of
from harness.record.comparison import Leg


def find_reusable(
    out: Path,
    checkpoint: Checkpoint,
    plan: Plan,
    *,
    tools: Mapping[str, str],
    calibration: Path | None,
    corpus: Corpus | None,
    hash_of: Callable[[Path], str] = sha256_of,
) -> Artifact | None:
    """An undamaged artifact below ``out`` made from this checkpoint, plan, texts and tool versions, if there is one."""
    for kv in KV_CHOICES[plan.precision]:
        folder = out / f"{checkpoint.facts.name}-{plan.precision}-{kv}-{plan.soc.part}"
        try:
            artifact = load_artifact(folder, hash_of=hash_of)
        except UserError:
            continue
        if _same(artifact.manifest, checkpoint, plan, tools, calibration, corpus):
            return artifact
    return None


def _same(
    manifest: ArtifactManifest,
    checkpoint: Checkpoint,
    plan: Plan,
    tools: Mapping[str, str],
    calibration: Path | None,
    corpus: Corpus | None,
) -> bool:
    recipe = manifest.recipe
    text_as_asked = (
        recipe.calibration_text_sha256 == sha256_of(calibration)
        if calibration is not None
        else recipe.calibration_method is None or "self-generated" in recipe.calibration_method
    )
    by_layer = is_by_layer(plan, checkpoint.facts)
    measured = {str(kv) for kv in ((recipe.kv,) if by_layer else plan.kv_candidates)}
    return (
        text_as_asked
        and manifest.checkpoint_sha256 == checkpoint.sha256
        and manifest.model == checkpoint.facts
        and {name: manifest.tools.get(name) for name in tools} == dict(tools)
        and (manifest.target.part, manifest.target.vtcm_mb) == (plan.soc.part, plan.soc.vtcm_mb)
        and (recipe.precision, recipe.context_length, recipe.prefill_tokens, recipe.mask_value)
        == (plan.precision, plan.context_length, plan.prefill_tokens, mask_value(plan.precision))
        and recipe.other_prefill_tokens == plan.other_prefill_tokens
        and all(getattr(recipe, field) == getattr(plan, field) for field in FORMS)
        and recipe.weights == recorded_weights(plan)
        and (reference_file(Leg.FP32, 1) in manifest.files_sha256) != by_layer
        and recipe.overrides_sha256 == overrides_sha256(plan)
        and {figure.corpus_sha256 for figure in manifest.quality} == ({corpus.sha256} if corpus is not None else set())
        and (corpus is None or measured <= {figure.graph for figure in manifest.quality})
        and recipe.kv == choose_kv(plan, manifest.quality)[0]
        and (plan.refused == Refused.CPU or manifest.n_shards == len(shard_cuts(plan, checkpoint.facts)) + 1)
    )
