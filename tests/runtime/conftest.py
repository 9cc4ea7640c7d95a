"""Builds of the native runner, and jobs for it on the stand-in QNN libraries of device_runtime/tests/fake_qnn."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import filelock
import jsonschema
import numpy as np
import pytest

import harness.record
from harness.model.encoding import NUMPY_DTYPES, encode
from harness.record.artifact import GraphSpec, TensorSpec
from harness.record.codec import to_json
from harness.record.job import JOB_SCHEMA, Job, JobContext, JobLibraries, JobModel, Prompt
from harness.record.runner import RunnerLog, parse_runner_lines
from harness.record.vocabulary import DType

ROOT = Path(__file__).resolve().parents[2]
QNN_DATA_TYPES = {
    DType.INT32: 0x032,
    DType.FLOAT16: 0x216,
    DType.UFIXED8: 0x408,
    DType.UFIXED16: 0x416,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build:
    folder: Path
    preset: str

    @property
    def runner(self) -> Path:
        return self.folder / "snapgate-runner"

    def command(self, program: str, *arguments: str | Path) -> list[str | Path]:
        """A program of this build, under qemu-user where this machine cannot run it."""
        emulator = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"] if self.preset == "linux-arm64" else []
        return [*emulator, self.folder / program, *arguments]

    @property
    def backend(self) -> Path:
        return self.folder / "libFakeQnnHtp.so"

    @property
    def system(self) -> Path:
        return self.folder / "libFakeQnnSystem.so"


def tool(name: str) -> str:
    """A program of this Python environment, or of the system."""
    own = Path(sysconfig.get_path("scripts")) / name
    found = str(own) if own.exists() else shutil.which(name)
    assert found is not None, f"{name} is not installed"
    return found


def build_preset(preset: str, *targets: str) -> Build:
    """Up to date on return, all of it or ``targets``; a second worker waits for the first."""
    root = Path(os.environ.get("SNAPGATE_BUILD", ROOT / "build"))
    root.mkdir(exist_ok=True)
    folder = root / preset
    environment = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    json_package = importlib.util.find_spec("nlohmann_json")
    assert json_package is not None, "nlohmann_json is not installed"
    assert json_package.origin is not None
    commands = [
        [
            tool("cmake"),
            *("--preset", preset, "-S", str(ROOT / "device_runtime"), "-B", str(folder), "-DSNAPGATE_TESTS=ON"),
            f"-DNLOHMANN_JSON_INCLUDE_DIR={Path(json_package.origin).parent / 'include'}",
            f"-DCATCH2_INCLUDE_DIR={ROOT / 'build/cxx/catch2/install/include'}",
        ],
        [tool("cmake"), "--build", str(folder), "--parallel", "2", *(["--target", *targets] if targets else [])],
    ]
    with filelock.FileLock(root / f".{preset}.lock"):
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200, check=False)
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return Build(folder=folder, preset=preset)


@pytest.fixture(scope="session")
def host_build() -> Build:
    return build_preset("host")


@pytest.fixture(scope="session")
def preset_build() -> Callable[..., Build]:
    """For a test that needs a build of its own kind."""
    return build_preset


@pytest.fixture(scope="session")
def build_of() -> Callable[[str], Build]:
    """For a test with a preset of its own."""
    return build_preset


@pytest.fixture(scope="session")
def runner_sources() -> Path:
    return ROOT / "device_runtime"


BUILDS = [
    "host",
    pytest.param("host-asan", marks=pytest.mark.slow),
    pytest.param("linux-arm64", marks=[pytest.mark.slow, pytest.mark.lane("arm64")]),
]


@pytest.fixture(scope="session", params=BUILDS)
def build(request: pytest.FixtureRequest) -> Build:
    """A test that asks for it runs on the plain build, and in `make test-all` on the sanitized and the Arm one too."""
    return build_preset(request.param)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    returncode: int
    lines: tuple[str, ...]
    """Of records.jsonl"""
    stdout: str
    stderr: str
    log: RunnerLog
    folder: Path

    def logits(self, index: int) -> np.ndarray:
        """The raw rows of generation ``index``."""
        facts = self.log.generations[index].logits
        assert facts is not None
        dtype = NUMPY_DTYPES[DType(facts.dtype)]
        raw = (self.folder / facts.file).read_bytes()[facts.offset_bytes :]
        return np.frombuffer(raw, dtype=dtype, count=facts.n_rows * facts.n_columns).reshape(facts.n_rows, -1)


class RunnerProcess:
    """The runner at work on a job in ``folder``; results go to ``folder / "out"``."""

    def __init__(
        self,
        build: Build,
        job: Job,
        folder: Path,
        *options: str,
        environment: dict[str, str] | None = None,
        **popen: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        path = folder / "job.json"
        path.write_text(json.dumps(to_json(job)))
        self.out = folder / "out"
        self.process = subprocess.Popen(
            build.command("snapgate-runner", "--job", path, "--out", self.out, *options),
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            **{"stdout": subprocess.PIPE, **popen},
        )

    def wait_for(self, kind: str, count: int = 1) -> None:
        """Read stdout until ``count`` records of a kind have come."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            count -= json.loads(line)["type"] == kind
            if count == 0:
                return
        raise AssertionError(f"the runner ended without enough {kind} records")

    def finish(self, timeout: float = 550) -> Outcome:
        stdout, stderr = self.process.communicate(timeout=timeout)
        records = self.out / "records.jsonl"
        lines = tuple(records.read_text().splitlines()) if records.is_file() else ()
        return Outcome(
            returncode=self.process.returncode,
            lines=lines,
            stdout=stdout or "",
            stderr=stderr,
            log=parse_runner_lines(lines),
            folder=self.out,
        )


@pytest.fixture(scope="session")
def record_schema() -> jsonschema.Draft202012Validator:
    folder = Path(harness.record.__file__).parent / "schema"
    return jsonschema.Draft202012Validator(json.loads((folder / "runner_record.schema.json").read_text()))


class StandIn:
    """A small model whose graphs the stand-in library computes: AR-N and AR-1, 2 layers, 2 KV heads of dimension 4.

    ``expected_logits`` repeats the stand-in's arithmetic (device_runtime/tests/fake_qnn/model.h) from token ids
    alone: no cache, no chunks, no mask.
    """

    n_layers, heads, dim, vocabulary, context = 2, 2, 4, 32, 16

    def __init__(self, build: Build, folder: Path, precision: str = "w8a16", sizes: tuple[int, ...] = (4, 1)) -> None:
        self.build = build
        self.folder = folder
        self.quantised = precision == "w8a16"
        self.graphs = tuple(self._graph(n) for n in sizes)
        self.dsp_arch, self.soc_number, self.info_version = 75, 57, 3
        positions = np.arange(self.context, dtype=np.float32)[:, None] * np.ones((1, self.dim // 2), np.float32)
        self.cos = positions / 32
        self.sin = -positions / 64
        self.one_file = False
        self.sharded = False

    def _tensor(self, name: str, shape: tuple[int, ...], kind: str) -> TensorSpec:
        if not self.quantised:
            return TensorSpec(name=name, dtype=DType.FLOAT16, shape=shape)
        dtype, scale, zero_point = {
            "mask": (DType.UFIXED16, 100 / 65535, 65535),
            "rope": (DType.UFIXED16, 2.0**-15, 32768),
            "kv": (DType.UFIXED8, 0.5, 128),
            "logits": (DType.UFIXED16, 0.001, 15000),
        }[kind]
        return TensorSpec(name=name, dtype=dtype, shape=shape, scale=float(np.float32(scale)), zero_point=zero_point)

    def _graph(self, n: int) -> GraphSpec:
        past = self.context - n
        inputs = [
            TensorSpec(name="input_ids", dtype=DType.INT32, shape=(1, n)),
            self._tensor("attention_mask", (1, 1, n, self.context), "mask"),
            self._tensor("position_ids_cos", (1, 1, n, self.dim // 2), "rope"),
            self._tensor("position_ids_sin", (1, 1, n, self.dim // 2), "rope"),
        ]
        outputs = [self._tensor("logits", (1, n, self.vocabulary), "logits")]
        for layer in range(self.n_layers):
            key, value = f"past_key_{layer}", f"past_value_{layer}"
            inputs.append(self._tensor(f"{key}_in", (self.heads, 1, self.dim, past), "kv"))
            inputs.append(self._tensor(f"{value}_in", (self.heads, 1, past, self.dim), "kv"))
            outputs.append(self._tensor(f"{key}_out", (self.heads, 1, self.dim, n), "kv"))
            outputs.append(self._tensor(f"{value}_out", (self.heads, 1, n, self.dim), "kv"))
        return GraphSpec(
            name=f"ar{n}", n_tokens=n, inputs=tuple(inputs), outputs=tuple(outputs), epcontext_nodes=1, cpu_nodes=0
        )

    def _shards(self, graph: GraphSpec) -> tuple[GraphSpec, ...]:
        """``graph`` cut between its two layers: ids and sums so far are handed on as "hidden"."""
        hidden = TensorSpec(name="hidden", dtype=DType.FLOAT16, shape=(1, graph.n_tokens, 2))
        if self.quantised:
            hidden = dataclasses.replace(hidden, dtype=DType.UFIXED16, scale=1.0, zero_point=0)
        other = ("past_key_1", "past_value_1"), ("past_key_0", "past_value_0")
        first, second = (
            (
                tuple(t for t in graph.inputs if not t.name.startswith(names)),
                tuple(t for t in graph.outputs if not t.name.startswith(names)),
            )
            for names in other
        )
        return (
            dataclasses.replace(graph, name=f"{graph.name}_shard1", inputs=first[0], outputs=(hidden, *first[1][1:])),
            dataclasses.replace(graph, name=f"{graph.name}_shard2", inputs=(hidden, *second[0][1:]), outputs=second[1]),
        )

    def _contexts(self) -> tuple[tuple[GraphSpec, ...], ...]:
        """Graphs by file. Sharded, one file holds one shard of every size, or each shard has a file."""
        if self.sharded:
            by_size = [self._shards(graph) for graph in self.graphs]
            if self.one_file:
                return tuple(zip(*by_size, strict=True))
            return tuple((shard,) for shards in by_size for shard in shards)
        return (self.graphs,) if self.one_file else tuple((graph,) for graph in self.graphs)

    def binary(self, graphs: tuple[GraphSpec, ...]) -> dict[str, object]:
        """What the stand-in reads as a context binary. Tests damage it in one place."""

        def tensor(spec: TensorSpec, identifier: int) -> dict[str, object]:
            entry: dict[str, object] = {
                "id": identifier,
                "name": spec.name,
                "data_type": QNN_DATA_TYPES[spec.dtype],
                "dims": spec.shape,
            }
            if spec.scale is not None and spec.zero_point is not None:
                entry |= {"scale": spec.scale, "offset": -spec.zero_point}
            return entry

        return {
            "info_version": self.info_version,
            "dsp_arch": self.dsp_arch,
            "soc_number": self.soc_number,
            "build_id": "standin-compiler-1",
            "masked_raw": 0 if self.quantised else 0xD640,  # -100
            "graphs": [
                {
                    "name": graph.name,
                    "n_tokens": graph.n_tokens,
                    "inputs": [tensor(spec, 10 + i) for i, spec in enumerate(graph.inputs)],
                    "outputs": [tensor(spec, 50 + i) for i, spec in enumerate(graph.outputs)],
                }
                for graph in graphs
            ],
        }

    def job(self, *prompts: Prompt, change=lambda _document: None, **changes: object) -> Job:
        """A job whose files are written to the folder. ``change`` edits each binary before it is hashed."""
        self.folder.mkdir(exist_ok=True)
        contexts = []
        for graphs in self._contexts():
            document = self.binary(graphs)
            change(document)
            contexts.append(self._context("-".join(graph.name for graph in graphs), graphs, json.dumps(document)))
        rope = self.cos.astype("<f4").tobytes() + self.sin.astype("<f4").tobytes()
        (self.folder / "rope.bin").write_bytes(rope)
        job = Job(
            schema=JOB_SCHEMA,
            run_id="run-1",
            nonce="nonce-1",
            libraries=JobLibraries(backend=PurePosixPath(self.build.backend), system=PurePosixPath(self.build.system)),
            performance_mode="default",
            model=JobModel(
                n_layers=self.n_layers,
                n_kv_heads=self.heads,
                head_dim=self.dim,
                vocab_size=self.vocabulary,
                context_length=self.context,
                mask_value=-100.0,
                eos_ids=(),
                soc_number=57,
                htp_arch=75,
                rope_table=PurePosixPath(self.folder / "rope.bin"),
                rope_sha256=hashlib.sha256(rope).hexdigest(),
            ),
            contexts=tuple(contexts),
            prompts=prompts,
        )
        return dataclasses.replace(job, **changes)  # type: ignore[arg-type]

    def _context(self, name: str, graphs: tuple[GraphSpec, ...], text: str) -> JobContext:
        path = self.folder / f"{name}.bin"
        path.write_text(text)
        return JobContext(
            path=PurePosixPath(path),
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            n_bytes=len(text),
            graphs=graphs,
        )

    def start(self, job: Job, *options: str, **popen: Any) -> RunnerProcess:
        return RunnerProcess(self.build, job, self.folder, *options, **popen)

    def run(self, job: Job, *options: str, **popen: Any) -> Outcome:
        return self.start(job, *options, **popen).finish()

    def expected_logits(self, tokens: tuple[int, ...]) -> np.ndarray:
        """Raw logits (n_tokens, vocabulary) of a sequence."""
        specs = {spec.name: spec for spec in self.graphs[0].inputs}
        cos = self._raw(encode(self.cos[:, 0], specs["position_ids_cos"]))
        sin = self._raw(encode(self.sin[:, 0], specs["position_ids_sin"]))
        total = 0
        rows = []
        for position, token in enumerate(tokens):
            for layer in range(self.n_layers):
                for head in range(self.heads):
                    for dim in range(self.dim):
                        key = (3 * token + 5 * cos[position] + 7 * head + 11 * dim + 13 * layer + 1) % 251
                        value = (2 * token + 17 * sin[position] + 19 * head + 23 * dim + 29 * layer + 2) % 241
                        total += key * value
            rows.append([((total % 65521 + 1) * (x + 1) * 31) % 31744 for x in range(self.vocabulary)])
        raw = np.array(rows, dtype=np.uint16)
        return raw if self.quantised else raw.view(np.float16)

    @staticmethod
    def _raw(elements: np.ndarray) -> list[int]:
        return [int(x) for x in elements.view(np.uint16)]

    def expected_generation(self, tokens: tuple[int, ...], n_gen: int) -> tuple[int, ...]:
        """Greedy ids."""
        ids: list[int] = []
        for _ in range(n_gen):
            ids.append(int(np.argmax(self.expected_logits(tokens + tuple(ids))[-1])))
        return tuple(ids)


@pytest.fixture(params=["w8a16", "fp16"])
def standin(request: pytest.FixtureRequest, build: Build, tmp_path: Path) -> StandIn:
    return StandIn(build, tmp_path, request.param)


@pytest.fixture
def quantised(build: Build, tmp_path: Path) -> StandIn:
    return StandIn(build, tmp_path)


@pytest.fixture
def floating(build: Build, tmp_path: Path) -> StandIn:
    return StandIn(build, tmp_path, "fp16")


@pytest.fixture(scope="session")
def stand_in_class() -> type[StandIn]:
    """For a test that chooses the build itself."""
    return StandIn


@pytest.fixture(scope="session")
def start_runner() -> type[RunnerProcess]:
    """For a test with a job of its own: ``start_runner(build, job, folder, *options).finish()``."""
    return RunnerProcess


@pytest.fixture(scope="session")
def heap_probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """device_runtime/tests/heap_probe.cpp as a library to preload."""
    path = tmp_path_factory.mktemp("probe") / "heap_probe.so"
    source = ROOT / "device_runtime" / "tests" / "heap_probe.cpp"
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return path


@pytest.fixture
def count_allocations(heap_probe: Path, host_build: Build) -> Callable[[Job, Path], tuple[int, int]]:
    """Of a job on the plain build, from its start to its end: the executable's own, and those of all libraries."""

    def run(job: Job, folder: Path) -> tuple[int, int]:
        folder.mkdir()
        found = folder / "heap.bin"
        told = {"LD_PRELOAD": str(heap_probe), "SNAPGATE_HEAP_PROBE": str(found)}
        outcome = RunnerProcess(host_build, job, folder, environment=told).finish()
        assert outcome.returncode == 0, outcome.stderr
        own, libraries = np.fromfile(found, dtype="<u8")
        return int(own), int(libraries)

    return run
