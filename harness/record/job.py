"""The job file: what the harness asks of the runner (schema ``snapgate.job/1``, ``schema/job.schema.json``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from harness.record.artifact import GraphSpec

JOB_SCHEMA: Final = "snapgate.job/1"


class Logits(StrEnum):
    """Which logits are written to ``logits.bin``."""

    NONE = "none"
    ALL = "all"
    """Every position that was computed: generate: n_prompt + n_gen - 1 rows; score: n_prompt rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    path: PurePosixPath
    sha256: str
    n_bytes: int
    graphs: tuple[GraphSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    n_layers: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    mask_value: float
    eos_ids: tuple[int, ...]
    soc_number: int
    htp_arch: int
    rope_table: PurePosixPath
    """float32: cos (context_length, head_dim/2), then sin of the same shape"""
    rope_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLibraries:
    backend: PurePosixPath
    """libQnnHtp.so"""
    system: PurePosixPath
    """libQnnSystem.so"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a token is drawn; ``device_runtime/src/sampler.h`` says in which order these apply. Each generation starts
    with ``seed``, so repetitions choose alike."""

    temperature: float = 1.0
    """0: the greatest logit after the penalty."""
    top_k: int = 0
    """0: all."""
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """``mode`` generate: ``n_gen`` tokens after ``tokens``; score: NLL of ``tokens[1:]``, ``n_gen`` is 0.

    ``forced`` (generate only, n_gen ids): fed instead of the choice.
    """

    prompt_id: str
    mode: str
    tokens: tuple[int, ...]
    n_gen: int
    forced: tuple[int, ...] = ()
    ignore_eos: bool = False
    step_with: str = "chunk"
    logits: Logits = Logits.NONE
    warmups: int = 0
    repetitions: int = 1
    stop_ids: tuple[int, ...] = ()
    """End the generation, besides the model's end tokens; ``ignore_eos`` does not touch them."""
    sampling: Sampling | None = None
    """None: greedy."""
    keep_cache: bool = False
    """A further round: goes on behind what the prompt before left in the KV cache. The last token of that round, which
    no step has seen yet, is fed first (``n_carried`` of the record). Once, without warm-ups."""
    n_cached: int = 0
    """Depth: the cache starts with this many tokens that no text stands for. Their keys and values are multiples of 1/8
    from -1 to 1, by position, head and dimension (``device_runtime/src/kv_cache.h``). Speed is that of the depth;
    the output means nothing."""
    outputs: tuple[str, ...] = ()
    """Names of graph outputs to be written to ``outputs.bin`` at every step."""
    pause_s: float = 0.0
    """At rest before each generation, warm-ups too: the model stays loaded, nothing is asked of the device. At most
    3600; no stamp counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How the runner is to behave, whatever it runs."""

    watchdog_s: float | None = None
    """Longest that one load phase or graph execution may take before the runner ends itself (HUNG); None: any time."""
    heartbeat: bool = True
    """A line a second on stdout while there is progress."""
    stamps: bool = True
    """``stamps.bin``, from which a killed generation is recovered."""
    pace_tps: float | None = None
    """Decode steps begin at most so often a second, for the trade of speed against heat; None: as soon as they can."""
    sleep_latency_us: int | None = None
    """How late the HTP may wake from sleep, 1 to 65535; None: as the performance mode has it. Not in mode default."""
    rpc_polling_us: int | None = None
    """How long the host polls for an answer before it sleeps, 0 (no vote) to 9999; None and default as above."""
    graph_priority: str | None = None
    """``low``, ``normal``, ``normal_high``, ``high``; None: the library's default."""
    profiling: str = "off"
    """``basic``, ``detailed`` (cycles of each operator), ``linting``. The library slows down for it: steps are then no
    measure of speed."""
    prefetch: bool = True
    """The kernel is asked for the context binaries while libraries and device open."""
    memory: str = "auto"
    """Of tensors. ``auto``: shared with the DSP and registered where the phone has it; ``heap``: plain."""
    cpu_affinity: tuple[int, ...] = ()
    """Cores on which the thread that calls the library may run; empty: any."""


DEFAULT_OPTIONS: Final = RunOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    schema: str
    run_id: str
    nonce: str
    libraries: JobLibraries
    performance_mode: str
    """``default`` (no vote), or from the highest clocks to the lowest: ``burst``, ``sustained_high_performance``,
    ``high_performance``, ``balanced``, ``low_balanced``, ``high_power_saver``, ``power_saver``, ``low_power_saver``,
    ``extreme_power_saver``. What each votes for is in ``device_runtime/src/power_vote.cpp``."""
    model: JobModel
    contexts: tuple[JobContext, ...]
    prompts: tuple[Prompt, ...]
    options: RunOptions = DEFAULT_OPTIONS
