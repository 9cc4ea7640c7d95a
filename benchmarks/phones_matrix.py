"""One case carried out: the fault strikes at its stage, the run ends somehow, the fault is cleared, a run follows.

Beside what ``judge_case`` says: the second run must be whole, every run that began is in the journal once, and nothing
is left on the phone.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from phones_faults import LONGEST_S, SKELETON, Case, Outcome, Striker, judge_case

from harness.device.adb import Adb, AdbDevice
from harness.device.fitness import Demand
from harness.device.phone import LeasedPhone
from harness.device.shell import Patience
from harness.device.store import ROOT, PhoneStore, StoredFile
from harness.errors import InfraError
from harness.journal import Entry, JournalWriter, read_journal
from harness.pool.local import acquire, discover
from harness.record.artifact import sha256_of
from harness.record.job import Logits, Prompt
from harness.record.run import RunRecord
from harness.run.execute import execute
from harness.run.libraries import RuntimeFiles
from harness.run.workload import Workload
from harness.virtual.lab import VirtualLab

PROMPT: Final = Prompt(
    prompt_id="p", mode="generate", tokens=(1, 5, 9, 13, 17, 2, 3, 4, 6, 7), n_gen=4, ignore_eos=True, logits=Logits.ALL
)
WORKLOAD: Final = Workload(
    name="matrix", prompts=(PROMPT,), performance_mode="default", deadline_s=25, stall_s=8, demand=Demand(window_s=0)
)
_SHIM: Final = """#!/system/bin/sh
# {nonce}
export FAKE_QNN_DELAY=graphExecute:{delay_ms} FAKE_QNN_TRACE=trace.txt
[ -e ./libs/{skeleton} ] || export FAKE_QNN_FAIL=deviceCreate:1:14001
exec ./libs/real-snapgate-runner "$@"
"""
_DELAY_MS: Final = 250
_SLOWED: Final = ("start", "prefill", "decode")
"""Stages whose runner works slowly, so that the fault finds it at work."""


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
        self.reference: tuple[Any, ...] | None = None
        if not number:
            self.reference = self.essence(self.run(None, lambda _: None)[0])
            if self.reference is None:
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

        record, refusal = self.run(case, struck)
        outcome = self._describe(case, record, refusal)
        outcome.wrong += judge_case(case, record, refusal, self.essence(record), self.reference)
        if case.stage not in done:
            outcome.wrong.append(f"the fault never struck: stage {case.stage} was not reached")
        self._recover()
        again, refused = self.run(None, lambda _: None)
        if again is None or again.error is not None or self.essence(again) != self.reference:
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

    def run(self, case: Case | None, struck: Callable[[str], None]) -> tuple[RunRecord | None, InfraError | None]:
        """A record, or why no run began: the phone was refused when it was looked for or leased."""
        self._n_runs += 1
        results = self._folder / "out"
        shim = self._folder / f"shim{self._n_runs}"
        slowed = case is not None and case.stage in _SLOWED
        shim.write_text(_SHIM.format(delay_ms=_DELAY_MS if slowed else 0, nonce=self._n_runs, skeleton=SKELETON))
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
                        runtime=self._runtime(shim),
                    ),
                    None,
                )
        except InfraError as exc:
            return None, exc
        finally:
            stop.set()
            journal.close()

    def _runtime(self, shim: Path) -> RuntimeFiles:
        """With a file in the place of the DSP's library, without which the stand-in opens no session."""
        skeleton = self._folder / SKELETON
        skeleton.write_text("skeleton\n")
        runtime = self._model.runtime(shim)
        return replace(runtime, libraries=(*runtime.libraries, StoredFile.of(skeleton, f"libs/{SKELETON}")))

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

    def essence(self, record: RunRecord | None) -> tuple[Any, ...] | None:
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

    def left_on_phone(self) -> str:
        """Run folders, fence, half files and processes that are there 5 s after a run."""
        text = (
            'ls "$1/runs"; ls -A "$1" | grep -x -e lease.json -e changed; ls -A "$1/store"/* | grep "[.]part$";'
            " for p in /proc/[0-9]*/cmdline; do"
            ' grep -aq "snapgate-[rs]unner\\|snapgate-[s]ensors" "$p" && echo "$p"; done'
        )
        left = ""
        for _ in range(20):
            left = self.device.script(text, ROOT, what="look").text.strip()
            if not left:
                break
            time.sleep(0.25)
        return left

    def _left_behind(self) -> Iterator[str]:
        if left := self.left_on_phone():
            yield f"left on the phone: {left!r}"
        journal = read_journal(self._folder / "out" / "journal")
        ids = [run.run_id for run in journal.runs]
        folders = {path.name for path in (self._folder / "out" / "runs").iterdir()}
        if len(set(ids)) != len(ids) or folders != set(ids):
            yield f"journal and folders disagree: {sorted(folders ^ set(ids))}"


def lab_device(lab: VirtualLab) -> AdbDevice:
    return Adb(lab.adb_host, lab.adb_port).device(lab.phones[0].transport)
