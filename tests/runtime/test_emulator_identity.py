"""The runner on the real QNN libraries (HTP emulator): bit for bit what onnxruntime-qnn computes from a binary."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.compiler.execute import run_context
from harness.compiler.libraries import library_folder
from harness.compiler.prepare import prepare
from harness.model.decoder import Decoder
from harness.model.encoding import NUMPY_DTYPES
from harness.record.artifact import Artifact, GraphSpec
from harness.record.job import JOB_SCHEMA, Job, JobContext, JobLibraries, JobModel, Logits, Prompt
from harness.soc import PRECISION_FLOORS, KvPrecision, Precision, find_soc

pytestmark = [pytest.mark.lane("qnn"), pytest.mark.lane("build"), pytest.mark.xdist_group("emulator-identity")]

CHECKPOINT = Path(__file__).resolve().parents[2] / "models" / "tiny-llama"
CONTEXT, PREFILL = 96, 16
N_PROMPT, N_GEN = 24, 4  # a whole chunk, one half full, three decode steps
TOKENS = tuple((37 * i + 11) % 1000 + 20 for i in range(N_PROMPT))
FP16 = (Precision.FP16, KvPrecision.KVFP16, "gen3")
W8A16_KV8 = (Precision.W8A16, KvPrecision.KV8, "gen3")
ONE_OF_EACH = [
    (Precision.W8A16, KvPrecision.KV16, "gen3"),
    (Precision.W8A16_FP16ATTN, KvPrecision.KV8, "gen2"),
    (Precision.W8A8, KvPrecision.KV8, "sd888"),
    (Precision.W4A16, KvPrecision.KV8, "gen1"),
    (Precision.W4A16_B32, KvPrecision.KV8, "elite"),
    (Precision.FP16, KvPrecision.KVFP16, "elite5"),
]
"""Every precision and every HTP arch at least once."""
EVERY_CELL = [
    (precision, KvPrecision.KVFP16 if precision is Precision.FP16 else KvPrecision.KV8, marker)
    for precision in Precision
    for marker in ("sd888", "gen1", "gen2", "gen3", "elite", "elite5")
    if find_soc(marker).htp_arch >= PRECISION_FLOORS[precision].arch
]
"""With SNAPGATE_EVERY_CELL=1, a quarter of an hour: every precision on every arch that it runs on."""
MORE = EVERY_CELL if os.environ.get("SNAPGATE_EVERY_CELL") else ONE_OF_EACH
RECIPES = [
    FP16,
    W8A16_KV8,
    *(pytest.param(cell, marks=pytest.mark.slow) for cell in MORE if cell not in (FP16, W8A16_KV8)),
]


class Artifacts:
    """Small artifacts of the bundled model, each prepared when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkpoint = folder / "tiny-llama"
        # Without its held-out text, so that preparing measures no perplexity; two layers show what four would.
        shutil.copytree(CHECKPOINT, self._checkpoint, ignore=shutil.ignore_patterns("heldout.txt"))
        config, weights = self._checkpoint / "config.json", self._checkpoint / "model.safetensors"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 2}))
        kept = {name: tensor for name, tensor in load_file(weights).items() if not re.search(r"layers\.[23]\.", name)}
        save_file(kept, weights)
        self._ready: dict[tuple[Precision, KvPrecision, str], Artifact] = {}

    def get(self, recipe: tuple[Precision, KvPrecision, str]) -> Artifact:
        if recipe not in self._ready:
            precision, kv, marker = recipe
            self._ready[recipe] = prepare(
                self._checkpoint,
                soc=find_soc(marker),
                precision=precision,
                kv=kv,
                context=CONTEXT,
                prefill=PREFILL,
                calibration=None if precision is Precision.FP16 else CHECKPOINT / "heldout.txt",
                out=self._folder / "out",
            )
        return self._ready[recipe]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return Artifacts(tmp_path_factory.mktemp("emulator"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    artifact: Artifact
    outcome: Any
    """Of a job that scores the tokens, then generates from them and leaves its cache."""


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: "-".join(recipe))
def played(request: pytest.FixtureRequest, artifacts: Artifacts, host_build, start_runner, tmp_path_factory) -> Played:
    artifact = artifacts.get(request.param)
    score = Prompt(prompt_id="s", mode="score", tokens=TOKENS, n_gen=0, logits=Logits.ALL)
    job = job_for(artifact, score, generation())
    outcome = start_runner(host_build, job, tmp_path_factory.mktemp("played"), "--dump-cache").finish()
    assert outcome.returncode == 0, outcome.stderr
    return Played(artifact=artifact, outcome=outcome)


@pytest.fixture
def fp16_artifact(artifacts: Artifacts) -> Artifact:
    return artifacts.get(FP16)


@pytest.fixture
def w8a16_artifact(artifacts: Artifacts) -> Artifact:
    return artifacts.get(W8A16_KV8)


def job_for(artifact: Artifact, *prompts: Prompt, libraries: Path | None = None) -> Job:
    manifest = artifact.manifest
    model = manifest.model
    folder = library_folder() if libraries is None else libraries
    return Job(
        schema=JOB_SCHEMA,
        run_id="emulator",
        nonce="1",
        libraries=JobLibraries(
            backend=PurePosixPath(folder / "libQnnHtp.so"), system=PurePosixPath(folder / "libQnnSystem.so")
        ),
        performance_mode="burst",
        model=JobModel(
            n_layers=model.n_layers,
            n_kv_heads=model.n_kv_heads,
            head_dim=model.head_dim,
            vocab_size=model.vocab_size,
            context_length=manifest.recipe.context_length,
            mask_value=manifest.recipe.mask_value,
            eos_ids=model.eos_ids,
            soc_number=manifest.target.soc_number,
            htp_arch=manifest.target.htp_arch,
            rope_table=PurePosixPath(artifact.path("rope.bin")),
            rope_sha256=manifest.files_sha256["rope.bin"],
        ),
        contexts=tuple(
            JobContext(
                path=PurePosixPath(artifact.path(context.file)),
                sha256=context.sha256,
                n_bytes=context.n_bytes,
                graphs=context.graphs,
            )
            for context in manifest.contexts
        ),
        prompts=prompts,
    )


def generation(n_gen: int = N_GEN, step_with: str = "chunk") -> Prompt:
    return Prompt(
        prompt_id="p",
        mode="generate",
        tokens=TOKENS,
        n_gen=n_gen,
        ignore_eos=True,
        step_with=step_with,
        logits=Logits.ALL,
    )


def bits(array: np.ndarray) -> np.ndarray:
    """Raw bits: float comparison would take -0 for 0 and NaN for different."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def read_cache(path: Path, artifact: Artifact):
    """Per layer keys (heads, dim, columns) and values (heads, columns, dim)."""
    model = artifact.manifest.model
    spec = next(t for t in artifact.manifest.graph(1)[1].inputs if t.name == "past_key_0_in")
    shape = (model.n_layers, 2, model.n_kv_heads * model.head_dim * (CONTEXT - 1))
    pool = np.fromfile(path, dtype=NUMPY_DTYPES[spec.dtype]).reshape(shape)
    keys = pool[:, 0].reshape(model.n_layers, model.n_kv_heads, model.head_dim, CONTEXT - 1)
    values = pool[:, 1].reshape(model.n_layers, model.n_kv_heads, CONTEXT - 1, model.head_dim)
    return keys, values


class Replay:
    """Answers a ``Decoder`` with what the native runner got at that position, and keeps what was asked.

    Where the runner is right about every step, given the steps before, it is right about all: so onnxruntime-qnn can be
    asked for all steps of a graph in one process.
    """

    def __init__(self, spec: GraphSpec, rows: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
        self.spec = spec
        self._rows, self._keys, self._values = rows, keys, values
        self.feeds: list[dict[str, np.ndarray]] = []
        self.steps: list[tuple[int, int]] = []
        """Position and tokens of each."""

    def run(self, feed):
        done = sum(n for _, n in self.steps) if self.spec.n_tokens > 1 else N_PROMPT + len(self.steps)
        n = min(self.spec.n_tokens, N_PROMPT - done) if self.spec.n_tokens > 1 else 1
        self.feeds.append({name: np.array(value) for name, value in feed.items()})
        self.steps.append((done, n))
        outputs = {t.name: np.zeros(t.shape, NUMPY_DTYPES[t.dtype]) for t in self.spec.outputs}
        for name, part in self.real_parts(outputs, n).items():
            part[...] = self.expected(name, done, n)
        return outputs

    def real_parts(self, outputs, n):
        """What stands for real tokens, without the padding behind them."""
        return {
            name: value[0, :n] if name == "logits" else value[:, 0, :, :n] if "key" in name else value[:, 0, :n]
            for name, value in outputs.items()
        }

    def expected(self, name, done, n):
        if name == "logits":
            return self._rows[done : done + n]
        layer = int(name.split("_")[2])
        if "key" in name:
            return self._keys[layer][..., done : done + n]
        return self._values[layer][:, done : done + n]


def test_logits_tokens_and_cache_are_bit_identical_with_onnxruntime_qnn(played):
    artifact, outcome = played.artifact, played.outcome
    manifest = artifact.manifest
    rows = outcome.logits(1)
    assert rows.shape == (N_PROMPT + N_GEN - 1, manifest.model.vocab_size)
    assert len(set(map(bytes, rows))) == len(rows)  # no two rows alike: the comparison compares something
    keys, values = read_cache(outcome.folder / "kv_cache.bin", artifact)
    files = [
        (context.file, Replay(graph, rows, keys, values))
        for n in (PREFILL, 1)
        for context, graph in [manifest.graph(n)]
    ]
    decoder = Decoder(
        [replay for _, replay in files], manifest.model, context_length=CONTEXT, mask_value=manifest.recipe.mask_value
    )
    chosen, _ = decoder.generate(TOKENS, N_GEN, ignore_eos=True)
    assert outcome.log.generations[1].token_ids == chosen
    assert outcome.log.generations[1].heap_allocations == 0
    assert [replay.steps for _, replay in files] == [[(0, 16), (16, 8)], [(24, 1), (25, 1), (26, 1)]]
    for file, replay in files:
        for (done, n), outputs in zip(
            replay.steps, run_context(artifact.path(file), replay.spec, replay.feeds), strict=True
        ):
            for name, part in replay.real_parts(outputs, n).items():
                np.testing.assert_array_equal(
                    bits(part), bits(replay.expected(name, done, n)), err_msg=f"{name} {done}"
                )


def test_qualcomms_library_allocates_while_tokens_are_generated_and_the_runner_does_not(
    w8a16_artifact, count_allocations, tmp_path
):
    jobs = (job_for(w8a16_artifact, dataclasses.replace(generation(n), logits=Logits.NONE)) for n in (2, 6))
    few, many = (count_allocations(job, tmp_path / str(index)) for index, job in enumerate(jobs))
    assert many[0] - few[0] <= 2  # a longer record, once generation is over
    a_step = (many[1] - few[1]) / 4
    assert a_step > 0
    print(f"libQnnHtp.so and what it loads: {a_step:.0f} allocations a decode step on the emulator")


def test_scores_are_those_of_the_host_from_the_same_logits(played):
    outcome = played.outcome
    facts = outcome.log.generations[0].logits
    raw = outcome.logits(0).astype(np.float64)
    logits = raw if facts.scale is None else (raw - facts.zero_point) * facts.scale
    logits -= logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits).sum(axis=1))
    expected = [log_sum[i] - logits[i, TOKENS[i + 1]] for i in range(N_PROMPT - 1)]
    np.testing.assert_allclose(outcome.log.generations[0].nll, expected, rtol=1e-10, atol=1e-10)


def test_prefill_and_decode_graphs_give_the_same_logits_at_w8a16(w8a16_artifact, host_build, start_runner, tmp_path):
    prompts = generation(n_gen=1), generation(n_gen=1, step_with="token")
    outcome = start_runner(host_build, job_for(w8a16_artifact, *prompts), tmp_path).finish()
    assert outcome.returncode == 0, outcome.stderr
    np.testing.assert_array_equal(outcome.logits(0), outcome.logits(1))


def test_five_files_in_one_folder_are_all_the_libraries_it_needs(fp16_artifact, host_build, start_runner, tmp_path):
    libraries = tmp_path / "libs"
    libraries.mkdir()
    for name in ("libQnnHtp.so", "libQnnSystem.so"):
        shutil.copy(library_folder() / name, libraries)
    support = sorted((library_folder().parent / "onnxruntime_qnn.libs").glob("*.so*"))
    assert [path.name.split("-")[0] for path in support] == ["libc++", "libc++abi", "libunwind"]
    for path in support:
        shutil.copy(path, libraries)
    prompt = Prompt(prompt_id="p", mode="generate", tokens=(1, 2, 3), n_gen=2, ignore_eos=True)
    environment = {"LD_LIBRARY_PATH": str(libraries)}
    job = job_for(fp16_artifact, prompt, libraries=libraries)
    outcome = start_runner(host_build, job, tmp_path, environment=environment).finish()
    assert outcome.returncode == 0, outcome.stderr


def test_a_binary_for_another_arch_is_refused_although_the_emulator_would_run_it(
    fp16_artifact, host_build, start_runner, tmp_path
):
    job = job_for(fp16_artifact, generation())
    job = dataclasses.replace(job, model=dataclasses.replace(job.model, htp_arch=79, soc_number=69))
    outcome = start_runner(host_build, job, tmp_path).finish()
    assert outcome.returncode == 13
    assert (outcome.log.fault.error, outcome.log.fault.found, outcome.log.fault.expected) == (
        "ARCH_MISMATCH", "v75", "v79",
    )  # fmt: skip


def test_the_metadata_of_the_binary_is_recorded(fp16_artifact, host_build, start_runner, tmp_path):
    prompt = Prompt(prompt_id="p", mode="generate", tokens=(1,), n_gen=1)
    log = start_runner(host_build, job_for(fp16_artifact, prompt), tmp_path).finish().log
    assert [(c.dsp_arch, c.soc_number) for c in log.contexts] == [(75, 57), (75, 57)]
    assert {c.build_id for c in log.contexts} == {log.platform.build_id}
    assert log.platform.build_id == fp16_artifact.manifest.tools["qnn_build_id"]
    assert log.platform.provider == "HTP_QTI_AISW"
    assert log.platform.performance_accepted is True


def test_a_probe_names_the_libraries(host_build):
    folder = library_folder()
    done = subprocess.run(
        [host_build.runner, "--probe", "--backend", folder / "libQnnHtp.so", "--system", folder / "libQnnSystem.so"],
        capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ),
    )  # fmt: skip
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [record["type"] for record in records] == ["start", "phase", "phase", "phase", "phase", "platform", "end"]
    assert records[5]["core_api"].startswith("2.")
