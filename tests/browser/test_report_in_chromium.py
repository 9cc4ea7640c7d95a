"""What a reader's browser does with the report."""

import struct

import pytest

pytestmark = pytest.mark.lane("browser")

FAULTS = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}


def faults(browser):
    return [event["params"] for event in browser.events if event["method"] in FAULTS]


def requests(browser):
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("file:", "data:"))]


def fill(browser, field, text):
    find = f"document.getElementById('{field}')"
    browser.evaluate(f"{find}.value = '{text}', {find}.dispatchEvent(new Event('input'))")


@pytest.mark.parametrize("name", ["two_cells", "passing", "synthetic", "hostile", "fifty_runs"])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_an_error_and_asks_nobody_for_anything(browser, page, name, dark) -> None:
    browser.open(page(name), dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
    assert faults(browser) == []
    assert requests(browser) == []


def test_a_device_cannot_run_script(browser, page) -> None:
    browser.open(page("hostile"))
    assert browser.evaluate("typeof window.hacked") == "undefined"
    assert browser.evaluate("document.images.length") == 0


def test_every_kind_of_chart_is_there_and_has_a_size(browser, page) -> None:
    browser.open(page("two_cells"))
    plots = "[...document.querySelectorAll('svg.plot')]"
    shown = browser.evaluate(f"{plots}.map((p) => [p.closest('figure').id, p.getBoundingClientRect().height > 80])")
    kinds = {name.split("-")[0] for name, _ in shown}
    assert kinds == {"layers", "snr", "depth", "gaps", "tokens", "startup", "thermal"}
    assert all(visible for _, visible in shown)


def test_every_section_has_its_chart_where_everything_was_measured(browser, page) -> None:
    browser.open(page("thorough"))
    assert faults(browser) == []
    kinds = browser.evaluate("[...document.querySelectorAll('figure.chart')].map((f) => f.id.split('-')[0])")
    assert set(kinds) == {
        "layers", "snr", "prompt", "depth", "gaps", "tokens", "startup", "thermal", "power", "roofline",
    }  # fmt: skip
    hover = browser.evaluate("document.querySelector('#prompt-0 circle title').textContent")
    assert hover == "time to first token: 20.0 ms at 16 tokens, 95 % 18.0 … 22.0, n = 5"
    power = browser.evaluate("document.querySelector('figure[id^=power] circle title').textContent")
    assert power == "power: 2.000 W at 0 s"


def test_the_values_of_a_median_come_with_interval_and_n(browser, page) -> None:
    browser.open(page("thorough"))
    browser.evaluate("document.querySelector('#prompt-0 details.values').open = true")
    head, first = browser.evaluate(
        """new Promise((done) => setTimeout(() => {
          const table = document.querySelector('#prompt-0 .values table');
          done([table.tHead.rows[0], table.tBodies[0].rows[0]].map((r) => [...r.cells].map((c) => c.textContent)));
        }, 50))"""
    )
    assert head == ["prompt length (tokens)", "time to first token (ms)", "95 % low", "95 % high", "n"]
    assert first == ["16", "20", "18", "22", "5"]


def test_windows_and_the_throttle_mark_stand_where_they_happened(browser, page) -> None:
    """The runner starts at 1 s; the first token comes at 5.4 s, throttling after 400 gaps of 10 ms: 8.4 s on an axis
    that begins at 0 and ends with the last sensor, at 33 s."""
    browser.open(page("thorough"))
    mark, left, right, words, low, high = browser.evaluate(
        """(() => {
          const plot = document.querySelector('#thermal-0 svg.plot');
          const words = [...plot.querySelectorAll('.span title')].map((t) => t.textContent.split(':')[0]);
          return [plot.querySelector('path.mark').getBBox().x, Number(plot.dataset.left), Number(plot.dataset.right),
                  words, Number(plot.dataset.low), Number(plot.dataset.high)];
        })()"""
    )
    at = low + (mark - left) / (right - left) * (high - low)
    assert at == pytest.approx(8.4, abs=0.1)
    assert words[-1] == "throttled"
    label = browser.evaluate("document.querySelector('#thermal-0 text.mark').textContent")
    assert label.startswith("throttled after 40")


def test_a_drawn_line_ends_where_its_last_value_lies(browser, page) -> None:
    """Gaps 100, 100, 110, 90: the last point is lower than the first by a tenth of the height of the value 100."""
    browser.open(page("passing"))
    start, end, zero = browser.evaluate(
        """(() => {
          const path = document.querySelector('#tokens-0 path.line');
          const first = path.getPointAtLength(0), last = path.getPointAtLength(path.getTotalLength());
          const axis = document.querySelector('#tokens-0 path.axis').getPointAtLength(0);
          return [first.y, last.y, axis.y];
        })()"""
    )
    assert (zero - end) / (zero - start) == pytest.approx(0.9, abs=0.005)


def test_the_filter_leaves_the_rows_that_match_all_of_it(browser, page) -> None:
    browser.open(page("two_cells"))
    visible = "[...document.querySelectorAll('#verdict-rows tbody tr')].filter((row) => !row.hidden)"
    everything = browser.evaluate(f"{visible}.length")
    fill(browser, "f-status", "PASS")
    assert browser.evaluate(f"[...new Set({visible}.map((row) => row.dataset.s))]") == ["PASS"]
    fill(browser, "f-text", "SNR")
    assert browser.evaluate(f"{visible}.map((row) => row.querySelector('th a').textContent)") == ["decode_snr_db"]
    assert browser.evaluate("document.getElementById('f-count').textContent") == f"1 of {everything} rows"


def test_a_click_on_a_head_sorts_by_number_and_a_second_one_turns_it_round(browser, page) -> None:
    browser.open(page("two_cells"))
    click = "document.querySelectorAll('#verdict-rows thead th')[3].querySelector('[role=button]').click()"
    values = (
        "[...document.querySelectorAll('#verdict-rows tbody tr')].map((r) => r.cells[3].dataset.k)"
        ".filter((k) => k !== '').map(Number)"
    )
    browser.evaluate(click)
    rising = browser.evaluate(values)
    assert rising == sorted(rising)
    assert len(set(rising)) > 5
    browser.evaluate(click)
    assert browser.evaluate(values) == sorted(rising, reverse=True)
    assert browser.evaluate("document.querySelectorAll('#verdict-rows thead th')[3].ariaSort") == "descending"


def test_the_keyboard_reaches_the_skip_link_first_and_can_sort(browser, page) -> None:
    browser.open(page("two_cells"))
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.evaluate("document.querySelectorAll('#verdict-rows thead th')[1].querySelector('[role=button]').focus()")
    browser.press("Enter")
    assert browser.evaluate("document.querySelectorAll('#verdict-rows thead th')[1].ariaSort") == "ascending"


def test_arrow_keys_read_a_chart_out(browser, page) -> None:
    browser.open(page("passing"))
    browser.evaluate("document.querySelector('#tokens-0 svg.plot').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    text = browser.evaluate("document.querySelector('#tokens-0 .readout').textContent")
    assert text == "token 4: story · 1: 110 ms; story · 2: 110 ms; story · 3: 110 ms"


def test_the_values_of_a_chart_can_be_opened_as_a_table(browser, page) -> None:
    browser.open(page("passing"))
    browser.evaluate("document.querySelector('#thermal-0 details.values').open = true")
    rows = browser.evaluate(
        """new Promise((done) => setTimeout(() => {
          const tables = [...document.querySelectorAll('#thermal-0 .values table')];
          const column = (table) => [...table.tBodies[0].rows].slice(2, 5).map((row) => row.cells[1].textContent);
          done(tables.map((table) => [table.caption.textContent, column(table)]));
        }, 50))"""
    )
    assert rows[0] == ["cpu: cpu-0-0 (partial), n = 11, run run-a", ["45", "not measured", "45"]]


def test_a_link_to_a_metric_opens_its_definition(browser, page) -> None:
    browser.open(page("passing"))
    browser.evaluate("document.querySelector('a[href=\"#m-decode_tps\"]').click()")
    opened = "new Promise((done) => setTimeout(() => done(document.getElementById('definitions').open), 50))"
    assert browser.evaluate(opened) is True


def test_without_script_the_whole_table_is_there_and_the_filter_is_not(browser, page) -> None:
    browser.javascript(enabled=False)
    try:
        browser.open(page("two_cells"))
    finally:
        browser.javascript(enabled=True)
    assert browser.evaluate("document.getElementById('verdict-filter').hidden") is True
    assert browser.evaluate("document.querySelectorAll('#verdict-rows tbody tr[hidden]').length") == 0
    assert browser.evaluate("document.querySelectorAll('#verdict-rows [role=button]').length") == 0


def test_the_page_is_no_wider_than_a_phone(browser, page) -> None:
    browser.open(page("two_cells"), width=390, height=844)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_and_light_differ_and_text_stands_out_in_both(browser, page) -> None:
    seen = []
    for dark in (False, True):
        browser.open(page("passing"), dark=dark)
        seen.append(
            browser.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
        )

    def lightness(colour: str) -> float:
        return sum(int(part) for part in colour.strip("rgb()").split(",")) / 765

    light, dark_ = [[lightness(c) for c in pair] for pair in seen]
    assert light[0] - light[1] > 0.6
    assert dark_[1] - dark_[0] > 0.6


def test_print_opens_what_is_folded_and_drops_what_needs_a_mouse(browser, page) -> None:
    browser.open(page("two_cells"), media="print")
    assert browser.evaluate("getComputedStyle(document.querySelector('.top')).display") == "none"
    assert browser.evaluate("getComputedStyle(document.getElementById('verdict-filter')).display") == "none"
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    closed = "[...document.querySelectorAll('details:not(.values):not(#definitions)')].filter((d) => !d.open).length"
    assert browser.evaluate(closed) == 0
    assert browser.pdf().startswith(b"%PDF")


def test_a_screenshot_has_the_size_of_the_window(browser, page) -> None:
    browser.open(page("passing"), width=800, height=600)
    picture = browser.screenshot()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (800, 600)
