"""What the native runner writes (JSON Lines, schema ``snapgate.runner/1``), as dataclasses.

The schema itself is ``schema/runner_record.schema.json``; both test suites check their side against it.
All ``*_ns`` are CLOCK_MONOTONIC of the phone unless the name says otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import UserError
from harness.record.codec import from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    monotonic_ns: int
    boottime_ns: int
    realtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    schema: str
    run_id: str
    nonce: str
    runner_version: str
    abi: str
    compiler: str
    build_type: str
    pid: int
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The QNN libraries as they name themselves, and what the device accepted."""

    provider: str
    core_api: str
    backend_api: str
    system_api: str
    build_id: str
    device_config: str
    performance_mode: str
    performance_accepted: bool
    memory: str
    """``rpcmem``: the phone lends memory that host and DSP share; ``heap``: it does not, or was not asked. What the
    tensors lie in is in ``Buffers``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLoaded:
    file: str
    n_bytes: int
    sha256: str
    dsp_arch: int
    soc_number: int
    blob_version: str
    build_id: str
    graphs: tuple[str, ...]
    vtcm_bytes: tuple[int | None, ...] = ()
    """As ``graphs``: what each was compiled for; None: the binary does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSetting:
    """One thing asked of the platform, and its answer."""

    name: str
    """``clocks``, ``rpc_latency``, ``rpc_polling``, ``graph_priority GRAPH``, ``profiling GRAPH``, ``cpu_affinity``."""
    asked: str
    accepted: bool
    in_force: str | None
    """Read back; None: the platform does not let us."""
    qnn_code: int | None
    qnn_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    settings: tuple[ControlSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvent:
    name: str
    """As the library calls it; of an operator, its name in the graph."""
    type: int
    """400: the execution, 404: an operator, 3000 and above: of the HTP."""
    unit: str
    """``us``, ``bytes``, ``cycles``, ``count``, ``object`` or ``none``."""
    value: int
    depth: int
    """0: a whole; 1: a part of the last event of depth 0 before it; and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What the library says of the last execution of one graph in one generation."""

    prompt_id: str
    repetition: int
    warmup: bool
    graph: str
    level: str
    position: int
    """In the context: of the first token of that step."""
    events: tuple[ProfileEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A load phase: open_libraries, backend, device, read, verify, context_create, graph_retrieve, buffers; and
    first_execute, the first step of the first generation (part of its time, not of the load's)."""

    name: str
    detail: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    alignment_bytes: int
    kv_pool_bytes: int
    io_bytes: int
    n_tensors: int
    registered: bool
    memory: str = "heap"
    """``rpcmem``: shared with the DSP, every tensor registered; ``heap``: plain aligned memory. One for all tensors."""
    n_registered: int = 0
    """Handles of registered memory; tensors of one place and shape in one context share theirs."""
    fallback: str | None = None
    """Why tensors lie in plain memory although shared memory was wanted: which buffer or tensor, and what it was."""
    kv_token_bytes: int | None = None
    """Of the new keys and values that one decode step stores in the cache; None in older records."""
    kv_token_stores: int | None = None
    """To so many places: each element of the keys alone, for they lie a row apart, the values of a head as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """/proc/self/status at one moment: ``after_load`` or ``end``. None where the kernel does not say."""

    at: str
    vm_hwm_bytes: int | None
    vm_rss_bytes: int | None
    vm_swap_bytes: int | None
    rss_anon_bytes: int | None
    rss_file_bytes: int | None
    monotonic_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillChunk:
    n_tokens: int
    n_graph_tokens: int
    """The N of the AR-N graph that ran: n_tokens real ones, the rest padding."""
    start_ns: int
    end_ns: int
    """When the graph has returned; storing what it wrote follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsFile:
    """Raw logits in the graph's own dtype, row-major (n_rows, n_columns), at an offset of a pulled file."""

    file: str
    offset_bytes: int
    n_rows: int
    n_columns: int
    dtype: str
    scale: float | None
    zero_point: int | None
    first_position: int
    """Position in the context of the token that the first row was computed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCopies:
    """One graph output of one generation: a raw copy a step, one behind the other, at an offset of a pulled file."""

    name: str
    graph: str
    dtype: str
    shape: tuple[int, ...]
    """Of one copy."""
    scale: float | None
    zero_point: int | None
    file: str
    offset_bytes: int
    positions: tuple[int, ...]
    """Per copy: position in the context of the step's first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One prompt, once. Stamps are raw; nothing is averaged on the phone.

    generate: ``token_ids`` are the ids appended (greedy, sampled or forced), ``argmax_ids`` what greedy would have
    chosen at the same step, ``token_ns`` the moment each was known. ``token_ns[0]`` ends the time to first token.
    score: no token is generated; ``nll[i]`` is -ln p(token i+1 | tokens 0..i), n_prompt - 1 values.
    """

    prompt_id: str
    mode: str
    repetition: int
    warmup: bool
    step_with: str
    """``chunk``: prefill by the AR-N graph; ``token``: the prompt goes through the AR-1 graph one by one."""
    n_prompt: int
    n_cached: int
    """Tokens in the cache at the start."""
    start_ns: int
    end_ns: int
    prefill: tuple[PrefillChunk, ...]
    relayout_ns: int
    token_ns: tuple[int, ...]
    token_ids: tuple[int, ...]
    argmax_ids: tuple[int, ...]
    stop: str
    """``eos``, ``stop_id``, ``length`` (n_gen reached), ``context`` (KV pool full) or ``scored``."""
    nll: tuple[float, ...]
    logits: LogitsFile | None
    heap_allocations: int
    """Allocations of the runner's own code from the first prefill chunk to the last token. Must be 0."""
    n_carried: int = 0
    """1: the last token of the round before was fed before the prompt."""
    pace_ns: int = 0
    """Time that ``pace_tps`` held decode steps back, in all."""
    outputs: tuple[OutputCopies, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A generation that has no record, as far as it came (``stamps.py``); never part of a figure.

    Fields are as in ``Generation``.
    """

    prompt_id: str
    repetition: int
    warmup: bool
    start_ns: int
    prefill: tuple[PrefillChunk, ...]
    """Whole steps only."""
    relayout_ns: int
    token_ns: tuple[int, ...]
    token_ids: tuple[int, ...]
    argmax_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerFault:
    """One structured error. ``exit_code`` is listed in ``schema/exit_codes.json``."""

    error: str
    exit_code: int
    where: str
    what: str
    found: str
    expected: str
    next_step: str
    qnn_code: int | None
    qnn_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """At most one a second, on stdout only, and only after progress. Not kept: ``records.jsonl`` has none."""

    phase: str
    step: int
    monotonic_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    exit_code: int
    n_records: int
    """How many lines came before this one."""
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """What ``snapgate-runner --bandwidth`` measures: all processors together read a buffer that no cache holds."""

    n_bytes: int
    """Read in each pass, by all threads together"""
    n_threads: int
    """One for each processor that the process may use"""
    last_level_cache_bytes: int | None
    """Of the processors; None: the kernel does not say."""
    start_ns: int
    """Of the first pass"""
    pass_ns: tuple[int, ...]
    """Of each pass: from the first thread's start to the last one's end. At least 12, and as many as a second holds:
    clocks rise only under load."""

    @property
    def gb_per_s(self) -> float:
        """Of the best pass, in 10^9 bytes: interruptions only ever take time."""
        return self.n_bytes / min(self.pass_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLog:
    """All records of one runner process, sorted by kind. ``end is None``: the process did not finish."""

    start: Start | None
    platform: Platform | None
    contexts: tuple[ContextLoaded, ...]
    phases: tuple[Phase, ...]
    buffers: Buffers | None
    memory: tuple[Memory, ...]
    generations: tuple[Generation, ...]
    fault: RunnerFault | None
    end: End | None
    unknown_lines: tuple[str, ...]
    """Lines that are no record (cut short, or somebody else's output), at most 20, each at most 200 characters."""
    unfinished: Unfinished | None = None
    """The generation that a killed process was at; never counted among ``generations``."""
    control: Control | None = None
    profiles: tuple[Profile, ...] = ()


EMPTY_LOG = RunnerLog(
    start=None,
    platform=None,
    contexts=(),
    phases=(),
    buffers=None,
    memory=(),
    generations=(),
    fault=None,
    end=None,
    unknown_lines=(),
)

_KINDS: dict[str, type[Any]] = {
    "start": Start,
    "platform": Platform,
    "context": ContextLoaded,
    "control": Control,
    "profile": Profile,
    "phase": Phase,
    "buffers": Buffers,
    "memory": Memory,
    "generation": Generation,
    "error": RunnerFault,
    "heartbeat": Heartbeat,
    "end": End,
    "bandwidth": Bandwidth,
}


_INTEGER_BITS: Final = 63
_HEARTBEAT_START: Final = '{"type": "heartbeat"'
_MAX_HEARTBEAT: Final = 1000
_MAX_LINE: Final = 64 * 1024 * 1024


def parse_runner_lines(lines: Iterable[str]) -> RunnerLog:
    """Total: any text gives a log. A line that is not a valid record is kept, cut short, in ``unknown_lines``.

    What the journal cannot hold, or a division overflows on, is no record: NaN, infinity, an integer over 64 bits, a
    text without a UTF-8 form.
    """
    found, unknown = _read_lines(lines)
    return RunnerLog(
        start=_last(found["start"]),
        platform=_last(found["platform"]),
        contexts=tuple(found["context"]),
        phases=tuple(found["phase"]),
        buffers=_last(found["buffers"]),
        memory=tuple(found["memory"]),
        generations=tuple(found["generation"]),
        fault=_last(found["error"]),
        end=_last(found["end"]),
        unknown_lines=tuple(unknown),
        control=_last(found["control"]),
        profiles=tuple(found["profile"]),
    )


def parse_bandwidth(lines: Iterable[str]) -> Bandwidth | None:
    """Of what ``--bandwidth`` writes; None: no line is one, or it cannot be a measurement."""
    found: Bandwidth | None = _last(_read_lines(lines)[0]["bandwidth"])
    if found is None or found.n_bytes <= 0 or not found.pass_ns or min(found.pass_ns) <= 0:
        return None
    return found


def _read_lines(lines: Iterable[str]) -> tuple[dict[str, list[Any]], list[str]]:
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    unknown: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            if len(line) > _MAX_LINE:
                raise ValueError("no record is that long")
            data = json.loads(line, parse_constant=_no_number, parse_float=_finite, parse_int=_integer)
            json.dumps(data, ensure_ascii=False).encode()
            kind = data.pop("type")
            found[kind].append(from_json(data, _KINDS[kind], name="runner line"))
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError, UserError):
            if len(unknown) < 20:
                unknown.append(line.strip()[:200])
    return found, unknown


def heartbeat_step(line: str) -> int | None:
    """The step a heartbeat tells; None: the line is something else."""
    if not line.startswith(_HEARTBEAT_START) or len(line) > _MAX_HEARTBEAT:
        return None
    beats: list[Heartbeat] = _read_lines([line])[0]["heartbeat"]
    return beats[0].step if beats else None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number without end")
    return value


def _integer(text: str) -> int:
    value = int(text)
    if value.bit_length() > _INTEGER_BITS:
        raise ValueError("a number over 64 bits, sign included")
    return value


def _last(items: list[Any]) -> Any:
    return items[-1] if items else None
