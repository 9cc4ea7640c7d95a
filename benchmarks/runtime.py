"""How much of a token's time and of a phone's memory is the runner's own: ``make bench-runtime``.

Everything is measured in one run, side by side, at the same two places: where graphExecute is entered and left
(runtime_native/timed_backend.cpp wraps the backend for the runner and for onnxruntime-qnn alike). Writes
docs/runtime-benchmark.md. A busy machine only adds time: each figure is the least of several medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from runtime_cases import LARGE, SMALL, Shape, artifact_job, prepared, standin_job, write_description

from harness.compiler.libraries import library_folder
from harness.record.runner import parse_runner_lines

ROOT = Path(__file__).resolve().parents[1]
STAMP = np.dtype([(name, "<i8") for name in ("wall_in", "wall_out", "cpu_in", "cpu_out", "graph", "thread")])
N_STEPS = 200
ALLOWANCE_US, BARE_FACTOR = 20.0, 1.2
PYTHON_FACTOR, CPP_FACTOR = 0.25, 1.0
MEMORY_LIMIT = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One target: ``value`` must be at most ``limit``, both in ``unit``."""

    name: str
    value: float
    limit: float
    unit: str
    detail: str

    @property
    def met(self) -> bool:
        return self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    folder: Path

    @property
    def runner(self) -> Path:
        return self.folder / "snapgate-runner"

    @property
    def timed(self) -> Path:
        return self.folder / "bench" / "libTimedQnn.so"

    def timed_around(self, backend: Path, stamps: Path, **more: str) -> dict[str, str]:
        return {**os.environ, "TIMED_QNN_REAL": str(backend), "TIMED_QNN_OUT": str(stamps), **more}


def decode_gaps(path: Path, kind: str) -> np.ndarray:
    """Time between two executions of the decode graph, in us: the last ``N_STEPS`` gaps; ``kind`` wall or cpu."""
    stamps = np.fromfile(path, dtype=STAMP)
    decode = stamps[stamps["graph"] == stamps["graph"][-1]][-(N_STEPS + 1) :]
    if len(decode) != N_STEPS + 1 or len(set(decode["thread"])) != 1:
        raise SystemExit(f"{path}: {len(decode)} decode steps in {len(set(decode['thread']))} threads")
    return (decode[f"{kind}_in"][1:] - decode[f"{kind}_out"][:-1]) / 1e3


def run(command: list[str | Path], environment: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=3000, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def own_time(programs: Programs, shape: Shape, scratch: Path, repetitions: int) -> Line:
    """The runner on a stand-in that returns at once, against the KV stores alone."""
    job = standin_job(shape, scratch / shape.name, programs.folder, backend=programs.timed, n_gen=N_STEPS + 2)
    stamps = scratch / "stamps"
    environment = programs.timed_around(programs.folder / "libFakeQnnHtp.so", stamps, TIMED_QNN_IDLE="1")
    ours, bare = [], []
    for index in range(repetitions):
        out = scratch / f"{shape.name}-{index}"
        run([programs.runner, "--job", job, "--out", out], environment)
        ours.append(float(np.median(decode_gaps(stamps, "wall"))))
        start = str(shape.n_prompt)
        arguments = [
            *map(str, (shape.layers, shape.heads, shape.dim, shape.context, shape.kv_bytes)),
            start,
            str(N_STEPS),
        ]
        lines = run([programs.folder / "bench" / "kv-store-loop", *arguments], dict(os.environ)).split()
        bare.append(float(np.median(np.array(lines, float))) / 1e3)
    limit = ALLOWANCE_US + BARE_FACTOR * min(bare)
    detail = (
        f"bare stores {min(bare):.1f} us; medians of {repetitions} runs: runner {spread(ours)}, bare {spread(bare)} us"
    )
    return Line(name=f"host time a token, {shape.title}", value=min(ours), limit=limit, unit="us", detail=detail)


def against_onnxruntime(programs: Programs, scratch: Path, repetitions: int) -> list[Line]:
    """CPU time of the calling thread between two executions of the same binary on the HTP emulator."""
    artifact = prepared(ROOT / "build" / "bench" / "artifacts", ROOT / "models" / "tiny-llama")
    tokens = tuple((37 * i + 11) % 1000 + 20 for i in range(16))
    libraries = scratch / "libs"
    libraries.mkdir()
    real = library_folder()
    for path in real.glob("*.so"):
        if path.name != "libQnnHtp.so":
            (libraries / path.name).symlink_to(path)
    (libraries / "libQnnHtp.so").symlink_to(programs.timed)
    job = artifact_job(artifact, scratch / "emulator", libraries, tokens=tokens, n_gen=N_STEPS + 2)
    description = write_description(artifact, scratch / "ort", libraries, tokens=tokens, n_gen=N_STEPS + 2)
    support = ":".join((str(real.parent / "onnxruntime_qnn.libs"), str(libraries)))
    programs_of = {
        "runner": [programs.runner, "--job", job, "--out"],
        "python": [sys.executable, Path(__file__).with_name("runtime_ort.py"), description],
        "cpp": [programs.folder / "bench" / "ort-loop", description],
    }
    medians: dict[str, list[float]] = {name: [] for name in programs_of}
    ids: dict[str, list[int]] = {}
    for index in range(repetitions):
        for name, command in programs_of.items():
            stamps = scratch / f"stamps-{name}"
            environment = programs.timed_around(real / "libQnnHtp.so", stamps, LD_LIBRARY_PATH=support)
            out = scratch / f"emulator-{index}"
            text = run([*command, out] if name == "runner" else command, environment)
            if name == "runner":
                log = parse_runner_lines((out / "records.jsonl").read_text().splitlines())
                ids[name] = list(log.generations[0].token_ids)
            else:
                # The library has a line of its own for stdout.
                ids[name] = [int(word) for word in text.strip().splitlines()[-1].split()]
            medians[name].append(float(np.median(decode_gaps(stamps, "cpu"))))
            say(f"[bench-runtime] emulator, {name}: {medians[name][-1]:.1f} us CPU a step outside execute")
    if len({tuple(chosen) for chosen in ids.values()}) != 1:
        raise SystemExit("the three programs chose different tokens: they do not do the same work")
    ours = min(medians["runner"])
    detail = f"{len(ids['runner'])} equal tokens; medians of {repetitions} runs: runner {spread(medians['runner'])} us"
    return [
        Line(
            name=f"host CPU outside execute, against a {title} loop on onnxruntime-qnn",
            value=ours / min(medians[name]),
            limit=factor,
            unit="x",
            detail=f"{detail}, {title} {spread(medians[name])} us",
        )
        for name, title, factor in (("python", "Python", PYTHON_FACTOR), ("cpp", "C++", CPP_FACTOR))
    ]


def memory_beyond(programs: Programs, shape: Shape, scratch: Path) -> Line:
    """Resident memory of the runner stopped in the middle of decoding, without libraries, binaries, pool and I/O."""
    job = standin_job(shape, scratch / f"{shape.name}-memory", programs.folder, backend=programs.timed, n_gen=N_STEPS)
    environment = programs.timed_around(
        programs.folder / "libFakeQnnHtp.so", scratch / "none", TIMED_QNN_IDLE="1", TIMED_QNN_STOP_AT="100"
    )
    out = scratch / f"{shape.name}-memory-out"
    with stopped([programs.runner, "--job", job, "--out", out], environment) as pid:
        resident, excluded = resident_bytes(pid, (".so", ".bin"))
    log = parse_runner_lines((out / "records.jsonl").read_text().splitlines())
    if log.buffers is None:
        raise SystemExit(f"{out}: no record of buffers")
    buffers = log.buffers.kv_pool_bytes + log.buffers.io_bytes
    detail = (
        f"resident {resident / 2**20:.1f} MiB; files of libraries and binaries {excluded / 2**20:.1f}, "
        f"KV pool {log.buffers.kv_pool_bytes / 2**20:.1f}, graph tensors {log.buffers.io_bytes / 2**20:.1f} MiB"
    )
    value = (resident - excluded - buffers) / 2**20
    return Line(
        name=f"resident memory beyond, {shape.title}",
        value=value,
        limit=MEMORY_LIMIT / 2**20,
        unit="MiB",
        detail=detail,
    )


@contextmanager
def stopped(command: list[str | Path], environment: dict[str, str]) -> Iterator[int]:
    """A process that has stopped itself; it goes on, and must end well, afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    try:
        deadline = time.monotonic() + 120
        while "T (stopped)" not in Path(f"/proc/{process.pid}/status").read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} never came to its stop")
            time.sleep(0.05)
        yield process.pid
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
        _, error = process.communicate(timeout=300)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {error.decode(errors='replace')[-2000:]}")


def resident_bytes(pid: int, suffixes: tuple[str, ...]) -> tuple[int, int]:
    """All of a process, and what is of files whose names end so (or ``.so.1``), in bytes."""
    total = of_files = 0
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            fields = line.split(maxsplit=5)
            name = fields[5] if len(fields) == 6 else ""
        elif line.startswith("Rss:"):
            size = int(line.split()[1]) * 1024
            total += size
            if name.startswith("/") and (name.endswith(suffixes) or ".so." in name):
                of_files += size
    return total, of_files


def spread(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"


HOW = f"""\
- Host time a token: the whole runner on a stand-in backend that returns at once; from the return of one decode step
  to the entry of the next, median of {N_STEPS} steps, least of the runs. The bare loop does only the stores of the new
  keys and values into memory of the same layout; the limit is {ALLOWANCE_US:.0f} us and {BARE_FACTOR} times that. The
  runner's time includes the argmax over the vocabulary, mask, position tables, stamps and the record.
- Against onnxruntime-qnn: CPU time of the calling thread between two executions of one w8a16 context binary of the
  bundled model on the HTP emulator, taken by one wrapper around the backend for all three. The Python loop binds
  preallocated arrays once and stores all layers' keys by one assignment; the C++ loop uses the C API with tensors bound
  once. All three must choose equal tokens, or nothing is reported.
- Resident memory: the process stopped in the 100th step, less the resident parts of library and context-binary files,
  the KV pool and the tensors of the graphs.
- Not seen: a phone's QNN library and what it allocates, fastrpc, shared memory.
"""


def page(lines: list[Line], minutes: float) -> str:
    git = shutil.which("git") or "git"
    commit = subprocess.run([git, "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    made = (
        f"Written by `make bench-runtime` on {datetime.now(UTC):%Y-%m-%d} at {commit.stdout.strip()}, "
        f"{platform.machine()} with {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {minutes:.0f} min."
    )
    rows = [
        f"| {line.name} | {line.value:.2f} {line.unit} | {line.limit:.2f} {line.unit} | "
        f"{'met' if line.met else '**missed**'} | {line.detail} |"
        for line in lines
    ]
    head = ["| figure | measured | at most | | |", "|---|---|---|---|---|"]
    title = ["# The runner's own time and memory", "", f"{made} Nothing here was measured on a phone.", ""]
    return "\n".join([*title, *head, *rows, "", "## How", HOW])


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "host")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "runtime-benchmark.md")
    arguments = parser.parse_args()
    programs = Programs(folder=arguments.build.resolve())
    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="snapgate-bench-"))
    lines: list[Line] = []
    try:
        for shape in (SMALL, LARGE):
            lines.append(own_time(programs, shape, scratch, arguments.repetitions))
            lines.append(memory_beyond(programs, shape, scratch))
        lines += against_onnxruntime(programs, scratch, max(1, arguments.repetitions // 2))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for line in lines:
        verdict = "met   " if line.met else "MISSED"
        say(f"{verdict} {line.name}: {line.value:.2f} {line.unit}, at most {line.limit:.2f}; {line.detail}")
    arguments.out.write_text(page(lines, (time.monotonic() - began) / 60), encoding="utf-8")
    (arguments.build / "runtime-benchmark.json").write_text(
        json.dumps([{"name": line.name, "value": line.value, "limit": line.limit, "unit": line.unit} for line in lines])
    )
    return 0 if all(line.met for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
