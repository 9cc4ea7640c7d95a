"""The files: what must and what must not be in them, whatever the journal says."""

import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

from harness.errors import HostError, SnapGateError
from harness.journal import Journal, read_journal
from harness.results.derive import derive
from harness.results.gate import judge_journal, read_limits
from reports import render
from reports.render import MAX_BYTES, environment, render_html, render_json, render_markdown, write_report

DATA = Path(__file__).parents[2] / "data"
NAMES = ("two_cells", "passing", "synthetic", "hostile")
VOID = {"meta", "link", "br", "input", "img"}


class Page(HTMLParser):
    """Every start tag with its attributes, the tags that never closed, and the text of script blocks."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def pages(journals):
    def page(name: str) -> str:
        journal = getattr(journals, name)()
        verdict = judge_journal(journal, journals.LIMITS)
        return render_html(
            journal, verdict, derive(journal), results_dir=Path("results"), manifests=(journals.manifest(),)
        )

    return {name: page(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_tag_is_closed_in_order(pages, name) -> None:
    assert Page(pages[name]).open == []


@pytest.mark.parametrize("name", NAMES)
def test_the_page_loads_nothing_from_anywhere(pages, name) -> None:
    page = Page(pages[name])
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest", pages[name])
    assert not [a for _, a in page.tags if "src" in a or "srcset" in a]
    assert [a["href"] for a in page.all("link")] == ["data:,"]
    assert all(a["href"].startswith(("#", "./")) for a in page.all("a") + page.all("use"))


@pytest.mark.parametrize("name", NAMES)
def test_every_link_inside_the_page_has_a_target(pages, name) -> None:
    page = Page(pages[name])
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in page.all("a") + page.all("use") if a["href"].startswith("#")}
    assert targets <= set(ids)


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_captions_and_headers_have_scopes(pages, name) -> None:
    page = Page(pages[name])
    assert len(page.all("caption")) == len(page.all("table")) > 0
    assert all(a.get("scope") in ("col", "row") for a in page.all("th"))
    assert all(a.get("role") == "img" and a.get("aria-labelledby") for a in page.all("svg") if a.get("class") == "plot")


def test_statuses_are_written_as_words(pages) -> None:
    text = pages["two_cells"]
    assert "<title>INFRA: " in text
    for word in ("INFRA", "INVALID", "NOT COVERED", "PASS"):
        assert f"</svg>{word}</span>" in text


def test_a_missing_figure_says_not_measured_and_why(pages, journals) -> None:
    text = render_html(Journal(), judge_journal(Journal(), journals.LIMITS), ())
    for what in ("Perplexity", "Logits against fp32", "Gap between tokens", "Temperature over time", "Memory per cell"):
        assert re.search(rf"{what}[^<]*: not measured: [a-z]", text), what
    assert (
        '<span class="missing">not measured</span><span class="reason">no load phase was recorded</span>'
        in (pages["two_cells"])
    )


def test_every_section_of_synthetic_data_is_watermarked(pages) -> None:
    sections = re.findall(r'<section id="(\w+)" class="(\w+)".*?</section>', pages["synthetic"], flags=re.DOTALL)
    assert len(sections) == 14
    assert {mark for _, mark in sections} == {"synthetic"}
    assert pages["synthetic"].count("SYNTHETIC: never a release verdict") == 14


def test_what_was_measured_is_not_watermarked(pages) -> None:
    assert "SYNTHETIC:" not in pages["passing"]
    assert 'class="synthetic"' not in pages["passing"]


def test_markup_in_device_text_stays_text(pages) -> None:
    page = Page(pages["hostile"])
    assert len(page.all("script")) == 2
    assert page.all("img") == []
    assert not [name for _, a in page.tags for name in a if name.startswith("on") and name != "onsubmit"]
    assert "&lt;img src=x onerror=alert(1)&gt;" in pages["hostile"]


def test_no_control_or_bidi_character_of_a_device_reaches_the_page(pages) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", pages["hostile"])
    assert "&lt;U+202E&gt;gnp" in pages["hostile"]
    assert "שלום" in pages["hostile"]


def test_the_data_block_of_hostile_text_is_whole(pages) -> None:
    data = json.loads(Page(pages["hostile"]).scripts[0])
    assert data["schema"] == "snapgate.report/1"
    assert "phone </script>" in data["charts"]["snr-0"]["panels"][0]["series"][1]["name"]


def test_exact_values_can_be_read_back_from_the_page(pages) -> None:
    data = json.loads(Page(pages["passing"]).scripts[0])
    rows = [dict(zip(data["verdicts"]["columns"], row, strict=True)) for row in data["verdicts"]["rows"]]
    decode = next(row for row in rows if row["metric"] == "decode_tps")
    assert (decode["value"], decode["unit"], decode["status"], decode["run_ids"]) == (
        10.0,
        "tokens/s",
        "INVALID",
        ["run-a"],
    )
    run_id, place = data["charts"]["tokens-0"]["panels"][0]["series"][0]["stamps"]
    assert data["stamps"][run_id][place]["token_us"][1:] == [100000, 100000, 110000, 90000]
    assert data["charts"]["thermal-0"]["panels"][0]["series"][1]["y"][-1] == 31.1


def test_a_number_leads_to_its_run(pages) -> None:
    assert re.search(r'<a class="num" href="#run-run-a" title="run run-a">12\.429</a>', pages["passing"])


def test_emulated_figures_are_labelled_one_by_one(pages) -> None:
    table = re.search(r'<table class="metrics" id="latency-table">.*?</table>', pages["passing"], flags=re.DOTALL)
    assert table is not None
    assert table[0].count('<span class="emu">emulated</span>') == 8


def test_fifty_runs_fit_into_two_megabytes_with_all_their_charts(journals) -> None:
    journal = journals.fifty_runs()
    text = render_html(journal, judge_journal(journal, journals.LIMITS), derive(journal))
    assert len(text.encode()) <= MAX_BYTES
    assert text.count('<figure class="chart" id="tokens-') == 50
    assert text.count('<figure class="chart" id="thermal-') == 50
    assert re.search(r"Left out to keep the file small: \d+ start-up charts(; \d run-to-run charts)?\.", text)


def test_what_would_make_the_page_too_big_is_left_out_and_said(journals, monkeypatch) -> None:
    journal = journals.fifty_runs()
    monkeypatch.setattr(render, "MAX_BYTES", 1_250_000)
    text = render_html(journal, judge_journal(journal, journals.LIMITS), derive(journal))
    assert len(text.encode()) <= 1_250_000
    assert "Left out to keep the file small: " in text
    assert "42 token gap charts" in text
    assert text.count('<tr data-s="') == len(judge_journal(journal, journals.LIMITS).verdicts)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e308, -1e308, 5e-324])
def test_numbers_that_no_arithmetic_can_take_do_not_break_the_page(journals, value) -> None:
    """Every sensor, condition and comparison says the same impossible number."""
    whole = journals.thorough()
    run = whole.runs[0]
    sensors = tuple(dataclasses.replace(s, values=(value,) * len(s.values)) for s in run.sensors)
    conditions = dataclasses.replace(run.conditions, battery_celsius=value, uptime_s=value)
    logits = tuple(
        dataclasses.replace(
            item,
            snr_db=(value,) * len(item.snr_db),
            kl_nats=(value,) * len(item.kl_nats),
            relative_l2=(value,) * len(item.relative_l2),
            reference_margin=(value,) * len(item.reference_margin),
        )
        for item in whole.logits
    )
    windows = tuple(dataclasses.replace(item, nll_sum=(value,) * len(item.nll_sum)) for item in whole.windows)
    journal = dataclasses.replace(
        whole,
        runs=(dataclasses.replace(run, sensors=sensors, conditions=conditions, wall_s=value),),
        logits=logits,
        windows=windows,
    )
    with np.errstate(all="ignore"):
        text = render_html(journal, judge_journal(journal, journals.LIMITS), derive(journal))
    assert Page(text).open == []
    assert text.count('<section id="') == 14
    for path in re.findall(r' d="([^"]*)"', text):
        assert "nan" not in path
        assert "inf" not in path
    json.loads(re.findall(r'id="snapgate-data">(.*?)</script>', text, re.DOTALL)[0], parse_constant=pytest.fail)


@pytest.mark.parametrize("folder", sorted(p.name for p in (DATA / "journals").iterdir()))
def test_the_first_screen_says_what_the_gate_says_of_a_golden_journal(folder) -> None:
    journal = read_journal(DATA / "journals" / folder)
    verdict = judge_journal(journal, read_limits(DATA / "limits_performance.toml"))
    text = render_html(journal, verdict, derive(journal))
    assert f"<title>{str(verdict.status).replace('_', ' ')}: " in text
    assert (
        f"Exit code {({'PASS': 0, 'FAIL': 10, 'INFRA': 11, 'INVALID': 12, 'INCONCLUSIVE': 13})[verdict.status]}."
        in text
    )


def test_the_same_journal_gives_the_same_page(journals, pages) -> None:
    journal = journals.passing()
    again = render_html(
        journal,
        judge_journal(journal, journals.LIMITS),
        derive(journal),
        results_dir=Path("results"),
        manifests=(journals.manifest(),),
    )
    assert again == pages["passing"]


def test_a_figure_without_a_value_cannot_reach_a_template() -> None:
    with pytest.raises(SnapGateError, match="without a value"):
        environment().from_string("{{ x }}").render(x=None)


def test_an_unknown_name_in_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ y.z }}").render()


def test_templates_escape_by_default() -> None:
    assert environment().from_string("{{ x }}").render(x="<b>&\u202e") == "&lt;b&gt;&amp;&lt;U+202E&gt;"


def test_a_report_is_written_with_its_companions_and_links_to_the_results(tmp_path, journals) -> None:
    journal = journals.passing()
    path = write_report(
        tmp_path / "out" / "report.html",
        journal,
        judge_journal(journal, journals.LIMITS),
        derive(journal),
        results_dir=tmp_path / "results",
    )
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "report.json", "report.md"]
    assert 'href="../results/runs/run-a/records.jsonl"' in path.read_text(encoding="utf-8")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path, journals) -> None:
    (tmp_path / "file").write_text("not a folder")
    journal = journals.passing()
    with pytest.raises(HostError, match="cannot be written"):
        write_report(tmp_path / "file" / "report.html", journal, judge_journal(journal, ()), derive(journal))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_json_document_has_null_for_what_was_not_measured(journals) -> None:
    journal = journals.two_cells()
    data = json.loads(render_json(journal, judge_journal(journal, journals.LIMITS), derive(journal)))
    assert (data["schema"], data["synthetic"]) == ("snapgate.report/1", False)
    assert (data["verdict"]["status"], data["verdict"]["exit_code"]) == ("INFRA", 11)
    missing = [v for v in data["verdicts"] if v["part"] == "SM8750"]
    assert missing
    assert all(v["value"] is None and v["status"] == "NOT_COVERED" for v in missing)
    assert data["runs"][0]["files_sha256"] == {"runs/run-a/records.jsonl": "ab" * 32}


def test_a_figure_that_is_not_finite_is_null_in_json_and_named_in_the_page(journals) -> None:
    journal = journals.passing()
    huge = tuple(dataclasses.replace(w, nll_sum=(1e6,) * len(w.window_ids)) for w in journal.windows)
    journal = dataclasses.replace(journal, windows=huge)
    verdict, measured = judge_journal(journal, journals.LIMITS), derive(journal)
    data = json.loads(render_json(journal, verdict, measured))
    assert next(v for v in data["verdicts"] if v["metric"] == "perplexity")["value"] is None
    assert "∞" in render_html(journal, verdict, measured)


def test_the_markdown_summary_names_verdict_numbers_and_required_metrics(journals) -> None:
    journal = journals.passing()
    text = render_markdown(journal, judge_journal(journal, journals.LIMITS), derive(journal))
    assert text.startswith("## PASS: Validation on Snapdragon\n")
    assert "- decode SNR: **40.0 dB**, ≥\u00a030.0, 33 % inside the limit" in text
    assert "| `decode_snr_db` | tiny-llama · w8a16 · kv8 · SM8650 | PASS | 40.0 dB | 4 | ≥\u00a030.0 |" in text


def test_hostile_text_breaks_no_row_of_the_markdown_table(journals) -> None:
    journal = journals.hostile()
    record = journal.runs[0]
    evil = dataclasses.replace(record, device=dataclasses.replace(record.device, model="a|b\n| c `d` <i>"))
    text = render_markdown(
        dataclasses.replace(journal, runs=(evil,)), judge_journal(journal, journals.LIMITS), derive(journal)
    )
    assert "<i>" not in text
    assert all(line.count("|") == 8 for line in text.splitlines() if line.startswith("|"))


def test_synthetic_data_is_named_in_json_and_markdown(journals) -> None:
    journal = journals.synthetic()
    verdict = judge_journal(journal, journals.LIMITS)
    assert json.loads(render_json(journal, verdict, derive(journal)))["synthetic"] is True
    assert "> **Synthetic.**" in render_markdown(journal, verdict, derive(journal))
