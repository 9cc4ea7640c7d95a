"""Writes the golden journals below ``journals/``: by hand, by rule, by fixed seed. Nothing in them was measured.

They exist to drive every outcome of a performance gate. Run it again after a change of the record's shape::

    python tests/data/make_journals.py

Each journal has three runs of one phone that does not exist; a run has one warm-up and two repetitions of a 64-token
prompt that generate 33 tokens (32 gaps), and one repetition of a 16-token prompt. The gap of a repetition is the stated
base plus a jitter whose sum over the 32 gaps is zero, so decode_tps is exactly 1000 / base.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.journal import JOURNAL_SCHEMA, JournalWriter, Session
from harness.record.moved import BytesPerToken
from harness.record.run import Cell, Conditions, DeviceFacts, RunError, RunRecord, SensorSeries
from harness.record.runner import (
    EMPTY_LOG,
    Bandwidth,
    Buffers,
    Clock,
    ContextLoaded,
    End,
    Generation,
    Memory,
    Phase,
    Platform,
    PrefillChunk,
    RunnerLog,
    Start,
)
from harness.record.vocabulary import Source, Status
from harness.soc import KvPrecision, Precision

CELL = Cell(model="synthetic-llama", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")
MS = 1_000_000
SEED = 2026
N_TOKENS = 33
PREFILL_MS = 128.0
"""64 tokens: 500 tokens/s"""
FIRST_TOKEN_MS = 130.0
STEADY = (20.0, 20.1, 19.9, 20.2, 19.8, 20.0)
"""Bases of the six repetitions in ms: 49.5 .. 50.5 tokens/s"""
SLOW = (30.0, 30.2, 29.8, 30.1, 29.9, 30.0)
"""33.1 .. 33.6 tokens/s"""
SPREAD = (23.0, 27.0, 24.0, 26.0, 24.5, 25.5)
"""37.0 .. 43.5 tokens/s, median 40.0"""
MOVED = BytesPerToken(weights=900_000_000, kv=90_000_000, activations=10_000_000)
"""10^9 bytes a token"""
BUFFER = 256 * 2**20
FAST = (2.0, 2.0, 2.1, 1.9, 2.0, 2.0)
"""476 .. 526 tokens/s"""


def jitter(rng: random.Random, n: int) -> list[int]:
    """``n`` offsets in ns within half a millisecond that sum to zero."""
    half = [rng.randrange(MS // 2) for _ in range(n // 2)]
    offsets = half + [-offset for offset in half] + [0] * (n % 2)
    rng.shuffle(offsets)
    return offsets


def generation(
    rng: random.Random,
    *,
    prompt_id: str = "long",
    n_prompt: int = 64,
    repetition: int = 0,
    warmup: bool = False,
    start_ns: int = 10_000 * MS,
    gap_ms: float = 20.0,
    tokens: Sequence[int] | None = None,
) -> Generation:
    """One generation of ``N_TOKENS`` tokens, or of ``tokens``."""
    ids = tuple(tokens) if tokens is not None else tuple(rng.randrange(3, 1024) for _ in range(N_TOKENS))
    prefill_end = start_ns + int(PREFILL_MS * n_prompt / 64 * MS)
    stamps = [prefill_end + int((FIRST_TOKEN_MS - PREFILL_MS) * MS)]
    for offset in jitter(rng, len(ids) - 1):
        stamps.append(stamps[-1] + int(gap_ms * MS) + (offset if gap_ms > 1 else 0))
    return Generation(
        prompt_id=prompt_id,
        mode="generate",
        repetition=repetition,
        warmup=warmup,
        step_with="chunk",
        n_prompt=n_prompt,
        n_cached=0,
        start_ns=start_ns,
        end_ns=stamps[-1] + MS,
        prefill=(PrefillChunk(n_tokens=n_prompt, n_graph_tokens=64, start_ns=start_ns, end_ns=prefill_end),),
        relayout_ns=MS,
        token_ns=tuple(stamps),
        token_ids=ids,
        argmax_ids=ids,
        stop="length",
        nll=(),
        logits=None,
        heap_allocations=0,
    )


def runner_log(run_id: str, generations: Sequence[Generation]) -> RunnerLog:
    """A whole log around ``generations``: 2.4 s of loading, 180 MB at most."""
    clock = Clock(monotonic_ns=1000 * MS, boottime_ns=1000 * MS, realtime_ns=1_790_000_000_000 * MS)
    last_ns = max((g.end_ns for g in generations), default=5000 * MS) + MS
    lengths_ms = {
        "open_libraries": 60,
        "backend": 200,
        "device": 80,
        "read": 150,
        "verify": 300,
        "context_create": 1500,
        "graph_retrieve": 10,
        "buffers": 100,
    }
    phases, at_ms = [], 2000
    for name, length in lengths_ms.items():
        phases.append(Phase(name=name, detail="", start_ns=at_ms * MS, end_ns=(at_ms + length) * MS))
        at_ms += length
    spent = last_ns - clock.monotonic_ns
    return dataclasses.replace(
        EMPTY_LOG,
        start=Start(
            schema="snapgate.runner/1",
            run_id=run_id,
            nonce="0",
            runner_version="0",
            abi="arm64-v8a",
            compiler="none",
            build_type="Release",
            pid=1,
            clock=clock,
        ),
        platform=Platform(
            provider="none",
            core_api="0",
            backend_api="0",
            system_api="0",
            build_id="none",
            device_config="none",
            performance_mode="burst",
            performance_accepted=True,
            memory="heap",
        ),
        contexts=(
            ContextLoaded(
                file="ar64.bin",
                n_bytes=1,
                sha256="0" * 64,
                dsp_arch=75,
                soc_number=57,
                blob_version="0",
                build_id="none",
                graphs=("ar64", "ar1"),
            ),
        ),
        phases=tuple(phases),
        buffers=Buffers(alignment_bytes=128, kv_pool_bytes=1_048_576, io_bytes=65_536, n_tensors=24, registered=False),
        memory=(
            Memory(
                at="end",
                vm_hwm_bytes=180_000_000,
                vm_rss_bytes=170_000_000,
                vm_swap_bytes=0,
                rss_anon_bytes=100_000_000,
                rss_file_bytes=70_000_000,
                monotonic_ns=last_ns,
            ),
        ),
        generations=tuple(generations),
        end=End(
            exit_code=0,
            n_records=14 + len(generations),
            clock=Clock(monotonic_ns=last_ns, boottime_ns=last_ns, realtime_ns=clock.realtime_ns + spent),
        ),
    )


def device(*, virtual: bool = False) -> DeviceFacts:
    return DeviceFacts(
        transport="none",
        serial="SYNTHETIC-1",
        fingerprint="synthetic/none:0",
        model="none",
        part=CELL.part,
        soc_source="none",
        abi="arm64-v8a",
        android_release="15",
        sdk_level=35,
        ram_bytes=12 * 2**30,
        boot_id="synthetic-boot",
        virtual=virtual,
    )


def sensors(log: RunnerLog) -> tuple[SensorSeries, ...]:
    """One reading a second while the log lasts: npu 40 °C and up by 0.5 a second, skin 30 °C and up by 0.1."""
    first = log.start.clock.monotonic_ns if log.start else 0
    last = log.end.clock.monotonic_ns if log.end else first
    stamps = tuple(range(first, last, 1000 * MS))
    return tuple(
        SensorSeries(
            name=name,
            domain=domain,
            unit="celsius",
            state="ok",
            monotonic_ns=stamps,
            values=tuple(round(base + step * i, 1) for i in range(len(stamps))),
        )
        for name, domain, base, step in (("nsp0", "npu", 40.0, 0.5), ("shell_back", "skin", 30.0, 0.1))
    )


def run_record(
    run_id: str,
    log: RunnerLog,
    *,
    session_id: str = "synthetic",
    virtual: bool = False,
    error: RunError | None = None,
) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        session_id=session_id,
        source=Source.SYNTHETIC,
        cell=CELL,
        workload="latency",
        started_at="2026-01-01T00:00:00+00:00",
        wall_s=30.0,
        device=device(virtual=virtual),
        conditions=Conditions(
            battery_percent=80,
            battery_celsius=28.0,
            charging=False,
            thermal_status=0,
            memory_available_bytes=6 * 2**30,
            storage_available_bytes=64 * 2**30,
            uptime_s=3600.0,
            violations=(),
        ),
        host=None,
        artifact_id="0" * 16,
        artifact_name=f"{CELL}",
        epcontext_nodes=(1, 1),
        cpu_nodes=(0, 0),
        runner_sha256="0" * 64,
        libraries_sha256={},
        job_sha256="0" * 64,
        prompt_sensitivity_expected=True,
        log=log,
        sensors=sensors(log),
        files_sha256={},
        bytes_pushed=0,
        push_s=0.0,
        attempts=1,
        retried_because=None,
        error=error,
    )


def session(session_id: str, *, required: Sequence[str] = ("performance",)) -> Session:
    return Session(
        session_id=session_id,
        schema=JOURNAL_SCHEMA,
        started_at="2026-01-01T00:00:00+00:00",
        source=Source.SYNTHETIC,
        versions={},
        command=("tests/data/make_journals.py",),
        required=tuple(required),
        phones=("SYNTHETIC-1 SM8650",),
        notes=(),
    )


def three_runs(
    session_id: str, gaps_ms: Sequence[float], *, virtual: bool = False, constant_token: int | None = None
) -> list[RunRecord]:
    """Two repetitions a run from ``gaps_ms``. ``constant_token``: every prompt answers with nothing else."""
    rng = random.Random(SEED)
    answers: dict[str, list[int]] = {}
    for prompt_id in ("long", "short"):
        drawn = [rng.randrange(3, 1024) for _ in range(N_TOKENS)]
        answers[prompt_id] = drawn if constant_token is None else [constant_token] * N_TOKENS
    runs = []
    for index in range(3):
        plan = [
            ("long", 64, 0, True, gaps_ms[2 * index]),
            ("long", 64, 0, False, gaps_ms[2 * index]),
            ("long", 64, 1, False, gaps_ms[2 * index + 1]),
            ("short", 16, 0, False, gaps_ms[2 * index]),
        ]
        generations, at_ns = [], 5000 * MS
        for prompt_id, n_prompt, repetition, warmup, gap_ms in plan:
            generations.append(
                generation(
                    rng,
                    prompt_id=prompt_id,
                    n_prompt=n_prompt,
                    repetition=repetition,
                    warmup=warmup,
                    start_ns=at_ns,
                    gap_ms=gap_ms,
                    tokens=answers[prompt_id],
                )
            )
            at_ns = generations[-1].end_ns + 100 * MS
        run_id = f"{session_id}-{index}"
        runs.append(run_record(run_id, runner_log(run_id, generations), session_id=session_id, virtual=virtual))
    return runs


def with_bandwidth(runs: Sequence[RunRecord], gb_per_s: float) -> list[RunRecord]:
    """Runs of an artifact that moves ``MOVED``, each followed by passes of which the third is the best."""
    best = round(BUFFER / gb_per_s)
    measured = Bandwidth(
        n_bytes=BUFFER,
        n_threads=8,
        last_level_cache_bytes=12 * 2**20,
        start_ns=20_000 * MS,
        pass_ns=(2 * best, best + MS, best, best + MS),
    )
    return [dataclasses.replace(run, bandwidth=measured, moved=MOVED) for run in runs]


def journals() -> dict[str, list[RunRecord]]:
    """Name to runs. The verdicts that ``limits_performance.toml`` gives them are in ``tests/unit/results``."""
    lost = three_runs("infra", STEADY)
    lost[2] = dataclasses.replace(
        lost[2],
        log=EMPTY_LOG,
        sensors=(),
        attempts=2,
        retried_because="PhoneLostError: device offline",
        error=RunError(status=Status.INFRA, kind="PhoneLostError", message="the phone went away twice"),
    )
    return {
        "perf_pass": three_runs("perf_pass", STEADY),
        "perf_fail": three_runs("perf_fail", SLOW),
        "perf_inconclusive": three_runs("perf_inconclusive", SPREAD),
        "perf_invalid_constant": three_runs("perf_invalid_constant", FAST, constant_token=0),
        "perf_invalid_emulated": three_runs("perf_invalid_emulated", STEADY, virtual=True),
        "infra": lost,
        # 50, 33.3 and 50 GB/s moved, of 62.5, 62.5 and 40 GB/s measured: 80, 53 and 125 %.
        "roof_pass": with_bandwidth(three_runs("roof_pass", STEADY), 62.5),
        "roof_fail": with_bandwidth(three_runs("roof_fail", SLOW), 62.5),
        "roof_invalid": with_bandwidth(three_runs("roof_invalid", STEADY), 40.0),
    }


def write(folder: Path) -> None:
    for name, runs in journals().items():
        path = folder / name / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        writer = JournalWriter(path)
        writer.append(session(name))
        for run in runs:
            writer.append(run)
        writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "journals")
