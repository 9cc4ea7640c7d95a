"""One run on one phone, as it is journalled: what ran where, under which conditions, and the raw outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.record.moved import BytesPerToken
from harness.record.runner import Bandwidth, RunnerLog
from harness.record.vocabulary import Source, Status
from harness.soc import KvPrecision, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One column of the test plan: a model in one precision on one SoC."""

    model: str
    precision: Precision
    kv: KvPrecision
    part: str

    def __str__(self) -> str:
        return f"{self.model}-{self.precision}-{self.kv}-{self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Who the phone is. None: the phone does not say."""

    transport: str
    """adb's name for the connection; not an identity."""
    serial: str
    """ro.serialno"""
    fingerprint: str
    """ro.build.fingerprint"""
    model: str
    part: str
    soc_source: str
    """Which property the part was read from."""
    abi: str
    android_release: str
    sdk_level: int | None
    ram_bytes: int | None
    boot_id: str
    virtual: bool
    isolation: str | None = None
    """``ro.snapgate.isolation`` of a virtual phone: ``namespaces``, or ``paths`` where the host refuses those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The lab host, as psutil saw it just before and after the run."""

    n_cpus: int
    load_1min_before: float
    load_1min_after: float
    available_bytes_before: int
    available_bytes_after: int
    heavy_processes: tuple[str, ...]
    """Names of other processes that used over half a core, at most 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The phone just before the run. None: could not be read. No ``violations``: a fair speed run was possible."""

    battery_percent: int | None
    battery_celsius: float | None
    charging: bool | None
    thermal_status: int | None
    """0 none .. 6 shutdown, as ``dumpsys thermalservice``."""
    memory_available_bytes: int | None
    storage_available_bytes: int | None
    uptime_s: float | None
    violations: tuple[str, ...]
    charger: str | None = None
    """``ac``, ``usb``, ``wireless``, ``dock`` or ``none``"""
    trend_celsius_per_min: float | None = None
    """How fast the skin (without such a sensor, the battery) warms; negative: it cools."""
    screen_on: bool | None = None
    airplane_mode: bool | None = None
    power_saver: bool | None = None
    refresh_hz: float | None = None
    background_load: float | None = None
    """Share of all CPUs that others kept busy, 0..1"""
    governors: tuple[str, ...] = ()
    """Of the CPU clusters, in the kernel's order; empty: not readable"""
    clock_limits: tuple[str, ...] = ()
    """Clusters whose highest clock is held below what the hardware can"""
    since_last_run_s: float | None = None
    """Since SnapGate's last run on this phone; None: none since it booted."""
    changed: tuple[str, ...] = ()
    """What SnapGate had set on the phone for this run, and puts back"""
    policy: str = "proceed"
    """``wait``, ``refuse`` or ``proceed``"""
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSeries:
    """One sensor over the run. ``domain``: cpu, gpu, npu, skin, battery, ddr, other, memory. They are never mixed."""

    name: str
    domain: str
    unit: str
    """``celsius``, ``hz``, ``ua``, ``uv``, ``bytes``"""
    state: str
    """``ok``, ``partial`` (some readings missing), ``suspect`` (constant or a sentinel) or ``unavailable``."""
    monotonic_ns: tuple[int, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why a run has no, or only part of, its result, and whether the lab or the model is to blame."""

    status: Status
    """FAIL (the model's) or INFRA (the lab's)"""
    kind: str
    """Class name of the error: PhoneLostError, RunnerError, ..."""
    message: str
    transient: bool = False
    """The same run may well succeed if tried once more"""


QNN: Final = "qnn"
"""The native runner on Qualcomm's QNN libraries: the one runtime there is so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    run_id: str
    session_id: str
    source: Source
    cell: Cell
    workload: str
    started_at: str
    """UTC, ISO 8601"""
    wall_s: float
    device: DeviceFacts
    conditions: Conditions
    host: HostState | None
    artifact_id: str
    artifact_name: str
    epcontext_nodes: tuple[int, ...]
    """Per graph of the artifact, from its manifest."""
    cpu_nodes: tuple[int, ...]
    runner_sha256: str
    libraries_sha256: dict[str, str]
    job_sha256: str
    prompt_sensitivity_expected: bool
    """True when the workload has at least two different prompts whose outputs must differ."""
    log: RunnerLog
    sensors: tuple[SensorSeries, ...]
    files_sha256: dict[str, str]
    """Pulled files below the results folder: relative path to sha256."""
    bytes_pushed: int
    push_s: float
    attempts: int
    """1, or 2 when a transient lab fault was retried once."""
    retried_because: str | None
    error: RunError | None
    defects: tuple[str, ...] = ()
    """Of ``ArtifactManifest.defects``: what is wrong on the emulator."""
    bandwidth: Bandwidth | None = None
    """Of the phone's memory, within seconds of the last token; None: not asked for, or it gave no figure."""
    moved: BytesPerToken | None = None
    """By one decode step of the artifact, from its manifest; None: it has no AR-1 graph."""
    operations_per_token: int | None = None
    """Of one prompt token, from the manifest (``harness.record.moved``)"""
    runtime: str = QNN
    """What executed the model. Figures of different runtimes are compared, never pooled."""
