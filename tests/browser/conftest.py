"""Pages in headless Chromium, driven by ``tools/screenshot.py``."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.results.derive import derive
from harness.results.gate import judge_journal
from reports.comparison import Side, write_comparison
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
            manifests = (journals.manifest(), journals.thorough_manifest())
            write_report(path, journal, verdict, derive(journal), results_dir=folder, manifests=manifests)
        return path

    return make


HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>\x1b[31m\u202egnp\x00 📱 שלום"


@pytest.fixture(scope="session")
def comparison_page(tmp_path_factory: pytest.TempPathFactory, journals: ModuleType) -> Path:
    """The virtual phone of ``passing``, beside one with a hostile phone's text and the same figures."""
    first = journals.passing()
    run = first.runs[0]
    device = dataclasses.replace(run.device, model=journals.HOSTILE)
    second = dataclasses.replace(first, runs=(dataclasses.replace(run, device=device, artifact_id="beef" * 4),))
    sides = [Side(name=name, journal=j, measurements=derive(j)) for name, j in (("a", first), ("<b>", second))]
    return write_comparison(tmp_path_factory.mktemp("comparison") / "comparison.html", *sides)


def points(values: list[float], *, refuted: str = "") -> list[Any]:
    from harness.results.history import Point

    return [
        Point(
            session_id=f"s{number:02}",
            started_at=f"2026-03-{number:02}T08:00:00+00:00",
            artifact_id=("a1" if number < 7 else "b2") * 8,
            value=value,
            ci_low=value - 1,
            ci_high=value + 1,
            n_samples=5,
            status="PASS",
            refuted_by=refuted,
            run_ids=(f"run-{number}",),
        )
        for number, value in enumerate(values, start=1)
    ]


@pytest.fixture(scope="session")
def history_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sqlalchemy", reason="the extra history is not installed")
    from harness.results.history import KnownChange, make_series
    from reports.history import write_history

    known = (KnownChange(date="2026-03-07", note=HOSTILE),)
    cell = "tiny-llama-w8a16-kv8-SM8650"
    common = {"cell": cell, "serial": "PHONE1", "phone": HOSTILE, "source": "phone", "known": known}
    falling = make_series(metric="decode_tps", points=points([50.0] * 6 + [40.0] * 6), **common)
    level = make_series(metric="peak_rss_bytes", points=points([2.0**30] * 12), **common)
    emulated = {**common, "source": "virtual", "serial": "V1"}
    rising = make_series(metric="decode_tps", points=points([2.0] * 6 + [3.0] * 6, refuted="emulated"), **emulated)
    return write_history(tmp_path_factory.mktemp("history") / "history.html", [rising, level, falling])


@pytest.fixture(scope="session")
def site_pages() -> ModuleType:
    return load("site_pages_for_browser", ROOT / "tests" / "unit" / "reports" / "test_site_pages.py")


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory, site_pages: ModuleType) -> Path:
    """11 sessions of 60 runs: 660 runs, three pages."""
    pytest.importorskip("sqlalchemy", reason="the extra history is not installed")
    from harness.results.store import open_store
    from reports.site import build_site

    folder = tmp_path_factory.mktemp("site")
    with open_store(str(folder / "h.db")) as engine:
        site_pages.fill(engine, 11, 60, phone=site_pages.HOSTILE)
        build_site(engine, folder / "site")
    return folder / "site"
