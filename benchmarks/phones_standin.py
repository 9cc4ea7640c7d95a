"""A model that the stand-in QNN library computes, as an artifact: whole runs on a virtual phone take seconds."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from harness.device.store import StoredFile
from harness.record.artifact import ARTIFACT_SCHEMA, Artifact, ArtifactManifest, ContextFile, ModelFacts, Recipe, Target
from harness.record.job import Prompt
from harness.run.libraries import RuntimeFiles
from harness.soc import KvPrecision, Precision

_RUNTIME = Path(__file__).resolve().parents[1] / "tests" / "runtime" / "conftest.py"


def _runtime_tests() -> ModuleType:
    """The builds and the stand-in model of the runner's own tests."""
    name = "snapgate_runtime_tests"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _RUNTIME)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(_RUNTIME)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@dataclass(frozen=True, kw_only=True)
class Model:
    artifact: Artifact
    runner: Path
    libraries: tuple[StoredFile, ...]

    def runtime(self, runner: Path | None = None) -> RuntimeFiles:
        """``runner``: a script in its place, which finds the real one at ``libs/real-snapgate-runner``."""
        return RuntimeFiles(
            abi="x86_64",
            runner=StoredFile.of(runner or self.runner, "snapgate-runner", executable=True),
            libraries=(*self.libraries, StoredFile.of(self.runner, "libs/real-snapgate-runner", executable=True)),
        )


def make_model(folder: Path) -> Model:
    runtime = _runtime_tests()
    build = runtime.build_preset("host", "snapgate-runner", "FakeQnnHtp", "FakeQnnSystem")
    standin = runtime.StandIn(build, folder)
    job = standin.job(Prompt(prompt_id="p", mode="generate", tokens=(1, 5), n_gen=1))
    contexts = tuple(
        ContextFile(file=c.path.name, sha256=c.sha256, n_bytes=c.n_bytes, graphs=c.graphs) for c in job.contexts
    )
    manifest = ArtifactManifest(
        schema=ARTIFACT_SCHEMA,
        model=ModelFacts(
            name="standin", architecture="LlamaForCausalLM", n_layers=2, hidden_size=8, intermediate_size=8, n_heads=2,
            n_kv_heads=2, head_dim=4, vocab_size=32, max_context=16, rope_theta=1e4, rms_norm_eps=1e-5,
            tied_embeddings=True, bos_id=None, eos_ids=(), n_parameters=1,
        ),
        recipe=Recipe(
            precision=Precision.W8A16, kv=KvPrecision.KV8, context_length=16, prefill_tokens=4, rmsnorm="basic",
            mask_value=-100.0, calibration_method=None, calibration_samples=None, calibration_tokens=None,
            calibration_text_sha256=None,
        ),
        target=Target(part="SM8650", soc_number=57, htp_arch=75, vtcm_mb=8, optimization_level=3),
        contexts=contexts,
        tools={},
        checkpoint_sha256={},
        files_sha256={**{c.file: c.sha256 for c in contexts}, "rope.bin": job.model.rope_sha256},
        quality=(),
    )  # fmt: skip
    libraries = (
        StoredFile.of(build.backend, "libs/libQnnHtp.so", executable=True),
        StoredFile.of(build.system, "libs/libQnnSystem.so", executable=True),
    )
    return Model(artifact=Artifact(folder=folder, manifest=manifest), runner=build.runner, libraries=libraries)
