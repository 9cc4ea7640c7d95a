"""One attempt at a run: everything between a leased phone and raw results in a folder of this host."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from harness.device.changes import apply, restore
from harness.device.conditions import note_run, read_conditions
from harness.device.fitness import meet, refuse_unfit
from harness.device.identity import confirm, read_boot_id
from harness.device.phone import LeasedPhone
from harness.device.sensors import SensorRecorder
from harness.device.shell import new_nonce
from harness.device.store import StoredFile
from harness.device.text import printable
from harness.errors import HostError, InfraError, PhoneLostError, TransferError
from harness.record.artifact import Artifact
from harness.record.codec import write_json
from harness.record.job import Prompt
from harness.record.run import Conditions, RunError, SensorSeries
from harness.record.runner import EMPTY_LOG, Bandwidth, RunnerLog, parse_runner_lines
from harness.record.stamps import STAMPS_FILE, read_unfinished
from harness.record.vocabulary import Status
from harness.run.bandwidth import FILE as BANDWIDTH_FILE
from harness.run.bandwidth import measure_bandwidth
from harness.run.blame import Evidence, count_records, judge_run
from harness.run.libraries import RuntimeFiles
from harness.run.session import RunnerProcess
from harness.run.watch import Watcher
from harness.run.workload import Workload, make_job

RECORDS: Final = "records.jsonl"
RECORDS_LIMIT: Final = 256 * 1024 * 1024
STAMPS_LIMIT: Final = 256 * 1024 * 1024
_BACK_S: Final = 4.0
_LOGITS_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}\.bin")
_UNKNOWN: Final = Conditions(
    battery_percent=None,
    battery_celsius=None,
    charging=None,
    thermal_status=None,
    memory_available_bytes=None,
    storage_available_bytes=None,
    uptime_s=None,
    violations=("the phone was lost before its conditions could be read",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to run where. ``folder``: on this host, for what comes back."""

    phone: LeasedPhone
    artifact: Artifact
    workload: Workload
    runtime: RuntimeFiles
    files: tuple[StoredFile, ...]
    run_id: str
    folder: Path
    progress: Callable[[str], None]
    watcher: Watcher


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What one attempt leaves, however far it came."""

    boot_id: str = ""
    conditions: Conditions = _UNKNOWN
    log: RunnerLog = EMPTY_LOG
    sensors: tuple[SensorSeries, ...] = ()
    bandwidth: Bandwidth | None = None
    bytes_pushed: int = 0
    push_s: float = 0.0
    job_sha256: str = ""
    error: RunError | None = None
    transient: bool = False
    files: list[str] = field(default_factory=list)
    states: dict[str, None] = field(default_factory=dict)
    """As which the phone was listed when it was away, in order"""

    def saw(self, state: str) -> None:
        self.states.pop(state, None)
        self.states[state] = None


def try_once(plan: Plan, attempt: Attempt, *, number: int) -> None:
    """Fill ``attempt``. Faults of the lab end up in it; a phone that can be reached is left as it was."""
    phone, workload = plan.phone, plan.workload
    name = plan.run_id if number == 1 else f"{plan.run_id}-retry"
    try:
        confirm(phone.device, phone.facts)
        phone.lease.renew(workload.deadline_s + workload.demand.longest_s + 900)
        attempt.boot_id = read_boot_id(phone.device)
        changed = apply(phone.device, workload.changes)
        found = meet(
            workload.demand,
            lambda: read_conditions(phone.device, window_s=workload.demand.window_s),
            phone=phone.facts.serial,
            say=plan.progress,
        )
        attempt.conditions = replace(found, changed=changed)
        refuse_unfit(workload.demand, attempt.conditions, phone=phone.facts.serial)
        pushed = phone.store.ensure(plan.files, progress=plan.progress)
        attempt.bytes_pushed, attempt.push_s = pushed.bytes_pushed, pushed.seconds
        _run_and_pull(plan, attempt, name)
    except (InfraError, HostError) as exc:
        attempt.error = RunError(status=Status.INFRA, kind=type(exc).__name__, message=str(exc))
        attempt.transient = isinstance(exc, InfraError) and exc.transient
    except OSError as exc:
        # What the connection raises has become an InfraError below; this is a file of this host.
        text = f"this host cannot store what came back in {plan.folder}: {printable(str(exc))}"
        attempt.error = RunError(status=Status.INFRA, kind="HostError", message=text)
    finally:
        with contextlib.suppress(InfraError, HostError):
            _tidy(phone, name, attempt)


def _tidy(phone: LeasedPhone, name: str, attempt: Attempt) -> None:
    """Leave the phone as it was found. A cable that was pulled and put back needs a moment first."""

    def leave() -> None:
        phone.store.remove_run_folder(name)
        note_run(phone.device)
        restore(phone.device)

    try:
        leave()
    except InfraError:
        if phone.device.wait(_BACK_S, seen=attempt.saw):
            leave()


def _run_and_pull(plan: Plan, attempt: Attempt, name: str) -> None:
    phone, artifact, workload = plan.phone, plan.artifact, plan.workload
    device, folder = phone.device, plan.folder
    remote = phone.store.make_run_folder(name, plan.files)
    nonce = new_nonce()
    job = make_job(workload, artifact, run_id=plan.run_id, nonce=nonce, run_folder=remote)
    write_json(folder / "job.json", job)
    attempt.job_sha256 = device.push(folder / "job.json", remote / "job.json")
    attempt.files.append("job.json")
    since = _phone_time(phone)
    process = RunnerProcess(device=device, folder=remote, environment=plan.runtime.environment(remote))
    recorder = SensorRecorder(
        device, max_samples=int(workload.deadline_s) + 30, run_folder=remote, watch=plan.watcher.sample
    )
    recorder.start()
    logcat = ""
    try:
        plan.progress(f"running {workload.name} of {artifact.manifest.name} on phone {phone.facts.serial}")
        result = process.run(deadline_s=workload.deadline_s, stall_s=workload.stall_s, watch=plan.watcher.line)
        refuse_reboot(phone, attempt.boot_id)
        if workload.bandwidth and result.exit_code == 0:
            recorder.stop()
            attempt.bandwidth, said = measure_bandwidth(device, remote)
            _keep(folder, attempt, BANDWIDTH_FILE, said.strip())
    except PhoneLostError:
        raise
    except InfraError as exc:
        # A broken connection or a stall is also what a reboot looks like from here.
        refuse_reboot(phone, attempt.boot_id, cause=exc)
        raise
    finally:
        recorder.stop()
        attempt.log = parse_runner_lines(process.stdout)
        _keep(folder, attempt, "stderr.txt", "\n".join(process.stderr))
        with contextlib.suppress(InfraError, HostError):
            logcat = _read_logcat(phone, since)
            _keep(folder, attempt, "logcat.txt", logcat)
        lost = _pull_records(phone, remote, folder, attempt, workload.prompts)
        recorder.write_raw(folder / "sensors.txt")
        attempt.files.append("sensors.txt")
        start, end = attempt.log.start, attempt.log.end
        attempt.sensors = recorder.series(
            start=start.clock if start is not None else None, end=end.clock if end is not None else None
        )
    if lost is not None and result.exit_code == 0:
        raise lost
    judgement = judge_run(
        Evidence(
            exit_code=result.exit_code,
            stderr="\n".join(process.stderr),
            logcat=logcat,
            log=attempt.log,
            run_id=plan.run_id,
            nonce=nonce,
            pulled={name: (folder / name).stat().st_size for name in attempt.files},
        ),
        workload=workload,
        manifest=artifact.manifest,
        conditions=attempt.conditions,
    )
    attempt.error, attempt.transient = judgement.error, judgement.transient
    if attempt.error is not None and (gone := _gone(plan, remote)):
        text = f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone from the phone; {attempt.error.message}"
        attempt.error = RunError(status=Status.INFRA, kind="TransferError", message=text)
        attempt.transient = True
    elif judgement.transient and attempt.log.fault is not None:
        # FILE_MISSING or HASH_MISMATCH: what the store holds is not what was pushed.
        phone.store.forget(plan.files)


def _gone(plan: Plan, remote: PurePosixPath) -> tuple[str, ...]:
    """Files without which no runner works, whatever it then says. None if the phone cannot be asked."""
    with contextlib.suppress(InfraError, HostError):
        return plan.phone.store.gone(remote, plan.files)
    return ()


def refuse_reboot(phone: LeasedPhone, boot_id: str, cause: InfraError | None = None) -> None:
    """Raise ``PhoneLostError`` if the phone booted since ``boot_id`` was read. Unreachable is not rebooted."""
    try:
        now = read_boot_id(phone.device)
    except InfraError:
        if cause is not None:
            return
        raise
    if now != boot_id:
        raise PhoneLostError(
            f"phone {phone.facts.serial} rebooted during the run",
            found=f"boot id {now}",
            expected=boot_id,
            next_step="look at the phone's power supply and `adb logcat -b crash`",
        ) from cause


def _phone_time(phone: LeasedPhone) -> str:
    """Now, on the phone's wall clock, as ``logcat -T`` takes it."""
    result = phone.device.run(["date", "+%m-%d %H:%M:%S.000"], timeout_s=10, what="read the phone's time")
    return printable(result.text, 40)


def _read_logcat(phone: LeasedPhone, since: str) -> str:
    """The phone's log from the start of this run only."""
    result = phone.device.run(
        ["logcat", "-d", "-v", "threadtime", "-T", since], timeout_s=30, what="read the phone's log"
    )
    return result.text if result.exit_code == 0 else ""


def _pull_records(
    phone: LeasedPhone, remote: PurePosixPath, folder: Path, attempt: Attempt, prompts: Sequence[Prompt]
) -> InfraError | HostError | None:
    """The records as the phone has them, and each file of logits that they name; why not, where that fails.

    A file with fewer records than were sent while the runner ran does not replace those: no record is lost twice.
    """
    try:
        _pull_all(phone, remote, folder, attempt, prompts)
    except (InfraError, HostError) as exc:
        return exc
    return None


def _pull_all(
    phone: LeasedPhone, remote: PurePosixPath, folder: Path, attempt: Attempt, prompts: Sequence[Prompt]
) -> None:
    sent = attempt.log
    phone.device.pull(remote / RECORDS, folder / RECORDS, max_bytes=RECORDS_LIMIT)
    attempt.files.append(RECORDS)
    with (folder / RECORDS).open(encoding="utf-8", errors="replace") as stream:
        fetched = parse_runner_lines(stream)
    if count_records(fetched) >= count_records(sent):
        attempt.log = fetched
    if attempt.log.end is None:
        _recover_unfinished(phone, remote, folder, attempt, prompts)
    named = {generation.logits.file for generation in attempt.log.generations if generation.logits is not None}
    for file in sorted(named):
        if file in attempt.files or not _LOGITS_NAME.fullmatch(file):
            raise TransferError("a record names a file that no run has", found=printable(file), expected="logits.bin")
        phone.device.pull(remote / file, folder / file)
        attempt.files.append(file)
    if sent.end is not None and replace(sent, unknown_lines=()) != replace(fetched, unknown_lines=()):
        raise TransferError(
            f"{RECORDS} on the phone is not what the runner sent while it ran",
            found=f"{count_records(fetched)} records in the file",
            expected=f"the {count_records(sent)} records that were sent",
            next_step="look what else writes into the run folder on the phone",
        )


def _recover_unfinished(
    phone: LeasedPhone, remote: PurePosixPath, folder: Path, attempt: Attempt, prompts: Sequence[Prompt]
) -> None:
    """What a runner that was killed had stamped. A runner killed before its first prompt has no such file."""
    with contextlib.suppress(InfraError):
        phone.device.pull(remote / STAMPS_FILE, folder / STAMPS_FILE, max_bytes=STAMPS_LIMIT)
        attempt.files.append(STAMPS_FILE)
        unfinished = read_unfinished((folder / STAMPS_FILE).read_bytes(), prompts, attempt.log.generations)
        attempt.log = replace(attempt.log, unfinished=unfinished)


def _keep(folder: Path, attempt: Attempt, name: str, text: str) -> None:
    (folder / name).write_text(text + "\n" if text else "", encoding="utf-8", errors="replace")
    attempt.files.append(name)
