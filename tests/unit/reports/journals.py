"""Journals for the tests of the reports: every figure is a round number a reader can check by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.journal import JOURNAL_SCHEMA, Journal, NotCovered, Session
from harness.record.artifact import (
    ARTIFACT_SCHEMA,
    AccuracyFigures,
    ArtifactManifest,
    ContextFile,
    GraphSpec,
    ModelFacts,
    PerplexityFigure,
    Recipe,
    Target,
    TensorSpec,
)
from harness.record.comparison import Leg, LogitsComparison, ReferenceFacts, SelfCheck, WindowScores
from harness.record.run import Cell, Conditions, DeviceFacts, HostState, RunError, RunRecord, SensorSeries
from harness.record.runner import (
    EMPTY_LOG,
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
from harness.record.verdict import Limit
from harness.record.vocabulary import DType, Source, Status
from harness.soc import KvPrecision, Precision

GEN3 = Cell(model="tiny-llama", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")
GEN2 = Cell(model="tiny-llama", precision=Precision.FP16, kv=KvPrecision.KVFP16, part="SM8550")
MS = 1_000_000
HASH = "ab" * 32
CORPUS = "cd" * 32


def device(cell: Cell, serial: str, *, virtual: bool) -> DeviceFacts:
    return DeviceFacts(
        transport=f"localhost:{5555}",
        serial=serial,
        fingerprint=f"maker/{cell.part}/one:14/AB1.240101.001/7:user/release-keys",
        model="Virtual Phone" if virtual else "Lab Phone 12",
        part=cell.part,
        soc_source="ro.soc.model",
        abi="x86_64" if virtual else "arm64-v8a",
        android_release="14",
        sdk_level=34,
        ram_bytes=12 * 2**30,
        boot_id="0f0e0d0c-0000-4000-8000-000000000001",
        virtual=virtual,
    )


def generation(
    *,
    prompt_id: str = "story",
    repetition: int = 0,
    warmup: bool = False,
    start_ns: int = 5_000 * MS,
    n_prompt: int = 64,
    first_ms: float = 400.0,
    gaps_ms: tuple[float, ...] = (100.0, 100.0, 110.0, 90.0),
) -> Generation:
    """64 prompt tokens in ``first_ms`` - 10 ms, then one token at ``first_ms`` and one after every gap."""
    stamps = [start_ns + int(first_ms * MS)]
    for gap in gaps_ms:
        stamps.append(stamps[-1] + int(gap * MS))
    ids = tuple(range(10, 10 + len(stamps)))
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
        prefill=tuple(
            PrefillChunk(
                n_tokens=min(64, n_prompt - at),
                n_graph_tokens=64,
                start_ns=start_ns + int((first_ms - 10) * MS * at / n_prompt),
                end_ns=start_ns + int((first_ms - 10) * MS * min(at + 64, n_prompt) / n_prompt),
            )
            for at in range(0, n_prompt, 64)
        ),
        relayout_ns=MS,
        token_ns=tuple(stamps),
        token_ids=ids,
        argmax_ids=ids,
        stop="length",
        nll=(),
        logits=None,
        heap_allocations=0,
    )


PHASES = (
    ("open_libraries", "", 0, 100),
    ("backend", "", 100, 150),
    ("device", "", 150, 180),
    ("read", "ar64.bin", 180, 200),
    ("verify", "ar64.bin", 200, 230),
    ("context_create", "ar64.bin", 230, 630),
    ("graph_retrieve", "ar64", 630, 640),
    ("buffers", "", 640, 660),
)
"""Milliseconds: 660 in all, 400 of them in context_create."""


def log(generations: tuple[Generation, ...], *, arch: int = 75) -> RunnerLog:
    clock = Clock(monotonic_ns=1_000 * MS, boottime_ns=1_000 * MS, realtime_ns=1_700_000_000_000 * MS)
    last = max((g.end_ns for g in generations), default=2_000 * MS)
    return RunnerLog(
        start=Start(
            schema="snapgate.runner/1",
            run_id="r",
            nonce="n",
            runner_version="0.1.0",
            abi="x86_64",
            compiler="g++ 12.2",
            build_type="Release",
            pid=7,
            clock=clock,
        ),
        platform=Platform(
            provider="HTP",
            core_api="2.40.0",
            backend_api="5.40.0",
            system_api="1.5.0",
            build_id="v2.51.0",
            device_config="soc 57",
            performance_mode="burst",
            performance_accepted=True,
            memory="heap",
        ),
        contexts=(
            ContextLoaded(
                file="ar64.bin",
                n_bytes=3_000_000,
                sha256=HASH,
                dsp_arch=arch,
                soc_number=57,
                blob_version="3.3.4",
                build_id="v2.51.0",
                graphs=("ar64",),
            ),
        ),
        phases=tuple(
            Phase(name=name, detail=detail, start_ns=(2_000 + a) * MS, end_ns=(2_000 + b) * MS)
            for name, detail, a, b in PHASES
        ),
        buffers=Buffers(alignment_bytes=128, kv_pool_bytes=2**20, io_bytes=2**20, n_tensors=40, registered=False),
        memory=(
            Memory(
                at="end",
                vm_hwm_bytes=300 * 2**20,
                vm_rss_bytes=280 * 2**20,
                vm_swap_bytes=0,
                rss_anon_bytes=100 * 2**20,
                rss_file_bytes=180 * 2**20,
                monotonic_ns=last,
            ),
        ),
        generations=generations,
        fault=None,
        end=End(
            exit_code=0,
            n_records=20,
            clock=Clock(
                monotonic_ns=last + MS, boottime_ns=last + MS, realtime_ns=clock.realtime_ns + last + MS - 1_000 * MS
            ),
        ),
        unknown_lines=(),
    )


def sensors(n: int = 12) -> tuple[SensorSeries, ...]:
    """Battery 30.0 to 30.0 + (n-1)/10 °C, cpu 45 °C, one reading each half second; a gpu that gives nothing."""
    stamps = tuple((1_000 + 500 * i) * MS for i in range(n))
    return (
        SensorSeries(
            name="battery",
            domain="battery",
            unit="celsius",
            state="ok",
            monotonic_ns=stamps,
            values=tuple(round(30.0 + i / 10, 1) for i in range(n)),
        ),
        SensorSeries(
            name="cpu-0-0",
            domain="cpu",
            unit="celsius",
            state="partial",
            monotonic_ns=stamps,
            values=tuple(None if i == 3 else 45.0 for i in range(n)),
        ),
        SensorSeries(name="gpuss-0", domain="gpu", unit="celsius", state="unavailable", monotonic_ns=(), values=()),
    )


def run(
    run_id: str,
    cell: Cell = GEN3,
    *,
    source: Source = Source.VIRTUAL,
    serial: str = "vphone-1",
    workload: str = "latency",
    generations: tuple[Generation, ...] | None = None,
    error: RunError | None = None,
    **changes: Any,
) -> RunRecord:
    made = (
        generations
        if generations is not None
        else tuple(generation(repetition=i, warmup=i == 0, start_ns=(5_000 + 1_000 * i) * MS) for i in range(4))
    )
    arch = 75 if cell.part == "SM8650" else 73
    record = RunRecord(
        run_id=run_id,
        session_id="s1",
        source=source,
        cell=cell,
        workload=workload,
        started_at="2026-03-01T08:00:00Z",
        wall_s=12.5,
        device=device(cell, serial, virtual=source is Source.VIRTUAL),
        conditions=Conditions(
            battery_percent=80,
            battery_celsius=30.0,
            charging=True,
            thermal_status=0,
            memory_available_bytes=6 * 2**30,
            storage_available_bytes=20 * 2**30,
            uptime_s=3600.0,
            violations=(),
        ),
        host=HostState(
            n_cpus=2,
            load_1min_before=0.5,
            load_1min_after=1.25,
            available_bytes_before=4 * 2**30,
            available_bytes_after=4 * 2**30,
            heavy_processes=(),
        ),
        artifact_id="0123456789abcdef" if cell == GEN3 else "fedcba9876543210",
        artifact_name=str(cell),
        epcontext_nodes=(1, 1),
        cpu_nodes=(0, 0),
        runner_sha256=HASH,
        libraries_sha256={"libQnnHtp.so": HASH},
        job_sha256=HASH,
        prompt_sensitivity_expected=False,
        log=EMPTY_LOG if error is not None else log(made, arch=arch),
        sensors=() if error is not None else sensors(),
        files_sha256={f"runs/{run_id}/records.jsonl": HASH},
        bytes_pushed=5 * 2**20,
        push_s=1.5,
        attempts=1,
        retried_because=None,
        error=error,
    )
    return dataclasses.replace(record, **changes)


def comparisons(run_id: str, cell: Cell) -> tuple[LogitsComparison, ...]:
    """Prefill positions 0..3, decode 4..7. The phone: 40 dB, its worst decode 30 dB, one token wrong by 0.05. The
    graph: 42 dB throughout."""

    def one(leg: Leg, phase: str, positions: tuple[int, ...], snr: tuple[float, ...], argmax: tuple[int, ...]) -> Any:
        n = len(positions)
        return LogitsComparison(
            run_id=run_id if leg is Leg.PHONE else None,
            reference_id="ref1",
            cell=cell,
            leg=leg,
            prompt_id="story",
            phase=phase,
            positions=positions,
            relative_l2=tuple(10 ** (-value / 20) for value in snr),
            snr_db=snr,
            kl_nats=(0.001,) * n,
            argmax=argmax,
            reference_argmax=(7,) * n,
            reference_margin=(0.05,) * n,
        )

    return (
        one(Leg.GRAPH, "prefill", (0, 1, 2, 3), (42.0,) * 4, (7,) * 4),
        one(Leg.GRAPH, "decode", (4, 5, 6, 7), (42.0,) * 4, (7,) * 4),
        one(Leg.PHONE, "prefill", (0, 1, 2, 3), (40.0,) * 4, (7,) * 4),
        one(Leg.PHONE, "decode", (4, 5, 6, 7), (40.0, 40.0, 40.0, 30.0), (7, 7, 7, 8)),
    )


def windows(run_id: str, cell: Cell) -> tuple[WindowScores, ...]:
    """Mean NLL fp32 2.5 (perplexity 12.182), graph 2.51, phone 2.52 on two windows; the host scored three."""

    def one(leg: Leg, nll: float, n: int) -> WindowScores:
        return WindowScores(
            run_id=run_id if leg is Leg.PHONE else None,
            reference_id="ref1",
            cell=cell,
            leg=leg,
            corpus_sha256=CORPUS,
            context_length=512,
            window_ids=tuple(range(n)),
            nll_sum=(nll * 100,) * n,
            n_scored=(100,) * n,
        )

    return (one(Leg.FP32, 2.5, 3), one(Leg.GRAPH, 2.51, 3), one(Leg.PHONE, 2.52, 2))


REFERENCE = ReferenceFacts(
    reference_id="ref1",
    artifact_id="0123456789abcdef",
    onnxruntime_version="1.32.0",
    cpu_model="Example CPU",
    cpu_flags=("avx2",),
    n_threads=1,
    optimization_level="disabled",
)

LIMITS = (
    Limit(metric="decode_snr_db", minimum=30.0, reason="of a test", date="2026-01-01"),
    Limit(metric="perplexity_over_fp32_percent", maximum=5.0, reason="of a test", date="2026-01-01"),
    Limit(metric="kl_nats_mean", maximum=0.004, reason="of a test", date="2026-01-01"),
    Limit(metric="cpu_nodes", maximum=0.0, reason="of a test", date="2026-01-01"),
    Limit(metric="decode_tps", minimum=5.0, reason="of a test", date="2026-01-01"),
)


def session(**changes: Any) -> Session:
    made = Session(
        session_id="s1",
        schema=JOURNAL_SCHEMA,
        started_at="2026-03-01T07:59:00Z",
        source=None,
        versions={"snapgate": "0.1.0"},
        command=("pytest", "suites", "-m", "gen3"),
        required=("accuracy", "placement"),
        phones=("vphone-1",),
        notes=(),
    )
    return dataclasses.replace(made, **changes)


def two_cells() -> Journal:
    """A virtual gen3 phone with everything measured, a real gen2 phone with latency only, one run that lost its phone,
    and one cell that nobody ran."""
    lost = RunError(status=Status.INFRA, kind="PhoneLostError", message="the phone went away")
    check = SelfCheck(run_id="run-a", cell=GEN3, name="prompt_sensitivity", passed=True, detail="outputs differ")
    return Journal(
        sessions=(session(),),
        runs=(
            run("run-a", GEN3),
            run("run-b", GEN2, source=Source.PHONE, serial="PHONE2"),
            run("run-c", GEN2, source=Source.PHONE, serial="PHONE3", error=lost),
        ),
        references=(REFERENCE,),
        logits=comparisons("run-a", GEN3),
        windows=windows("run-a", GEN3),
        self_checks=(check,),
        not_covered=(
            NotCovered(
                session_id="s1",
                cell=dataclasses.replace(GEN3, part="SM8750"),
                status=Status.NOT_COVERED,
                reason="no phone with SM8750",
            ),
        ),
    )


def passing() -> Journal:
    """The virtual phone of ``two_cells`` alone: everything required passes."""
    whole = two_cells()
    return dataclasses.replace(whole, runs=whole.runs[:1], not_covered=())


def synthetic() -> Journal:
    made = passing()
    return dataclasses.replace(
        made,
        sessions=(session(source=Source.SYNTHETIC),),
        runs=tuple(dataclasses.replace(r, source=Source.SYNTHETIC) for r in made.runs),
    )


HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>\x1b[31m\u202egnp\u202c\x00 📱 שלום"


def hostile() -> Journal:
    """Every text that a phone or a user's folder can say is an attack."""
    made = passing()
    record = made.runs[0]
    evil_device = dataclasses.replace(
        record.device, model=HOSTILE, serial=HOSTILE, fingerprint=HOSTILE, android_release=HOSTILE, boot_id=HOSTILE
    )
    evil_log = dataclasses.replace(
        record.log,
        unknown_lines=(HOSTILE,),
        phases=tuple(dataclasses.replace(p, detail=HOSTILE) for p in record.log.phases),
    )
    evil_sensors = tuple(dataclasses.replace(s, name=HOSTILE) for s in record.sensors)
    evil = dataclasses.replace(
        record,
        device=evil_device,
        log=evil_log,
        sensors=evil_sensors,
        workload=HOSTILE,
        files_sha256={"../../../etc/passwd": HASH, "javascript:alert(1)": HASH, HOSTILE: HASH},
        retried_because=HOSTILE,
    )
    checks = (SelfCheck(run_id="run-a", cell=GEN3, name="prompt_sensitivity", passed=True, detail=HOSTILE),)
    notes = (session(command=("pytest", HOSTILE), notes=(HOSTILE,)),)
    return dataclasses.replace(made, sessions=notes, runs=(evil,), self_checks=checks, damaged=(HOSTILE,))


def fifty_runs() -> Journal:
    """50 runs on 10 phones: three repetitions of 128 tokens and 8 sensors of 120 readings each."""
    runs = []
    stamps = tuple((1_000 + 250 * i) * MS for i in range(120))
    for number in range(50):
        gaps = tuple(20.0 + (i * 7 + number) % 13 / 10 for i in range(127))
        made = tuple(
            generation(repetition=i, warmup=i == 0, start_ns=(5_000 + 4_000 * i) * MS, gaps_ms=gaps) for i in range(4)
        )
        lines = tuple(
            SensorSeries(
                name=f"zone-{domain}",
                domain=domain,
                unit="celsius",
                state="ok",
                monotonic_ns=stamps,
                values=tuple(30.0 + (i + k) % 40 / 4 for i in range(120)),
            )
            for k, domain in enumerate(("cpu", "gpu", "npu", "skin", "battery", "ddr", "other", "other"))
        )
        runs.append(
            run(
                f"run-{number:02d}",
                source=Source.PHONE,
                serial=f"PHONE{number % 10}",
                generations=made,
                sensors=lines,
                wall_s=30.0,
            )
        )
    logits = tuple(
        dataclasses.replace(
            item,
            positions=tuple(range(128)),
            relative_l2=(0.01,) * 128,
            snr_db=tuple(40.0 + i % 7 / 10 for i in range(128)),
            kl_nats=(0.001,) * 128,
            argmax=(7,) * 128,
            reference_argmax=(7,) * 128,
            reference_margin=(0.5,) * 128,
            prompt_id=f"p{number % 5}",
        )
        for number in range(50)
        for item in comparisons(f"run-{number:02d}", GEN3)
    )
    return Journal(sessions=(session(),), runs=tuple(runs), references=(REFERENCE,), logits=logits)


def manifest() -> ArtifactManifest:
    def quality(graph: str, value: float) -> PerplexityFigure:
        return PerplexityFigure(
            engine="onnxruntime-cpu",
            graph=graph,
            perplexity=value,
            n_windows=104,
            n_scored_tokens=53144,
            corpus_sha256=CORPUS,
        )

    return ArtifactManifest(
        schema=ARTIFACT_SCHEMA,
        model=ModelFacts(
            name="tiny-llama",
            architecture="LlamaForCausalLM",
            n_layers=4,
            hidden_size=192,
            intermediate_size=512,
            n_heads=6,
            n_kv_heads=2,
            head_dim=32,
            vocab_size=1024,
            max_context=512,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
            tied_embeddings=True,
            bos_id=1,
            eos_ids=(2,),
            n_parameters=1_800_000,
        ),
        recipe=Recipe(
            precision=Precision.W8A16,
            kv=KvPrecision.KV8,
            context_length=512,
            prefill_tokens=64,
            rmsnorm="operator",
            mask_value=-100.0,
            calibration_method="minmax",
            calibration_samples=16,
            calibration_tokens=8192,
            calibration_text_sha256=CORPUS,
        ),
        target=Target(part="SM8650", soc_number=57, htp_arch=75, vtcm_mb=8, optimization_level=3),
        contexts=(ContextFile(file="ar64.bin", sha256=HASH, n_bytes=3 * 2**20, graphs=()),),
        tools={"onnxruntime": "1.32.0"},
        checkpoint_sha256={"model.safetensors": HASH},
        files_sha256={"ar64.bin": HASH},
        quality=(quality("fp32", 12.5), quality("kv8", 13.0), quality("kv16", 12.625)),
        accuracy=AccuracyFigures(layer_snr_db=(45.0, 44.25), logits_snr_db=41.5, top1_agreement=0.982, n_positions=512),
    )


def thorough_manifest() -> ArtifactManifest:
    """``manifest`` with an AR-1 graph whose cache is 2 x 32 x 511 bytes."""
    spec = TensorSpec(name="past_key_0", dtype=DType.UFIXED8, shape=(1, 2, 32, 511))
    graph = GraphSpec(name="ar1", n_tokens=1, inputs=(spec,), outputs=(), epcontext_nodes=1, cpu_nodes=0)
    return dataclasses.replace(
        manifest(), contexts=(ContextFile(file="ar1.bin", sha256=HASH, n_bytes=1, graphs=(graph,)),)
    )


def thorough() -> Journal:
    """A phone in fair condition with everything there is to draw: prompts of 16, 32 and 256 tokens five times each
    (n/2 + 10 + r ms to the first token), one long text that throttles after 400 gaps of 10 ms, skin, clock and battery
    (2 W)."""
    short = tuple(
        generation(
            prompt_id=f"p{n}",
            repetition=r,
            n_prompt=n,
            first_ms=n / 2 + 10 + r,
            gaps_ms=(10.0,) * 20,
            start_ns=(20_000 + 1_000 * (5 * i + r)) * MS,
        )
        for i, n in enumerate((16, 32, 256))
        for r in range(5)
    )
    long = generation(prompt_id="long", gaps_ms=(10.0,) * 400 + (20.0,) * 400)
    stamps = tuple((1_000 + 1_000 * i) * MS for i in range(34))

    def sensor(name: str, domain: str, unit: str, values: tuple[float, ...]) -> SensorSeries:
        return SensorSeries(name=name, domain=domain, unit=unit, state="ok", monotonic_ns=stamps, values=values)

    lines = (
        sensor("skin", "skin", "celsius", tuple(30.0 + min(max(i - 4, 0), 10) for i in range(34))),
        sensor("clock policy0", "cpu", "hz", tuple(3e9 if i < 9 else 1.5e9 for i in range(34))),
        sensor("battery current_now", "battery", "ua", (-500_000.0,) * 34),
        sensor("battery voltage_now", "battery", "uv", (4_000_000.0,) * 34),
    )
    made = run("run-t", source=Source.PHONE, serial="P1", generations=(long, *short), sensors=lines, wall_s=40.0)
    conditions = dataclasses.replace(made.conditions, charging=False)
    made = dataclasses.replace(made, conditions=conditions, artifact_id=thorough_manifest().artifact_id)
    return Journal(
        sessions=(session(),),
        runs=(made,),
        references=(REFERENCE,),
        logits=comparisons("run-t", GEN3),
        windows=windows("run-t", GEN3),
    )
