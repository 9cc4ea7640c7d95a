"""Every fault of the virtual phone at every stage of a run: what must come of it, and one case carried out.

A case: the fault strikes at its stage; the run ends somehow; the fault is cleared; a second run must be whole. What is
checked is in ``judge_case``: nothing wrong passes, nothing of the lab's is the model's failure, every run that began is
in the journal once, nothing is left on the phone, and the record names what was done.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness.device.adb import AdbDevice
from harness.device.fitness import Demand
from harness.device.phone import LeasedPhone
from harness.device.shell import Patience
from harness.device.store import ROOT, PhoneStore, StoredFile
from harness.errors import InfraError, LeaseError
from harness.journal import Entry, JournalWriter, read_journal
from harness.pool.local import acquire, discover
from harness.record.artifact import sha256_of
from harness.record.job import Logits, Prompt
from harness.record.run import RunRecord
from harness.record.vocabulary import Status
from harness.run.execute import execute
from harness.run.workload import Workload
from harness.virtual.lab import VirtualLab, VirtualPhone

STAGES: Final = ("discover", "push", "start", "prefill", "decode", "pull", "record")
PROMPT: Final = Prompt(
    prompt_id="p", mode="generate", tokens=(1, 5, 9, 13, 17, 2, 3, 4, 6, 7), n_gen=4, ignore_eos=True, logits=Logits.ALL
)
WORKLOAD: Final = Workload(
    name="matrix", prompts=(PROMPT,), performance_mode="default", deadline_s=25, stall_s=8, demand=Demand(window_s=0)
)
LONGEST_S: Final = 8.0
"""Of any other command or silent transfer: so long a hung one holds up a case."""
_SHIM: Final = """#!/system/bin/sh
# {nonce}
export FAKE_QNN_DELAY=graphExecute:{delay_ms} FAKE_QNN_TRACE=trace.txt
exec ./libs/real-snapgate-runner "$@"
"""
_RUNNER: Final = "real-snapgate-runner"
_DELAY_MS: Final = 250
_SLOWED: Final = ("start", "prefill", "decode")
"""Stages whose runner works slowly, so that the fault finds it at work."""
_GONE: Final = (
    r"went away|is gone|rebooted|not found|connection .* failed|no longer at|offline|moved no data|unreachable"
)
_HUNG: Final = (
    r"moved no data|said nothing|no output|longer than|did not end|still running|deadline|stall|silent|in time"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``strike`` does it; ``cause`` is what a record that is not whole then says."""

    name: str
    strike: Callable[[VirtualPhone, Striker], None]
    cause: str


@dataclass(slots=True)
class Striker:
    """What a fault needs besides the phone."""

    device: AdbDevice
    rng: random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    number: int
    faults: tuple[Fault, ...]
    stage: str
    delay_s: float = 0.0
    """After the stage was reached"""

    @property
    def name(self) -> str:
        return "+".join(fault.name for fault in self.faults)

    def __str__(self) -> str:
        return f"{self.stage}-{self.name}".replace(" ", "_")


@dataclass(slots=True, kw_only=True)
class Outcome:
    case: Case
    ended: str
    """``whole``, ``INFRA``, ``FAIL``, or ``refused`` before a run began"""
    said: str
    attempts: int
    seconds: float
    wrong: list[str] = field(default_factory=list)


def _remove(name: str) -> Callable[[VirtualPhone, Striker], None]:
    def strike(_: VirtualPhone, at: Striker) -> None:
        with contextlib.suppress(InfraError):
            at.device.script('rm -f "$1"/store/*/"$2"', ROOT, name, what="remove a library")

    return strike


def _kill_runner(phone: VirtualPhone, _: Striker) -> None:
    with contextlib.suppress(Exception):
        phone.kill_for_memory(_RUNNER)


def _trust_later(phone: VirtualPhone, _: Striker) -> None:
    phone.set_trust(False)
    threading.Timer(2.0, lambda: phone.set_trust(True)).start()


def _hot(phone: VirtualPhone, _: Striker) -> None:
    phone.set_temperature("skin-msm-therm", 52.0)


def _reboot(phone: VirtualPhone, _: Striker) -> None:
    threading.Thread(target=phone.reboot, daemon=True).start()


def _kill(phone: VirtualPhone, _: Striker) -> None:
    phone.kill()


_ANY_PULL: Final = "*/runs/*"
FAULTS: Final[tuple[Fault, ...]] = (
    Fault(name="disconnect", strike=lambda p, _: p.disconnect(), cause=_GONE),
    Fault(name="offline", strike=lambda p, _: p.go_offline(2.0), cause=_GONE),
    Fault(name="reboot", strike=_reboot, cause=_GONE),
    Fault(name="power cut", strike=_kill, cause=_GONE),
    Fault(name="frozen link", strike=lambda p, _: p.freeze(3.0), cause=_HUNG + "|" + _GONE),
    Fault(name="stalled link", strike=lambda p, _: p.freeze(LONGEST_S + 3), cause=_HUNG + "|" + _GONE),
    Fault(name="slow link", strike=lambda p, _: p.slow_down(400_000), cause=_HUNG),
    Fault(name="garbage bytes", strike=lambda p, a: p.send_garbage(200, seed=a.rng.randrange(99)), cause=_GONE),
    Fault(name="unauthorized, then accepted", strike=_trust_later, cause=_GONE + "|does not trust|unauthorized"),
    Fault(name="unauthorized", strike=lambda p, _: p.set_trust(False), cause=_GONE + "|does not trust|unauthorized"),
    Fault(name="recovery", strike=lambda p, _: p.set_mode("recovery"), cause=_GONE + "|recovery"),
    Fault(name="hung shell", strike=lambda p, _: p.hang_shell(), cause=_HUNG),
    Fault(
        name="exit code lost",
        strike=lambda p, _: p.spoil_shell("no_exit"),
        cause=r"exit code|ended without|exit status|connection|sentinel|cut short",
    ),
    Fault(name="CRLF", strike=lambda p, _: p.spoil_shell("crlf", times=500), cause="damaged|line end|translat|exit"),
    Fault(
        name="garbage in a shell",
        strike=lambda p, _: p.spoil_shell("garbage_shell"),
        cause="damaged|uptime|boot id|rebooted|tell|failed|not usable",
    ),
    Fault(name="disconnect mid-push", strike=lambda p, _: p.fail_push_by_disconnect(1000), cause=_GONE),
    Fault(name="corrupted push", strike=lambda p, _: p.corrupt_push(), cause="damaged"),
    Fault(name="truncated push", strike=lambda p, _: p.truncate_push(10), cause="damaged"),
    Fault(name="no space", strike=lambda p, _: p.fail_push_by_full_storage(), cause="is full"),
    Fault(
        name="disconnect mid-pull",
        strike=lambda p, _: p.fail_pull("disconnect", 100, pattern=_ANY_PULL),
        cause=_GONE,
    ),
    Fault(name="truncated pull", strike=lambda p, _: p.fail_pull("truncate", 100, pattern=_ANY_PULL), cause="damaged"),
    Fault(name="corrupted pull", strike=lambda p, _: p.fail_pull("corrupt", 100, pattern=_ANY_PULL), cause="damaged"),
    Fault(
        name="noexec", strike=lambda p, _: p.set_noexec(True), cause="noexec|not executable|does not allow|cannot run"
    ),
    Fault(name="clock jumps ahead", strike=lambda p, _: p.jump_clock(86_400), cause="$^"),
    Fault(name="clock jumps back", strike=lambda p, _: p.jump_clock(-86_400), cause="$^"),
    Fault(name="hot, throttled", strike=_hot, cause="$^"),
    Fault(name="low battery", strike=lambda p, _: p.set_battery(percent=3, charging=False), cause="$^"),
    Fault(name="charger flips", strike=lambda p, _: p.set_battery(charging=False), cause="$^"),
    Fault(name="runner killed for memory", strike=_kill_runner, cause="lack of memory|SIGKILL"),
    Fault(
        name="another app killed for memory",
        strike=lambda p, _: p.kill_for_memory("com.other.app", kill=False),
        cause="$^",
    ),
    Fault(
        name="library gone",
        strike=_remove("libQnnHtp.so"),
        cause="LIBRARY_LOAD|QNN library is missing|did not start|FILE_MISSING|No such file",
    ),
    Fault(name="log wraps", strike=lambda p, _: p.wrap_log(200), cause="$^"),
)


class _Store(PhoneStore):
    """Strikes before files are pushed and before the run folder is made."""

    def __init__(self, device: AdbDevice, struck: Callable[[str], None]) -> None:
        super().__init__(device)
        self._struck = struck

    def ensure(self, files: Sequence[StoredFile], *, progress: Callable[[str], None]) -> Any:
        self._struck("push")
        return super().ensure(files, progress=progress)

    def make_run_folder(self, run_id: str, files: Sequence[StoredFile]) -> Any:
        self._struck("start")
        return super().make_run_folder(run_id, files)


class _Device(AdbDevice):
    """Strikes before the first file is pulled."""

    struck: Callable[[str], None]

    def pull(self, *arguments: Any, **named: Any) -> str:
        self.struck("pull")
        return super().pull(*arguments, **named)


class _Journal(JournalWriter):
    """Strikes before the record is written."""

    struck: Callable[[str], None]

    def append(self, entry: Entry) -> None:
        self.struck("record")
        super().append(entry)


@contextlib.contextmanager
def shorter_limits() -> Iterator[None]:
    """Calls that may take longer than ``LONGEST_S`` are cut to that; of a run and of transfers only the silence is."""
    given = Patience.of

    def of(seconds: float, stall_s: float | None = None) -> Patience:
        return given(seconds if stall_s is not None else min(seconds, LONGEST_S), stall_s and min(stall_s, LONGEST_S))

    Patience.of = of  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Patience.of = given  # type: ignore[method-assign]


class Matrix:
    """One virtual phone, one model, one journal, and the clean run that every whole run must equal."""

    def __init__(
        self, lab: VirtualLab, state_dir: Path, model: Any, folder: Path, *, seed: int, number: int = 0
    ) -> None:
        """``number``: of the process, where several write to one journal; all but the first make no clean run."""
        self._lab = lab
        self._state = state_dir
        self._model = model
        self._folder = folder
        self._rng = random.Random(seed)  # noqa: S311
        self.virtual = lab.phones[0]
        self.device = lab_device(lab)
        self._n_runs = number
        self._journal_name = f"s1-{number or 'main'}.jsonl"
        self._reference: tuple[Any, ...] | None = None
        if not number:
            self._reference = self._essence(self._run(None, lambda _: None)[0])
            if self._reference is None:
                raise InfraError("the clean run is not whole", next_step="mend that first")

    def carry_out(self, case: Case) -> Outcome:
        began = time.monotonic()
        done: set[str] = set()

        def struck(stage: str) -> None:
            if stage == case.stage and stage not in done:
                done.add(stage)
                time.sleep(case.delay_s)
                for k, fault in enumerate(case.faults):
                    # A phone that the first fault turned off takes no second one.
                    with contextlib.suppress(*([InfraError] if k else [])):
                        fault.strike(self.virtual, Striker(self.device, self._rng))

        record, refusal = self._run(case, struck)
        outcome = self._describe(case, record, refusal)
        outcome.wrong += judge_case(case, record, refusal, self._essence(record), self._reference)
        if case.stage not in done:
            outcome.wrong.append(f"the fault never struck: stage {case.stage} was not reached")
        self._recover()
        again, refused = self._run(None, lambda _: None)
        if again is None or again.error is not None or self._essence(again) != self._reference:
            outcome.wrong.append(f"the next run is not whole: {refused or (again and again.error)}")
        outcome.wrong += self._left_behind()
        outcome.seconds = time.monotonic() - began
        return outcome

    def _describe(self, case: Case, record: RunRecord | None, refusal: InfraError | None) -> Outcome:
        if record is None:
            return Outcome(case=case, ended="refused", said=str(refusal), attempts=0, seconds=0)
        error = record.error
        said = record.retried_because or "" if error is None else error.message
        ended = "whole" if error is None else str(error.status)
        return Outcome(case=case, ended=ended, said=said, attempts=record.attempts, seconds=0)

    def _run(self, case: Case | None, struck: Callable[[str], None]) -> tuple[RunRecord | None, InfraError | None]:
        """A record, or why no run began: the phone was refused when it was looked for or leased."""
        self._n_runs += 1
        results = self._folder / "out"
        shim = self._folder / f"shim{self._n_runs}"
        slowed = case is not None and case.stage in _SLOWED
        shim.write_text(_SHIM.format(delay_ms=_DELAY_MS if slowed else 0, nonce=self._n_runs))
        journal = _Journal(results / "journal" / self._journal_name)
        journal.struck = struck
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(struck, stop), daemon=True)
        try:
            struck("discover")
            phone = self._lease()
            hooked = _Device(phone.device.adb, phone.device.transport)
            _Device.struck = staticmethod(struck)  # type: ignore[assignment]
            watched = replace(phone, device=hooked, store=_Store(phone.device, struck))
            watcher.start()
            with phone:
                return (
                    execute(
                        watched,
                        self._model.artifact,
                        WORKLOAD,
                        session_id="s1",
                        results_dir=results,
                        journal=journal,
                        reconnect_s=6.0,
                        runtime=self._model.runtime(shim),
                    ),
                    None,
                )
        except InfraError as exc:
            return None, exc
        finally:
            stop.set()
            journal.close()

    def _lease(self) -> LeasedPhone:
        found = discover(self._lab.adb_host, self._lab.adb_port)
        usable = [info.facts for info in found if info.usable and info.facts is not None]
        if not usable:
            reason = found[0].reason if found else "phone not found: the adb server lists none"
            raise InfraError("no usable phone", found=reason)
        return acquire(
            usable[0],
            holder="matrix",
            adb_host=self._lab.adb_host,
            adb_port=self._lab.adb_port,
            state_dir=self._folder / "state",
        )

    def _watch(self, struck: Callable[[str], None], stop: threading.Event) -> None:
        """The stand-in traces its calls: after the second execution it prefills, after the fourth it decodes."""
        runs = self._state / "phones" / self.virtual.serial / "root/data/local/tmp/snapgate/runs"
        while not stop.wait(0.02):
            for trace in runs.glob("*/trace.txt"):
                with contextlib.suppress(OSError):
                    n_calls = trace.read_text().count("graphExecute")
                    if n_calls >= 2:
                        struck("prefill")
                    if n_calls >= 4:
                        struck("decode")

    def _essence(self, record: RunRecord | None) -> tuple[Any, ...] | None:
        """What must be the same in every whole run: tokens and logits."""
        if record is None or record.error is not None:
            return None
        logits = self._folder / "out" / "runs" / record.run_id / "logits.bin"
        return (*((g.token_ids, g.stop) for g in record.log.generations), sha256_of(logits))

    def _recover(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(Exception):
                self.virtual.clear_faults()
                break
            self.virtual.reboot()
        self.virtual.slow_down(None)
        self.virtual.set_battery(percent=85, charging=True)
        self.virtual.set_temperature("skin-msm-therm", None)
        while self.device.state() != "device" and time.monotonic() < deadline:
            self.device.wait(10)
        for _ in range(60):
            with contextlib.suppress(InfraError):
                if self.device.run(["getprop", "sys.boot_completed"], timeout_s=5).text.strip() == "1":
                    break
            time.sleep(0.5)

    def _left_behind(self) -> Iterator[str]:
        text = (
            'ls "$1/runs"; ls -A "$1" | grep -x lease.json; ls -A "$1/store"/* | grep "[.]part$";'
            " for p in /proc/[0-9]*/cmdline; do"
            ' grep -aq "snapgate-[rs]unner\\|snapgate-[s]ensors" "$p" && echo "$p"; done'
        )
        left = ""
        for _ in range(20):
            left = self.device.script(text, ROOT, what="look").text.strip()
            if not left:
                break
            time.sleep(0.25)
        if left:
            yield f"left on the phone: {left!r}"
        journal = read_journal(self._folder / "out" / "journal")
        ids = [run.run_id for run in journal.runs]
        folders = {path.name for path in (self._folder / "out" / "runs").iterdir()}
        if len(set(ids)) != len(ids) or folders != set(ids):
            yield f"journal and folders disagree: {sorted(folders ^ set(ids))}"


def lab_device(lab: VirtualLab) -> AdbDevice:
    from harness.device.adb import Adb

    return Adb(lab.adb_host, lab.adb_port).device(lab.phones[0].transport)


def judge_case(
    case: Case,
    record: RunRecord | None,
    refusal: InfraError | None,
    essence: tuple[Any, ...] | None,
    reference: tuple[Any, ...] | None,
) -> list[str]:
    """What is wrong with the outcome of a case; nothing, if SnapGate did as it says."""
    causes = "|".join(fault.cause for fault in case.faults)
    if record is None:
        if isinstance(refusal, LeaseError):
            return [f"a lock was left: {refusal}"]
        return [] if re.search(causes, str(refusal), re.IGNORECASE) else [f"cause not named: {refusal}"]
    if record.error is None:
        wrong = [] if essence == reference else ["false PASS: another output than the clean run's"]
        told = record.retried_because
        if told is not None and not re.search(causes, told, re.IGNORECASE):
            wrong.append(f"cause of the retry not named: {told}")
        return wrong
    if record.error.status is Status.FAIL:
        return [f"a fault of the lab is the model's failure: {record.error.message}"]
    if not re.search(causes, record.error.message, re.IGNORECASE):
        return [f"cause not named: {record.error.kind}: {record.error.message}"]
    return []


def all_cases() -> tuple[Case, ...]:
    pairs = [(fault, stage) for fault in FAULTS for stage in STAGES]
    return tuple(Case(number=n, faults=(fault,), stage=stage) for n, (fault, stage) in enumerate(pairs))


def sampled_cases(n: int, seed: int) -> tuple[Case, ...]:
    """``n`` of one fault, in the order of ``all_cases``."""
    cases = random.Random(seed).sample(all_cases(), n)  # noqa: S311
    return tuple(sorted(cases, key=lambda case: case.number))


def random_cases(n: int, seed: int) -> tuple[Case, ...]:
    """Two faults at once, a random moment after a random stage."""
    rng = random.Random(seed)  # noqa: S311
    return tuple(
        Case(
            number=1000 + k,
            faults=tuple(rng.sample(FAULTS, 2)),
            stage=rng.choice(STAGES),
            delay_s=round(rng.uniform(0, 0.8), 3),
        )
        for k in range(n)
    )


SAMPLE_SEED: Final = 5


def sample() -> tuple[Case, ...]:
    """The 40 cases of ``make test-all``."""
    return (*sampled_cases(34, SAMPLE_SEED), *random_cases(6, SAMPLE_SEED))
