"""The static site: every run is on a page, pages are bounded, links lead to files, a foreign folder is left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from harness.cli.main import main
from harness.errors import UserError
from harness.results.gate import read_limits
from harness.results.schema_versions import measurements, runs, sessions
from harness.results.store import import_journals, open_store
from reports import site
from reports.site import build_site

pytestmark = pytest.mark.lane("history")
DATA = Path(__file__).resolve().parents[2] / "data"
HOSTILE = "</script><script>alert(1)</script>\x1b\u202e"


def fill(engine: sa.Engine, n_sessions: int, per_session: int, *, phone: str = "Lab Phone") -> None:
    """Sessions a minute apart with ``per_session`` runs and a decode_tps per phone: 10 + the number of the session."""
    with engine.begin() as connection:
        for number in range(n_sessions):
            session = f"s{number:05}"
            at = f"2026-01-{1 + number // 1440:02}T{number // 60 % 24:02}:{number % 60:02}:00+00:00"
            common = {"session_id": session, "source": "phone", "cell": "m-w8a16-kv8-SM8650"}
            connection.execute(
                sessions.insert(),
                {
                    "session_id": session,
                    "journal_sha256": "",
                    "limits_sha256": "",
                    "started_at": at,
                    "status": "FAIL" if number % 4 == 0 else "PASS",
                    "n_runs": per_session,
                    "versions": {"snapgate": "0.1.0"},
                },
            )
            connection.execute(
                runs.insert(),
                [
                    {
                        **common,
                        "run_id": f"{session}-{i}",
                        "part": "SM8650",
                        "workload": "latency",
                        "started_at": at,
                        "wall_s": 1.5,
                        "serial": f"PHONE{i % 50}",
                        "phone": phone,
                        "artifact_id": f"{number // 10:016x}",
                        "outcome": "completed" if i else "INFRA",
                    }
                    for i in range(per_session)
                ],
            )
            connection.execute(
                measurements.insert(),
                [
                    {
                        **common,
                        "metric": "decode_tps",
                        "serial": f"PHONE{i}",
                        "artifact_id": "",
                        "value": 10.0 + number,
                        "n_samples": 5,
                        "status": "PASS",
                        "refuted_by": "",
                        "run_ids": [],
                    }
                    for i in range(min(per_session, 50))
                ],
            )


def links(folder: Path) -> set[str]:
    return {link for page in folder.glob("*.html") for link in re.findall(r'href="([^"#]+)"', page.read_text())}


def test_every_run_stands_on_exactly_one_page_and_no_page_is_long(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "PER_PAGE", 20)
    with open_store(str(tmp_path / "h.db")) as engine:
        fill(engine, 9, 5)
        built = build_site(engine, tmp_path / "site")
    pages = sorted((tmp_path / "site").glob("runs*.html"))
    assert [page.name for page in pages] == ["runs-2.html", "runs-3.html", "runs.html"]
    found = [run for page in pages for run in re.findall(r"<bdi>(s\d{5}-\d)</bdi>", page.read_text())]
    assert len(found) == 45
    assert len(set(found)) == 45
    assert max(page.read_text().count("<tr>") for page in pages) == 21
    assert (built.n_sessions, built.n_runs) == (9, 45)
    assert built.n_pages == len(list((tmp_path / "site").glob("*.html")))


def test_every_link_leads_to_a_page_of_the_site(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "PER_PAGE", 20)
    with open_store(str(tmp_path / "h.db")) as engine:
        fill(engine, 9, 5)
        build_site(engine, tmp_path / "site")
    found = links(tmp_path / "site") - {"data:,"}
    assert {"index.html", "runs-3.html", "metric-decode_tps.html"} <= found
    assert found == {page.name for page in (tmp_path / "site").glob("*.html")}


def test_phones_artifacts_and_metrics_are_counted(tmp_path):
    """12 sessions of 3 runs on 3 phones; the first of each failed; artifacts change every ten sessions."""
    with open_store(str(tmp_path / "h.db")) as engine:
        fill(engine, 12, 3)
        build_site(engine, tmp_path / "site")

    def rows(name: str) -> list[list[str]]:
        body = (tmp_path / "site" / name).read_text().partition("<tbody>")[2].partition("</tbody>")[0]
        cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]
        return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in cells]

    assert [row[:1] + row[4:6] for row in rows("phones.html")] == [
        ["PHONE0", "12", "12"],
        ["PHONE1", "12", "0"],
        ["PHONE2", "12", "0"],
    ]
    assert [row[2:5] for row in rows("artifacts.html")] == [["3", "6", "2"], ["3", "30", "10"]]
    assert rows("metrics.html") == [["decode_tps", "performance", "tok/s", "3", "36"]]
    latest = rows("metric-decode_tps.html")[0]
    assert latest[3:9] == ["21.00 tok/s", "PASS", "10.00", "21.00", "12", "s00011"]
    assert rows("index.html")[0][0] == "s00011"
    assert re.search(r"FAIL</span> 3<", (tmp_path / "site" / "index.html").read_text())


def test_an_empty_store_says_so(tmp_path):
    with open_store(str(tmp_path / "h.db")) as engine:
        build_site(engine, tmp_path / "site")
    assert "none in the store" in (tmp_path / "site" / "runs.html").read_text()


def test_a_phones_text_is_shown_harmlessly(tmp_path):
    with open_store(str(tmp_path / "h.db")) as engine:
        fill(engine, 1, 1, phone=HOSTILE)
        build_site(engine, tmp_path / "site")
    page = (tmp_path / "site" / "runs.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;U+001B&gt;&lt;U+202E&gt;" in page


def test_a_site_takes_the_place_of_an_earlier_one_and_of_nothing_else(tmp_path):
    with open_store(str(tmp_path / "h.db")) as engine:
        fill(engine, 1, 1)
        build_site(engine, tmp_path / "site")
        (tmp_path / "site" / "old.html").write_text("old")
        build_site(engine, tmp_path / "site")
        assert not (tmp_path / "site" / "old.html").exists()
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").write_text("years of work")
        with pytest.raises(UserError, match="is not a site of SnapGate"):
            build_site(engine, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_site_that_cannot_be_finished_leaves_the_earlier_one(tmp_path, monkeypatch):
    with open_store(str(tmp_path / "h.db")) as engine:
        fill(engine, 1, 1)
        build_site(engine, tmp_path / "site")
        before = (tmp_path / "site" / "index.html").read_text()

        def broken(_connection, _rename):
            raise RuntimeError("stop")

        monkeypatch.setattr(site, "_phone_rows", broken)
        with pytest.raises(RuntimeError):
            build_site(engine, tmp_path / "site")
    assert (tmp_path / "site" / "index.html").read_text() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_command_makes_a_site_of_journals(tmp_path, capsys):
    with open_store(str(tmp_path / "h.db")) as engine:
        limits = read_limits(DATA / "limits_performance.toml")
        import_journals(engine, [DATA / "journals" / "perf_pass", DATA / "journals" / "infra"], limits)
    assert main(["report", "--site", str(tmp_path / "site"), "--db", str(tmp_path / "h.db")]) == 0
    assert "6 runs on" in capsys.readouterr().out
    assert "SYNTHETIC-1" in (tmp_path / "site" / "phones.html").read_text()
    assert 'class="chip synthetic"' in (tmp_path / "site" / "runs.html").read_text()
