"""Who is to blame when a run has no whole result: the lab (INFRA) or the model (FAIL).

Trouble of the lab must never look like a failure of the model, and the other way round. Everything that decides it is
in the two tables below and in ``judge_run``, whose order is the order of evidence: a phone that rebooted explains
whatever came after.
"""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.device.faults import storage_fault
from harness.device.text import printable
from harness.record.artifact import ArtifactManifest
from harness.record.run import Conditions, RunError
from harness.record.runner import RunnerLog
from harness.record.vocabulary import Status
from harness.run.libraries import RUNNER
from harness.run.plausible import contradictions
from harness.run.signs import Signs, read_signs
from harness.run.workload import Workload


class Blame(StrEnum):
    NOBODY = "nobody"
    LAB = "lab"
    LAB_TRANSIENT = "lab, worth one more try"
    MODEL = "model"
    MEMORY = "lab if the phone was short of memory at the start, else model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    name: str
    blame: Blame
    why: str


RUNNER_EXITS: Final[Mapping[int, Meaning]] = {
    0: Meaning(name="OK", blame=Blame.NOBODY, why="finished"),
    2: Meaning(name="USAGE", blame=Blame.LAB, why="runner and harness are of different versions"),
    10: Meaning(name="JOB_INVALID", blame=Blame.LAB, why="runner and harness are of different versions"),
    11: Meaning(name="FILE_MISSING", blame=Blame.LAB_TRANSIENT, why="a pushed file is gone from the phone"),
    12: Meaning(name="HASH_MISMATCH", blame=Blame.LAB_TRANSIENT, why="a pushed file was damaged on the phone"),
    13: Meaning(name="ARCH_MISMATCH", blame=Blame.MODEL, why="the binary is not for the arch its manifest states"),
    14: Meaning(name="TENSOR_MISMATCH", blame=Blame.MODEL, why="the binary does not have the manifest's tensors"),
    15: Meaning(name="PROMPT_TOO_LONG", blame=Blame.MODEL, why="the artifact cannot take this workload"),
    20: Meaning(name="LIBRARY_LOAD", blame=Blame.LAB, why="a QNN library is missing or of another kind"),
    21: Meaning(name="API_UNSUPPORTED", blame=Blame.LAB, why="the QNN libraries are of an unknown version"),
    22: Meaning(name="BACKEND_FAILED", blame=Blame.LAB, why="the NPU backend did not start, before any model"),
    23: Meaning(name="DEVICE_FAILED", blame=Blame.LAB, why="the NPU session did not open, before any model"),
    24: Meaning(name="CONTEXT_FAILED", blame=Blame.MODEL, why="the libraries refuse the context binary"),
    25: Meaning(name="GRAPH_FAILED", blame=Blame.MODEL, why="a graph of the binary cannot be retrieved"),
    26: Meaning(name="EXECUTE_FAILED", blame=Blame.MODEL, why="a graph failed while running"),
    30: Meaning(name="OUT_OF_MEMORY", blame=Blame.MEMORY, why="an allocation failed"),
    31: Meaning(name="IO_FAILED", blame=Blame.LAB, why="the records could not be written on the phone"),
    40: Meaning(name="TERMINATED", blame=Blame.LAB, why="somebody ended the runner"),
    41: Meaning(name="HUNG", blame=Blame.LAB_TRANSIENT, why="a call into the QNN library did not return"),
    70: Meaning(name="INTERNAL", blame=Blame.MODEL, why="the runner contradicts itself; no lab fault can do that"),
}
"""The runner's codes of ``record/schema/exit_codes.json``; a test holds the two together."""

SIGNALS: Final[Mapping[int, Meaning]] = {
    signal.SIGKILL: Meaning(name="SIGKILL", blame=Blame.LAB, why="a program never does this to itself"),
    signal.SIGTERM: Meaning(name="SIGTERM", blame=Blame.LAB, why="somebody ended the runner"),
    signal.SIGHUP: Meaning(name="SIGHUP", blame=Blame.LAB_TRANSIENT, why="the connection that ran it is gone"),
    signal.SIGINT: Meaning(name="SIGINT", blame=Blame.LAB, why="somebody ended the runner"),
    signal.SIGPIPE: Meaning(name="SIGPIPE", blame=Blame.LAB_TRANSIENT, why="the connection that ran it is gone"),
    signal.SIGSEGV: Meaning(name="SIGSEGV", blame=Blame.MODEL, why="crashed"),
    signal.SIGABRT: Meaning(name="SIGABRT", blame=Blame.MODEL, why="aborted itself"),
    signal.SIGBUS: Meaning(name="SIGBUS", blame=Blame.MODEL, why="crashed"),
    signal.SIGFPE: Meaning(name="SIGFPE", blame=Blame.MODEL, why="crashed"),
    signal.SIGILL: Meaning(name="SIGILL", blame=Blame.MODEL, why="crashed"),
    signal.SIGTRAP: Meaning(name="SIGTRAP", blame=Blame.MODEL, why="crashed"),
    signal.SIGSYS: Meaning(name="SIGSYS", blame=Blame.MODEL, why="a forbidden system call"),
}

_MEMORY_KILLER: Final = re.compile(
    r"(lowmemorykiller|\blmkd\b)\W.*\bkill|Out of memory: Kill|oom-kill|oom_reaper", re.IGNORECASE
)
_LINE: Final = 1000
_NO_START: Final = re.compile(r"CANNOT LINK EXECUTABLE|error while loading shared libraries|not executable: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known after the runner's process ended by itself. ``exit_code``: 128 + n for signal n."""

    exit_code: int
    stderr: str
    logcat: str
    log: RunnerLog
    run_id: str
    nonce: str
    pulled: Mapping[str, int] | None = None
    """Bytes of each file that was fetched; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    error: RunError | None
    transient: bool


CLEAN: Final = Judgement(error=None, transient=False)


def memory_killer_lines(logcat: str) -> tuple[str, ...]:
    """Lines in which Android's or the kernel's memory killer says that it killed, the last three."""
    return tuple(printable(line) for line in logcat.splitlines() if _MEMORY_KILLER.search(line[:_LINE]))[-3:]


def memory_needed(manifest: ArtifactManifest) -> int:
    """Bytes that the artifact cannot do without: its context binaries, once."""
    return sum(context.n_bytes for context in manifest.contexts)


def judge_run(
    evidence: Evidence, *, workload: Workload, manifest: ArtifactManifest, conditions: Conditions
) -> Judgement:
    """The verdict on a runner that ended by itself, from its exit status, its records and the phone's log."""
    log, code = evidence.log, evidence.exit_code
    if log.start is not None and (log.start.run_id, log.start.nonce) != (evidence.run_id, evidence.nonce):
        return _infra("TransferError", f"the records belong to another run ({printable(log.start.run_id)})", True)
    if code > 128:
        return _judge_signal(evidence)
    if code in (126, 127) or (log.start is None and (_NO_START.search(evidence.stderr) or code not in RUNNER_EXITS)):
        storage = storage_fault(evidence.stderr, what="start the runner", phone="under test")
        if storage is not None:
            return _infra("PhoneStorageError", str(storage))
        return _infra("InfraError", f"the runner did not start: exit code {code}: {_tail(evidence.stderr)}")
    if code != 0:
        return _judge_exit(evidence, manifest=manifest, conditions=conditions)
    if log.end is None or log.end.exit_code != 0:
        return _infra("TransferError", "the runner ended well, but its records are incomplete: no `end` record", True)
    n_records = count_records(log)
    if n_records != log.end.n_records or log.unknown_lines:
        return _infra(
            "TransferError",
            f"the records are damaged: {n_records} of {log.end.n_records} are readable"
            + (f", the first foreign line is {printable(log.unknown_lines[0], 80)!r}" if log.unknown_lines else ""),
            True,
        )
    wrong = list(contradictions(log, workload=workload, manifest=manifest, pulled=evidence.pulled))
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return _infra("TransferError", f"the records do not answer the job: {wrong[0]}{more}", True)
    return CLEAN


_AT_THE_DSP: Final = frozenset(
    {"DEVICE_FAILED", "CONTEXT_FAILED", "GRAPH_FAILED", "EXECUTE_FAILED", "HUNG", "BACKEND_FAILED"}
)
"""Runner errors that a crash of the DSP shows as."""
_AT_AN_ACCESS: Final = _AT_THE_DSP | {"LIBRARY_LOAD", "IO_FAILED", "FILE_MISSING", "OUT_OF_MEMORY"}


def _signs(evidence: Evidence) -> Signs:
    start = evidence.log.start
    return read_signs(evidence.logcat, pid=start.pid if start is not None else None)


def _of_the_phone(signs: Signs, text: str, name: str | None) -> Judgement | None:
    """What the phone's log explains; ``name``: the runner's error, None for a signal."""
    if signs.denial is not None and (name is None or name in _AT_AN_ACCESS):
        return _infra("InfraError", f"SELinux denied the runner an access: {signs.denial}; then {text}")
    if signs.dsp_crash is not None and (name is None or name in _AT_THE_DSP):
        return _infra("InfraError", f"the phone's cDSP crashed during the run: {signs.dsp_crash}; then {text}", True)
    return None


def _judge_signal(evidence: Evidence) -> Judgement:
    number = evidence.exit_code - 128
    meaning = SIGNALS.get(number)
    if meaning is None:
        return _infra("InfraError", f"the runner was ended by signal {number}, which no program sends to itself")
    killers = memory_killer_lines(evidence.logcat)
    ours = [line for line in killers if _names_runner(line, evidence.log)]
    if number == signal.SIGKILL and ours:
        return _infra("InfraError", f"the phone killed the runner for lack of memory: {ours[-1]}")
    text = f"the runner was ended by {meaning.name} ({meaning.why})"
    if number == signal.SIGKILL and killers:
        text += f"; the phone killed another process for lack of memory: {killers[-1]}"
    signs = _signs(evidence)
    if meaning.blame is Blame.MODEL and signs.tombstone is not None:
        text += f"; tombstone: {signs.tombstone}"
    if meaning.blame is Blame.MODEL and (found := _of_the_phone(signs, text, None)) is not None:
        return found
    if meaning.blame is Blame.MODEL and evidence.log.start is None:
        return _infra("InfraError", f"{text} before its first record, so before any model: {_tail(evidence.stderr)}")
    if meaning.blame is Blame.MODEL:
        return _fail(f"{text}: {_tail(evidence.stderr)}")
    return _infra("InfraError", text, meaning.blame is Blame.LAB_TRANSIENT)


def _names_runner(line: str, log: RunnerLog) -> bool:
    """Whether a killer's line is about the runner: by its name, which the kernel cuts to 15 letters, or its pid."""
    pid = log.start.pid if log.start is not None else 0
    return RUNNER[:15] in line or (pid > 0 and re.search(rf"(?<!\d){pid}(?!\d)", line) is not None)


def _judge_exit(evidence: Evidence, *, manifest: ArtifactManifest, conditions: Conditions) -> Judgement:
    fault = evidence.log.fault
    code = fault.exit_code if fault is not None else evidence.exit_code
    meaning = RUNNER_EXITS.get(code)
    said = _fault_text(evidence)
    if meaning is None or meaning.blame is Blame.NOBODY:
        return _fail(f"the runner ended with exit code {evidence.exit_code}, which it does not define: {said}")
    if fault is None or fault.exit_code != evidence.exit_code:
        text = f"the runner ended with exit code {evidence.exit_code}, and its records do not say why: {said}"
        return _infra("TransferError", text, True)
    text = f"{meaning.name}: {meaning.why}: {said}"
    if (found := _of_the_phone(_signs(evidence), text, meaning.name)) is not None:
        return found
    if meaning.blame is Blame.MODEL:
        return _fail(text)
    if meaning.blame is Blame.MEMORY:
        free, needed = conditions.memory_available_bytes, memory_needed(manifest)
        if memory_killer_lines(evidence.logcat) or (free is not None and free < needed):
            shown = "unknown" if free is None else f"{free / 1e6:.0f} MB"
            return _infra(
                "InfraError", f"{text}; the phone had {shown} free at the start, {needed / 1e6:.0f} MB needed"
            )
        return _fail(text)
    kind = {"FILE_MISSING": "TransferError", "HASH_MISMATCH": "TransferError", "IO_FAILED": "PhoneStorageError"}
    return _infra(kind.get(meaning.name, "InfraError"), text, meaning.blame is Blame.LAB_TRANSIENT)


def _fault_text(evidence: Evidence) -> str:
    fault = evidence.log.fault
    if fault is None:
        return _tail(evidence.stderr)
    parts = [fault.what]
    parts += [f"found: {fault.found}"] if fault.found else []
    parts += [f"expected: {fault.expected}"] if fault.expected else []
    parts += [f"QNN {fault.qnn_code} {fault.qnn_name or ''}"] if fault.qnn_code is not None else []
    parts += [f"next step: {fault.next_step}"] if fault.next_step else []
    return printable("; ".join(parts), 800)


_NO_RECORDS: Final = frozenset({"end", "unknown_lines", "unfinished"})
"""Fields of ``RunnerLog`` that hold nothing which ``end.n_records`` counts."""


def count_records(log: RunnerLog) -> int:
    """Records before ``end``, of every kind that a log has."""
    held = [getattr(log, field.name) for field in dataclasses.fields(log) if field.name not in _NO_RECORDS]
    return sum(len(item) if isinstance(item, tuple) else item is not None for item in held)


def _tail(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return printable(" | ".join(lines[-3:]), 400) or "it said nothing"


def _infra(kind: str, message: str, transient: bool = False) -> Judgement:
    return Judgement(error=RunError(status=Status.INFRA, kind=kind, message=message), transient=transient)


def _fail(message: str) -> Judgement:
    return Judgement(error=RunError(status=Status.FAIL, kind="RunnerError", message=message), transient=False)
