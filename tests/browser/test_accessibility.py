"""axe-core, the accessibility checker, on every kind of page, light and dark; and the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli.capabilities import AXE

pytestmark = [pytest.mark.lane("browser"), pytest.mark.lane("axe"), pytest.mark.lane("history")]

GRAVE = ("serious", "critical")
REPORTS = ("two_cells", "thorough", "synthetic", "hostile", "passing")
SITE = ("index", "runs-2", "phones", "metrics", "metric-decode_tps")


@pytest.fixture
def address(request: pytest.FixtureRequest, page: Callable[[str], Path]) -> Callable[[str], Path]:
    def find(name: str) -> Path:
        if name in REPORTS:
            return page(name)
        if name in SITE:
            return request.getfixturevalue("site_folder") / f"{name}.html"
        found: Path = request.getfixturevalue(f"{name}_page")
        return found

    return find


def faults_of(browser: Any) -> list[tuple[str, str, str, str]]:
    """(impact, rule, first element, why) of every violation. Folded parts are opened: a reader can open them too."""
    browser.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
    browser.evaluate(AXE.read_text(encoding="utf-8") + ";0")
    found = browser.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => "
        "[v.impact, v.id, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary]))"
    )
    return [tuple(item) for item in found]


def test_axe_finds_no_serious_fault_in_the_fullest_report(browser, address) -> None:
    browser.open(address("thorough"))
    assert [fault for fault in faults_of(browser) if fault[0] in GRAVE] == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", [*REPORTS[:4], "comparison", "history", *SITE])
def test_axe_finds_no_serious_fault(browser, address, name, dark) -> None:
    """Each takes a few seconds; all of them, a minute."""
    browser.open(address(name), dark=dark)
    assert [fault for fault in faults_of(browser) if fault[0] in GRAVE] == []


def test_axe_does_find_a_fault_that_is_there(browser, page) -> None:
    """Pale text, and a table that cannot be scrolled by the keyboard."""
    browser.open(page("passing"))
    browser.evaluate(
        "document.querySelector('.lead').style.color = '#e8e8e6', "
        "document.querySelectorAll('form label')[0].replaceWith(document.createElement('input'))"
    )
    rules = {rule for impact, rule, _, _ in faults_of(browser) if impact in GRAVE}
    assert {"color-contrast", "label"} <= rules


@pytest.mark.parametrize("name", ["two_cells", "comparison", "history", "runs-2"])
def test_the_tab_key_reaches_everything_that_can_be_used_and_shows_where_it_is(browser, address, name) -> None:
    """Every link, field, sorting head, chart and table that scrolls has its turn, in the order of the page; the place
    is outlined, and is not under the head of the page."""
    browser.open(address(name), height=900)
    wanted = browser.evaluate(
        "[...document.querySelectorAll('a[href], input, select, summary, [tabindex=\"0\"]')]"
        ".filter((e) => e.checkVisibility()).slice(0, 60).map((e, i) => (e.dataset.turn = i, i))"
    )
    seen = []
    for _ in wanted:
        browser.press("Tab")
        turn, outline, hidden = browser.evaluate(
            """(() => {
              const at = document.activeElement, box = at.getBoundingClientRect();
              const head = document.querySelector('.top').getBoundingClientRect().bottom;
              const covered = !at.closest('.top') && !at.matches('.skip') && box.bottom <= head;
              return [Number(at.dataset.turn), getComputedStyle(at).outlineStyle, covered];
            })()"""
        )
        seen.append(turn)
        assert outline != "none", f"turn {turn} of {name} is not outlined"
        assert not hidden, f"turn {turn} of {name} is under the head"
    assert seen == wanted


def test_the_filter_and_the_sorting_can_be_used_without_a_mouse(browser, page) -> None:
    browser.open(page("two_cells"))
    browser.evaluate("document.getElementById('f-status').focus()")
    browser.press("ArrowDown")
    shown = browser.evaluate("document.getElementById('f-status').value")
    assert shown != ""
    statuses = (
        "[...document.querySelectorAll('#verdict-rows tbody tr')].filter((r) => !r.hidden).map((r) => r.dataset.s)"
    )
    assert set(browser.evaluate(statuses)) == {shown}
    assert browser.evaluate("document.getElementById('f-count').getAttribute('aria-live')") == "polite"


def test_a_chart_can_be_read_without_a_mouse(browser, page) -> None:
    browser.open(page("two_cells"))
    browser.evaluate("document.querySelector('svg.plot[data-left]').focus()")
    browser.press("ArrowRight")
    figure = "document.querySelector('svg.plot[data-left]').closest('figure')"
    assert browser.evaluate(f"{figure}.querySelector('.readout').textContent") != ""
    assert browser.evaluate(f"{figure}.querySelector('.readout').getAttribute('aria-live')") == "polite"
