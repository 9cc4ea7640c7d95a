"""The lab as one process sees it: artifacts, phones, runs and comparisons, each made once per case."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import pytest

from harness.device.conditions import read_conditions
from harness.device.phone import LeasedPhone
from harness.errors import ArtifactError, InfraError, NoReferenceError, SnapGateError
from harness.journal import Entry, Finished, Journal, JournalWriter, NotCovered, read_journal
from harness.measure.selfcheck import record_checks
from harness.model.reference import reference_facts, require_references
from harness.plugin import comparison
from harness.plugin.accuracy import (
    HostReference,
    accuracy_workload,
    compute_reference,
    host_comparisons,
    phone_comparisons,
    prompt_tokens,
)
from harness.plugin.case import Case
from harness.plugin.comparison import SETTLE_S, ab_workload, comparison_of, run_comparison
from harness.plugin.leasing import hold_one, quarantine_of
from harness.plugin.live import Channel
from harness.plugin.options import Settings
from harness.plugin.phones import PhoneList
from harness.plugin.replay import pick
from harness.plugin.resume import comparison_so_far, recalled, refuse_another_reference
from harness.plugin.share import Share
from harness.plugin.suites import Bench, run_suite
from harness.pool.quarantine import cause_of
from harness.record.ab import ArmRun, Comparison, ComparisonEnd
from harness.record.artifact import Artifact, load_artifact
from harness.record.comparison import Leg, LogitsComparison, ReferenceFacts, SelfCheck, TaskScore, WindowScores
from harness.record.job import Prompt
from harness.record.run import Cell, DeviceFacts, RunRecord
from harness.record.verdict import Verdict
from harness.record.vocabulary import Status
from harness.results.gate import judge_journal, read_baseline, read_limits
from harness.results.judge import not_measured
from harness.run.execute import execute
from harness.run.settle import settle
from harness.run.watch import Sign
from harness.run.workload import Workload
from harness.spec.models import load_catalogue

_LATENCY_GEN: Final = 32
_LATENCY_REPETITIONS: Final = 5
_LATENCY_REPETITIONS_EMULATED: Final = 3
"""Emulated speed is shown, not judged: fewer samples do."""


class Lab:
    """A context manager. Every method may end the running test by ``pytest.skip``, with the missing axis named."""

    def __init__(self, settings: Settings, share: Share, *, worker: str, capture: Any) -> None:
        self._settings = settings
        self._share = share
        self._worker = worker
        self._capture = capture
        self._saying = threading.Lock()
        self._channel = None if share.live is None else Channel(share.live, worker)
        self._catalogue = load_catalogue(settings.models)
        self._limits = read_limits(settings.limits)
        self._baselines = tuple(read_baseline(path) for path in settings.baselines)
        self._writer = JournalWriter(settings.results / "journal" / share.journal_name(worker))
        self._stopped = (
            read_journal(settings.results / "journal", session_id=share.session_id) if share.part else Journal()
        )
        self._entries: dict[Case, list[Entry]] = {}
        self._runs: dict[tuple[Case, str], RunRecord] = {}
        self._not_covered: dict[Case, NotCovered] = {}
        self._without_reference: dict[tuple[Case, str], NotCovered] = {}
        self._artifacts: dict[Cell, Artifact] = {}
        self._references: dict[Cell, HostReference] = {}

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        if self._channel is not None:
            self._channel.close()

    @property
    def phones(self) -> PhoneList:
        return self._share.phones

    def accuracy(self, case: Case) -> RunRecord:
        """The accuracy run of a case and its comparisons, in the journal."""
        return self._once(case, "accuracy", self._run_accuracy)

    def latency(self, case: Case) -> RunRecord:
        """The latency run of a case, in the journal."""
        return self._once(case, "latency", self._run_latency)

    def suite(self, case: Case, name: str) -> RunRecord | None:
        """The runs that a suite makes for itself (``harness.plugin.suites``), in the journal; returns the last."""
        return run_suite(self._bench(case), name)

    def ab(self, case: Case) -> RunRecord:
        """The A/B comparison of a case, in the journal; returns its last run."""
        return self._once(case, "ab", self._run_ab)

    def verdict(self, case: Case, metric: str) -> Verdict:
        """The verdict on one metric of a case, from what this process has journalled for it."""
        if case in self._not_covered:
            entry = self._not_covered[case]
            return not_measured(metric, case.cell, entry.status, entry.reason)
        entries = self._entries.get(case, [])
        journal = Journal(
            runs=tuple(e for e in entries if isinstance(e, RunRecord)),
            references=tuple(e for e in entries if isinstance(e, ReferenceFacts)),
            logits=tuple(e for e in entries if isinstance(e, LogitsComparison)),
            windows=tuple(e for e in entries if isinstance(e, WindowScores)),
            tasks=tuple(e for e in entries if isinstance(e, TaskScore)),
            self_checks=tuple(e for e in entries if isinstance(e, SelfCheck)),
            baselines=self._baselines,
            arms=tuple(e for e in entries if isinstance(e, ArmRun)),
            comparisons=tuple(e for e in entries if isinstance(e, Comparison)),
            comparison_ends=tuple(e for e in entries if isinstance(e, ComparisonEnd)),
        )
        judged = judge_journal(journal, self._limits, required=self._settings.required)
        return pick(judged, case, metric)

    def _once(self, case: Case, name: str, make: Callable[[Case], RunRecord]) -> RunRecord:
        if case in self._not_covered:
            self._refuse(self._not_covered[case])
        key = (case, name)
        if key in self._without_reference:
            self._refuse(self._without_reference[key])
        if key not in self._runs:
            try:
                self._runs[key] = self._recall(case, name) or self._make(case, name, make)
            except NoReferenceError as exc:  # only what is compared with one is left out
                entry = self._entry_of_gap(case, Status.NOT_COVERED, f"{name}: {exc}")
                self._without_reference[key] = entry
                self._refuse(entry)
            except SnapGateError as exc:
                status = Status.INFRA if isinstance(exc, InfraError) else Status.NOT_COVERED
                self._leave_out(case, status, f"{type(exc).__name__}: {exc}")
        return self._runs[key]

    def _make(self, case: Case, name: str, make: Callable[[Case], RunRecord]) -> RunRecord:
        record = make(case)
        if record.error is None or record.error.status is not Status.INFRA:
            self._writer.append(
                Finished(
                    session_id=self._share.session_id,
                    cell=case.cell,
                    serial=case.serial,
                    workload=name,
                    run_id=record.run_id,
                )
            )
        return record

    def _recall(self, case: Case, name: str) -> RunRecord | None:
        """What an earlier part of a resumed session finished."""
        if not any(e.cell == case.cell and e.workload == name for e in self._stopped.finished):
            return None
        try:
            artifact = self._artifact(case.cell)
            record, entries = recalled(self._stopped, case, name, artifact.manifest.artifact_id)
        except KeyError:
            return None
        made = [entry for entry in entries if isinstance(entry, ReferenceFacts)]
        if made and any(not isinstance(entry, ReferenceFacts | SelfCheck) for entry in entries):
            refuse_another_reference(made, reference_facts(artifact), case.cell)
        self._say(f"{name} of {case.id} was finished before the session was stopped: not run again")
        self._entries.setdefault(case, []).extend((record, *entries))
        return record

    def _leave_out(self, case: Case, status: Status, reason: str) -> None:
        entry = self._not_covered[case] = self._entry_of_gap(case, status, reason)
        self._refuse(entry)

    def _entry_of_gap(self, case: Case, status: Status, reason: str) -> NotCovered:
        entry = NotCovered(session_id=self._share.session_id, cell=case.cell, status=status, reason=reason)
        self._writer.append(entry)
        return entry

    @staticmethod
    def _refuse(entry: NotCovered) -> None:
        if entry.status is Status.INFRA:
            raise InfraError(f"{entry.cell}: the lab failed", found=entry.reason)
        pytest.skip(f"{entry.status}: {entry.cell}: {entry.reason}")

    def _append(self, case: Case, entry: Entry) -> None:
        self._writer.append(entry)
        self._entries.setdefault(case, []).append(entry)

    def _run_accuracy(self, case: Case) -> RunRecord:
        phones = self._phones_for(case)
        artifact = self._artifact(case.cell)
        model = self._catalogue.model(case.cell.model)
        reference = self._references.get(case.cell)
        if reference is None:
            require_references(artifact, Leg.FP32, Leg.GRAPH)
            reference = compute_reference(artifact, model, self._catalogue, self._say)
            self._references[case.cell] = reference
        record = self._execute(case, phones, artifact, accuracy_workload(reference, artifact))
        for entry in host_comparisons(reference, case.cell):
            self._append(case, entry)
        for entry in phone_comparisons(reference, record, self._settings.results):
            self._append(case, entry)
        return record

    def _run_latency(self, case: Case) -> RunRecord:
        phones = self._phones_for(case)
        artifact = self._artifact(case.cell)
        model = self._catalogue.model(case.cell.model)
        prompt = Prompt(
            prompt_id="latency",
            mode="generate",
            tokens=max(prompt_tokens(model, artifact), key=len),
            n_gen=_LATENCY_GEN,
            ignore_eos=True,
            warmups=1,
            repetitions=_LATENCY_REPETITIONS_EMULATED if phones[0].virtual else _LATENCY_REPETITIONS,
        )
        workload = Workload(
            name="latency",
            prompts=(prompt,),
            performance_mode="burst",
            deadline_s=600,
            stall_s=120,
            bandwidth=True,
        )
        record = self._execute(case, phones, artifact, workload)
        for check in record_checks(record):
            self._append(case, check)
        return record

    def _bench(self, case: Case) -> Bench:
        def artifact() -> Artifact:
            return self._artifact(case.cell)

        def run(artifact: Artifact, workload: Workload, serial: str | None, stands_for: Cell | None) -> RunRecord:
            phones = self._phones_for(case)
            same = tuple(phone for phone in phones if phone.serial == serial) or phones
            return self._execute(case, same, artifact, workload, stands_for=stands_for)

        return Bench(
            case=case,
            virtual=self._virtual(case),
            model=self._catalogue.model(case.cell.model),
            catalogue=self._catalogue,
            results=self._settings.results,
            artifacts=self._settings.artifacts,
            artifact=artifact,
            once=lambda name, make: self._once(case, name, lambda _: make()),
            run=run,
            append=lambda entry: self._append(case, entry),
            say=self._say,
        )

    def _virtual(self, case: Case) -> bool:
        if case in self._not_covered:
            self._refuse(self._not_covered[case])
        return self._phones_for(case)[0].virtual

    def _run_ab(self, case: Case) -> RunRecord:
        """Both artifacts on one phone, which is held from the first run to the last."""
        phones = self._phones_for(case)
        candidate = self._artifact(case.cell)
        baseline = self._baseline(case.cell)
        tokens = [prompt_tokens(self._catalogue.model(case.cell.model), a) for a in (baseline, candidate)]
        if tokens[0] != tokens[1]:
            raise ArtifactError(
                f"{baseline.folder} and {candidate.folder} do not compare",
                found="different token ids for the catalogue's prompts",
                expected="one tokenizer",
                next_step="compare artifacts of one model",
            )
        size = comparison.EMULATED if phones[0].virtual else comparison.PHONE
        workload = ab_workload(tokens[1], size)
        done = comparison_so_far(self._stopped, case)
        if done.comparisons:
            phones = tuple(p for p in phones if p.serial == done.comparisons[0].serial) or phones
            self._entries.setdefault(case, []).extend((*done.comparisons, *done.runs, *done.arms))
        with hold_one(phones, self._share, worker=self._worker, say=self._say) as phone:

            def run_arm(arm: str) -> RunRecord:
                artifact = {"A": baseline, "B": candidate}[arm]
                return self._execute_on(phone, case, artifact, workload)

            def wait() -> None:
                settle(lambda: read_conditions(phone.device), longest_s=SETTLE_S, say=self._say)

            compared = run_comparison(
                comparison_of(
                    baseline,
                    candidate,
                    size,
                    session_id=self._share.session_id,
                    cell=case.cell,
                    serial=phone.facts.serial,
                    budget_pairs=self._settings.ab_pairs,
                    budget_s=self._settings.ab_budget_s,
                    smallest_effect=self._settings.smallest_effect,
                ),
                run_arm=run_arm,
                settle=wait,
                append=lambda entry: self._append(case, entry),
                done=done if done.comparisons and done.comparisons[0].serial == phone.facts.serial else None,
                say=self._say,
            )
        return compared.runs[-1]

    def _baseline(self, cell: Cell) -> Artifact:
        """The folder of ``--ab`` itself, or the one below it that is named as the cell."""
        folder = self._settings.ab
        if folder is None:
            raise ArtifactError("no baseline to compare with", next_step="name one with --ab")
        if not (folder / "manifest.json").is_file():
            folder = folder / str(cell)
        artifact = load_artifact(folder)
        if artifact.manifest.target.part != cell.part:
            raise ArtifactError(f"{folder} is for another SoC", found=artifact.manifest.target.part, expected=cell.part)
        return artifact

    def _phones_for(self, case: Case) -> tuple[DeviceFacts, ...]:
        matching = tuple(phone for phone in self.phones.matching(case.cell.part) if case.serial in (None, phone.serial))
        if not matching:
            there = ", ".join(f"{phone.part} ({phone.serial})" for phone in self.phones.phones) or "none"
            unusable = "; ".join(self.phones.unusable)
            self._leave_out(
                case,
                Status.NOT_COVERED,
                f"no phone with SoC {case.cell.part}; phones here: {there}" + (f"; {unusable}" if unusable else ""),
            )
        return matching

    def _artifact(self, cell: Cell) -> Artifact:
        """The prepared artifact of a cell; made now if this host can, else ArtifactError."""
        if cell not in self._artifacts:
            folder = self._settings.artifacts / str(cell)
            if not folder.is_dir():
                self._prepare(cell)
            self._artifacts[cell] = load_artifact(folder)
        return self._artifacts[cell]

    def _prepare(self, cell: Cell) -> None:
        from harness.compiler.prepare import prepare
        from harness.soc import find_soc

        model = self._catalogue.model(cell.model)
        prepare(
            self._catalogue.checkpoint(model),
            soc=find_soc(cell.part),
            precision=cell.precision,
            kv=cell.kv,
            context=model.context_length,
            prefill=model.prefill_tokens,
            rmsnorm="operator",
            out=self._settings.artifacts,
            calibration=None,
            heldout=self._catalogue.heldout(model),
            progress=self._say,
        )

    def _execute(
        self,
        case: Case,
        phones: tuple[DeviceFacts, ...],
        artifact: Artifact,
        workload: Workload,
        *,
        stands_for: Cell | None = None,
    ) -> RunRecord:
        if artifact.manifest.target.part != case.cell.part:
            raise ArtifactError(
                f"{artifact.folder} is for another SoC",
                found=artifact.manifest.target.part,
                expected=case.cell.part,
                next_step="prepare it again",
            )
        with hold_one(phones, self._share, worker=self._worker, say=self._say) as phone:
            return self._execute_on(phone, case, artifact, workload, stands_for=stands_for)

    def _execute_on(
        self,
        phone: LeasedPhone,
        case: Case,
        artifact: Artifact,
        workload: Workload,
        *,
        stands_for: Cell | None = None,
    ) -> RunRecord:
        self._say(f"{workload.name} of {case.id} on {phone.facts.serial}")
        record = execute(
            phone,
            artifact,
            replace(
                self._settings.tuning.apply(workload),
                demand=self._settings.demand(workload.name, virtual=phone.facts.virtual),
                changes=self._settings.changes,
            ),
            session_id=self._share.session_id,
            results_dir=self._settings.results,
            journal=self._writer,
            progress=self._say,
            tell=self._tell,
            reconnect_s=self._settings.reconnect_s,
            stands_for=stands_for,
        )
        self._entries.setdefault(case, []).append(record)
        if (cause := cause_of(record)) is not None:
            quarantine_of(self._share).add(phone.facts.serial, cause)
            self._say(f"phone {phone.facts.serial} is quarantined for the rest of this run: {cause}")
        return record

    def _say(self, text: str) -> None:
        """A progress line, past pytest's capture, so that it is seen while the test runs (also in xdist workers)."""
        if self._channel is not None:
            self._channel.say(text)
            return
        with (
            self._saying,
            self._capture.global_and_fixture_disabled() if self._capture is not None else contextlib.nullcontext(),
        ):
            sys.stderr.write(f"\n[{self._worker}] {text}")
            sys.stderr.flush()

    def _tell(self, sign: Sign) -> None:
        if self._channel is not None:
            self._channel.tell(sign)
