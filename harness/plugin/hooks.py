"""The pytest plugin: options, SoC markers, the ``case``, ``lab`` and ``verdict`` fixtures, and the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

from harness.errors import InfraError, SnapGateError
from harness.plugin.case import Case, cases, parametrize
from harness.plugin.controller import Controller
from harness.plugin.lab import Lab
from harness.plugin.options import add_options, read_settings, suites_asked_for
from harness.plugin.outcomes import as_error_if_infra, settle
from harness.plugin.share import Share
from harness.soc import SOCS
from harness.spec.models import load_catalogue

_SHARE = pytest.StashKey[Share]()
_LAB = pytest.StashKey[Lab]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    for soc in SOCS:
        config.addinivalue_line(
            "markers", f"{soc.marker}: runs on {soc.marketing_name} ({soc.part}, HTP v{soc.htp_arch})"
        )
    if not suites_asked_for(config) or (config.option.collectonly and config.option.help):
        return
    settings = read_settings(config)
    workerinput = getattr(config, "workerinput", None)
    try:
        if workerinput is not None:
            share = Share.from_json(workerinput["snapgate"])
        else:
            controller = Controller(config, settings)
            config.pluginmanager.register(controller, "snapgate-controller")
            share = controller.share
    except InfraError as exc:
        pytest.exit(str(exc), returncode=exc.exit_code)
    except SnapGateError as exc:
        raise pytest.UsageError(str(exc)) from exc
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
    parametrize(metafunc, cases(load_catalogue(settings.models), settings, share.phones))


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab as this process sees it: artifacts, phones, runs and comparisons, each made once."""
    config = request.config
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    capture = config.pluginmanager.getplugin("capturemanager")
    with Lab(read_settings(config), config.stash[_SHARE], worker=worker, capture=capture) as made:
        yield made


@pytest.fixture
def verdict(lab: Lab, case: Case, record_property: Callable[[str, object], None]) -> Callable[[str], None]:
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
