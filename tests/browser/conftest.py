"""Pages in headless Chromium, driven by ``tools/screenshot.py``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.results.derive import derive
from harness.results.gate import judge_journal
from reports.render import write_report

ROOT = Path(__file__).parents[2]


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def journals() -> ModuleType:
    return load("report_journals_in_browser", ROOT / "tests" / "unit" / "reports" / "journals.py")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    screenshot = load("snapgate_screenshot", ROOT / "tools" / "screenshot.py")
    executable = screenshot.find_chromium()
    if executable is None:
        pytest.skip("no chromium on this host: apt-get install chromium")
    with screenshot.Browser(executable) as started:
        yield started


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory, journals: ModuleType) -> Callable[[str], Path]:
    """The report of a journal of ``journals.py``, as a file."""
    folder = tmp_path_factory.mktemp("pages")

    def make(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            journal = getattr(journals, name)()
            verdict = judge_journal(journal, journals.LIMITS)
            write_report(path, journal, verdict, derive(journal), results_dir=folder, manifests=(journals.manifest(),))
        return path

    return make
