"""What a reader's browser does with the comparison page."""

import pytest

pytestmark = pytest.mark.lane("browser")

FAULTS = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}


@pytest.mark.parametrize("dark", [False, True])
def test_the_comparison_opens_without_an_error_and_asks_nobody_for_anything(browser, comparison_page, dark) -> None:
    browser.open(comparison_page, dark=dark)
    assert [event["params"] for event in browser.events if event["method"] in FAULTS] == []
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []
    assert browser.evaluate("typeof window.hacked") == "undefined"


def test_equal_exact_figures_are_the_same_and_emulated_speed_is_refuted(browser, comparison_page) -> None:
    browser.open(comparison_page)
    rows = dict(
        browser.evaluate(
            "[...document.querySelectorAll('#effect-table tbody tr')].map((r) => [r.cells[1].textContent, r.dataset.o])"
        )
    )
    assert rows["decode_snr_db"] == "same"
    assert rows["decode_tps"] == "refuted"


def test_each_artifact_is_a_point_and_a_row_of_the_pareto_view(browser, comparison_page) -> None:
    browser.open(comparison_page)
    first = "document.querySelector('#pareto figure')"
    assert browser.evaluate(f"{first}.querySelectorAll('path.dots').length") == 2
    rows = browser.evaluate(
        "[...document.querySelector('table.pareto').tBodies[0].rows].map((r) => [r.cells[0].textContent, "
        "r.cells[6].textContent])"
    )
    assert [row[1] for row in rows] == ["on the front, but refuted: emulated"] * 2
    assert rows[1][0] == "beefbeefbeef"
