"""What a reader's browser does with the history page."""

import pytest

pytestmark = [pytest.mark.lane("browser"), pytest.mark.lane("history")]

FAULTS = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}


@pytest.mark.parametrize("dark", [False, True])
def test_the_history_opens_without_an_error_and_asks_nobody_for_anything(browser, history_page, dark) -> None:
    browser.open(history_page, dark=dark)
    assert [event["params"] for event in browser.events if event["method"] in FAULTS] == []
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.evaluate("document.images.length") == 0


def test_what_became_worse_stands_first_with_its_first_run(browser, history_page) -> None:
    browser.open(history_page)
    rows = browser.evaluate(
        "[...document.querySelectorAll('#change-table tbody tr')].map((r) => [r.cells[0].textContent, "
        "r.cells[3].textContent, r.cells[4].textContent, r.cells[6].textContent, "
        "r.cells[8].querySelector('.mono').textContent])"
    )
    assert rows == [
        ["worse", "50.00", "40.00", "−20.0 %", "run-7"],
        ["moved", "2.00", "3.00", "+50.0 %", "run-7"],
    ]


def test_a_trend_is_drawn_through_its_values_and_the_change_between_two_sessions(browser, history_page) -> None:
    """Sessions 1 to 12: the change line stands half way between the sixth and the seventh of twelve points."""
    browser.open(history_page)
    charts = browser.evaluate("document.querySelectorAll('#trends svg.plot').length")
    assert charts == 3
    first, last, change, high, low = browser.evaluate(
        """(() => {
          const plot = document.querySelector('#trend-0 svg.plot');
          const line = plot.querySelector('path.line.s0');
          const a = line.getPointAtLength(0), b = line.getPointAtLength(line.getTotalLength());
          const band = plot.querySelector('path.band-change').getBBox();
          return [a.x, b.x, band.x, a.y, b.y];
        })()"""
    )
    assert (change - first) / (last - first) == pytest.approx(5.5 / 11, abs=0.01)
    assert low > high
    hover = browser.evaluate("document.querySelector('#trend-0 circle title').textContent")
    assert hover == "decode_tps: 50.00 tok/s at session 1"


def test_the_values_of_a_chart_can_be_read_as_a_table(browser, history_page) -> None:
    browser.open(history_page)
    browser.evaluate("document.querySelectorAll('#trend-0 details.values').forEach((d) => { d.open = true; })")
    values = browser.evaluate(
        "new Promise((done) => setTimeout(() => done([...document.querySelectorAll("
        "'#trend-0 details.values table')][0].tBodies[0].rows.length), 200))"
    )
    assert values == 12


def test_every_table_and_chart_has_a_name(browser, history_page) -> None:
    browser.open(history_page)
    unnamed = browser.evaluate(
        """[...document.querySelectorAll('table')].filter((t) => !t.caption).length
         + [...document.querySelectorAll('svg.plot')].filter((p) => !document.getElementById(
             p.getAttribute('aria-labelledby'))).length
         + [...document.querySelectorAll('section')].filter((s) => !document.getElementById(
             s.getAttribute('aria-labelledby'))).length"""
    )
    assert unnamed == 0
