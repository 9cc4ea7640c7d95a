"""The pytest plugin: options, SoC markers, the ``case``, ``lab`` and ``verdict`` fixtures, and the end of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from harness.errors import SnapGateError
from harness.journal import JournalWriter, Plan
from harness.plugin.case import Case, cases, parametrize
from harness.plugin.controller import Controller, cells_of_run
from harness.plugin.lab import Lab
from harness.plugin.live import Channel
from harness.plugin.options import Settings, add_options, read_settings, suites_asked_for
from harness.plugin.outcomes import as_error_if_infra, settle
from harness.plugin.plan import n_planned, plan_lines, runs_of
from harness.plugin.replay import ReplayLab
from harness.plugin.share import Share
from harness.results.gate import read_baseline, read_limits, read_session
from harness.soc import SOCS

_SHARE = pytest.StashKey[Share]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    for soc in SOCS:
        config.addinivalue_line(
            "markers", f"{soc.marker}: runs on {soc.marketing_name} ({soc.part}, HTP v{soc.htp_arch})"
        )
    config.addinivalue_line("markers", "thorough: takes long; runs with --thorough, or when its file is named")
    if config.option.help or not suites_asked_for(config):
        return
    workerinput = getattr(config, "workerinput", None)
    try:
        settings = read_settings(config)
        if workerinput is not None:
            share = Share.from_json(workerinput["snapgate"])
        else:
            controller = Controller(config, settings)
            config.pluginmanager.register(controller, "snapgate-controller")
            share = controller.share
    except SnapGateError as exc:
        pytest.exit(f"error: {exc}", returncode=exc.exit_code)
    config.stash[_SHARE] = share


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    share = metafunc.config.stash.get(_SHARE, None)
    if share is None:
        raise pytest.UsageError(
            "a test of models on phones needs SnapGate switched on; next step: pytest --snapgate ..."
        )
    settings = read_settings(metafunc.config)
    parametrize(metafunc, cases(cells_of_run(settings), settings, share.phones))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """An A/B comparison is a session of its own: with ``--ab`` only its tests are left, without it none of them. Long
    suites are left out unless they are asked for."""
    if config.stash.get(_SHARE, None) is None:
        return
    settings = read_settings(config)
    compares = settings.ab is not None or (
        settings.journal is not None and bool(read_session(settings.journal)[0].comparisons)
    )
    left_out = [
        item
        for item in items
        if ("ab_run" in getattr(item, "fixturenames", ())) is not compares or not _is_wanted(item, settings)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    controller = config.pluginmanager.getplugin("snapgate-controller")
    items.sort(key=lambda item: "smoke_run" not in getattr(item, "fixturenames", ()))
    if settings.plan and isinstance(controller, Controller):
        controller.planned = plan_lines(runs_of(items), settings, controller.share.phones)
        items.clear()


def _is_wanted(item: pytest.Item, settings: Settings) -> bool:
    """A test marked ``thorough`` needs ``--thorough``, or its own file named, or a journal to look it up in."""
    if item.get_closest_marker("thorough") is None or settings.thorough or settings.journal is not None:
        return True
    named = (Path(argument.partition("::")[0]) for argument in item.config.args)
    return any((item.config.invocation_params.dir / path).resolve() == item.path for path in named)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Journal what is planned, before anything runs. Workers collect the same tests, so the first speaks for all."""
    config = session.config
    share = config.stash.get(_SHARE, None)
    if share is None or config.option.collectonly:
        return
    settings = read_settings(config)
    if settings.plan:
        return
    worker = worker_of(config)
    distributes = worker == "main" and bool(getattr(config.option, "numprocesses", None))
    if settings.journal is not None or distributes or worker not in ("main", "gw0"):
        return
    functions = [item for item in session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    pairs = [(item.callspec.params.get("case"), item.fixturenames) for item in functions]
    planned = [case.cell for case, _ in pairs if isinstance(case, Case)]
    writer = JournalWriter(settings.results / "journal" / share.journal_name(worker))
    writer.append(Plan(session_id=share.session_id, cells=tuple(dict.fromkeys(planned))))
    writer.close()
    if share.live is not None:
        channel = Channel(share.live, worker)
        channel.plan(n_planned(runs_of(functions), settings, share.phones))
        channel.close()


def worker_of(config: pytest.Config) -> str:
    """``gw0`` and so on in xdist's workers, ``main`` elsewhere."""
    name: str = getattr(config, "workerinput", {}).get("workerid", "main")
    return name


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab | ReplayLab]:
    """The lab as this process sees it: artifacts, phones, runs and comparisons, each made once."""
    config = request.config
    settings = read_settings(config)
    made: Lab | ReplayLab
    if settings.journal is not None:
        journal, _ = read_session(settings.journal)
        if settings.baselines:
            found = tuple(read_baseline(path) for path in settings.baselines)
            journal = dataclasses.replace(journal, baselines=found)
        made = ReplayLab(journal, read_limits(settings.limits), release=settings.release)
    else:
        capture = config.pluginmanager.getplugin("capturemanager")
        made = Lab(settings, config.stash[_SHARE], worker=worker_of(config), capture=capture)
    with made:
        yield made


@pytest.fixture
def verdict(lab: Lab | ReplayLab, case: Case, record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """``verdict("decode_snr_db")`` judges that metric of the case from what is in the journal, and ends the test so."""

    def judge_metric(metric: str) -> None:
        settle(lab.verdict(case, metric), record_property)

    return judge_metric


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    as_error_if_infra(report, call)
    return report
