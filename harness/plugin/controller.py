"""The controlling process of a run: finds the phones once, hands them to the workers, concludes at the end."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import secrets
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import harness
from harness.errors import HostError, InfraError, SnapGateError
from harness.journal import JOURNAL_SCHEMA, End, Entry, JournalWriter, Session, read_journal
from harness.plugin.case import cases
from harness.plugin.conclusion import Conclusion, conclude
from harness.plugin.live import Screen, screen_for
from harness.plugin.options import PhoneChoice, Settings
from harness.plugin.phones import NO_PHONES, PhoneList, PhoneRack, markers_asked_for
from harness.plugin.replay import cells_of
from harness.plugin.resume import resume_entry, session_of, stopped_session
from harness.plugin.share import Share
from harness.record.run import Cell
from harness.record.vocabulary import EXIT_CODES, Status
from harness.results.gate import read_baseline, read_limits, read_session
from harness.results.integrity import cover
from harness.soc import BY_PART
from harness.spec.models import load_catalogue

_VIRTUAL_PER_SOC_AT_MOST = 4


class Controller:
    """Registered as a pytest plugin in the controlling process only."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._rack = PhoneRack()
        self._conclusion: Conclusion | None = None
        self._failed: str | None = None
        self._screen: Screen | None = None
        self._broken: list[str] = []
        read_limits(settings.limits)
        self._baselines = tuple(read_baseline(path) for path in settings.baselines)
        self._cells = cells_of_run(settings)
        self._live = settings.journal is None and not config.option.collectonly and not settings.plan
        self._stopped = None if settings.resume is None else stopped_session(settings)
        self.planned: tuple[str, ...] = ()
        """Lines for ``--plan``"""
        try:
            phones = self._find_phones() if self._live else self._phones_to_plan_with()
            started = datetime.now(UTC)
            self._screen = self._open_screen() if self._live else None
            self.share = Share(
                session_id=f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
                if self._stopped is None
                else session_of(self._stopped).session_id,
                phones=phones,
                live=None if self._screen is None else self._screen.address,
                part=0 if self._stopped is None else len(self._stopped.resumes) + 1,
            )
            if self._live and self._stopped is not None:
                self._append(resume_entry(self._stopped, started))
            elif self._live:
                self._write_session(started)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._screen is not None:
            self._screen.close()
        self._rack.close()

    def _open_screen(self) -> Screen | None:
        """While pytest configures itself, file descriptor 1 is still the terminal."""
        workers = int(getattr(self._config.option, "numprocesses", None) or 1)
        return screen_for(1, n_workers=workers, environment=dict(os.environ))

    def _find_phones(self) -> PhoneList:
        option = self._config.option
        markers = markers_asked_for(option.markexpr, (BY_PART[cell.part].marker for cell in self._cells))
        workers = int(getattr(option, "numprocesses", None) or 0)
        per_soc = min(max(1, workers), _VIRTUAL_PER_SOC_AT_MOST)
        phones = self._rack.find(self._settings, markers, per_soc, self._say)
        if self._settings.require_device and not any(not phone.virtual for phone in phones.phones):
            raise InfraError(
                "no real phone, and --require-device was given",
                found="; ".join([*(f"{phone.serial}: virtual" for phone in phones.phones), *phones.unusable])
                or "nothing attached",
                expected="at least one usable phone",
                next_step="attach one, allow USB debugging on it, and look at `snapgate devices`",
            )
        return phones

    def _phones_to_plan_with(self) -> PhoneList:
        """With ``--plan``: what is attached; nothing is started."""
        if not self._settings.plan or self._settings.phones is PhoneChoice.VIRTUAL:
            return NO_PHONES
        try:
            return self._rack.find(replace(self._settings, phones=PhoneChoice.ATTACHED), (), 0, self._say)
        except HostError:
            return NO_PHONES

    def _say(self, text: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"[snapgate] {text}")
        else:
            sys.stderr.write(f"[snapgate] {text}\n")

    def _write_session(self, started: datetime) -> None:
        phones = self.share.phones
        self._append(
            Session(
                session_id=self.share.session_id,
                schema=JOURNAL_SCHEMA,
                started_at=started.isoformat(timespec="seconds"),
                source=None,
                versions=versions(),
                command=tuple(self._config.invocation_params.args),
                required=tuple(sorted(str(family) for family in self._settings.required)),
                phones=tuple(f"{phone.serial} {phone.part}" for phone in phones.phones),
                notes=phones.notes,
                tuning=self._settings.tuning.words,
            )
        )

        for baseline in self._baselines:
            self._append(baseline)

    def _append(self, entry: Entry) -> None:
        writer = JournalWriter(self._settings.results / "journal" / self.share.journal_name())
        try:
            writer.append(entry)
        finally:
            writer.close()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """xdist: every worker gets the same list, so that all collect the same tests."""
        node.workerinput["snapgate"] = self.share.to_json()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """With the default ``--dist load``: a case stays on one worker."""
        if config.getoption("dist") != "load":
            return None
        from harness.plugin.scheduling import CaseScheduling

        all_cases = cases(self._cells, self._settings, self.share.phones)
        return CaseScheduling(config, log, [case.id for case in all_cases])

    def pytest_report_header(self) -> list[str]:
        phones = self.share.phones
        lines = [f"snapgate: session {self.share.session_id}"]
        lines += [f"snapgate: {note.upper() if 'VIRTUAL' in note else note}" for note in phones.notes]
        lines += [
            f"snapgate: phone {phone.serial}: {phone.part}, Android {phone.android_release}"
            + (" (virtual)" if phone.virtual else "")
            for phone in phones.phones
        ]
        return lines + [f"snapgate: not usable: {reason}" for reason in phones.unusable]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and "verdict" not in dict(report.user_properties):
            self._broken.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The verdict of the run decides the exit code, unless pytest itself was stopped or a test broke on its own.

        A session that was stopped before its last test gets no ``End``, so its journal never passes.
        """
        if self._screen is not None:
            self._screen.close()
        if self._settings.plan and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK
        if not self._concludes or session.exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return
        try:
            if self._live and not session.shouldstop and not session.shouldfail:
                self._append(End(session_id=self.share.session_id, broken=tuple(self._broken)))
            session.exitstatus = self._conclude()
        except SnapGateError as exc:
            self._failed = f"error: no verdict and no report: {exc}"
            session.exitstatus = exc.exit_code

    @property
    def _concludes(self) -> bool:
        return not self._config.option.collectonly and not self._settings.plan

    def _conclude(self) -> int:
        if self._settings.journal is not None:
            journal, _ = read_session(self._settings.journal)
            if self._baselines:
                journal = replace(journal, baselines=self._baselines)
        else:
            journal = read_journal(self._settings.results / "journal", session_id=self.share.session_id)
        self._conclusion = conclude(journal, self._settings)
        status = self._conclusion.verdict.status
        if self._broken and status is Status.PASS:
            return int(pytest.ExitCode.TESTS_FAILED)
        return EXIT_CODES[status]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._failed is not None:
            terminalreporter.write_line(self._failed, red=True)
        if self.planned:
            terminalreporter.section("plan")
        for line in self.planned:
            terminalreporter.write_line(line)
        if self._conclusion is None:
            return
        terminalreporter.section("SnapGate")
        for line in self._conclusion.lines:
            terminalreporter.write_line(line)
        for nodeid in self._broken[:10]:
            terminalreporter.write_line(f"broke without a verdict: {nodeid}")

    def pytest_unconfigure(self) -> None:
        """By now every plugin has written its files."""
        junit = getattr(self._config.option, "xmlpath", None)
        try:
            if junit and self._conclusion is not None:
                cover(self._settings.results, self._config.invocation_params.dir / junit)
        except (SnapGateError, OSError) as exc:
            self._say(f"error: {junit} is not covered by the manifest: {exc}")
        self._close()


def cells_of_run(settings: Settings) -> tuple[Cell, ...]:
    """The cells there are: those of the model catalogue, or those of the journal that is judged again."""
    if settings.journal is not None:
        return cells_of(read_session(settings.journal)[0])
    return load_catalogue(settings.models).cells(settings.precisions)


def versions() -> dict[str, str]:
    """Versions of what computes or transports a figure. Packages that are not installed are left out."""
    found = {"snapgate": harness.__version__, "python": platform.python_version(), "host": platform.platform()}
    for package in ("onnxruntime", "onnxruntime-qnn", "onnx", "numpy", "scipy", "adbutils", "pytest"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
