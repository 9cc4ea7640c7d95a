"""Changes of level: found where they are, not found in noise, tied to the first run and to what is known."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from harness.cli.main import main
from harness.errors import UserError
from harness.journal import JournalWriter, read_journal
from harness.results.gate import read_limits
from harness.results.history import KnownChange, change_points, load_known_changes, read_series
from harness.results.store import import_journals, open_store

pytestmark = pytest.mark.lane("history")
NOISE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.4, -0.3, 0.2, -0.2, 0.1)


def test_a_step_is_found_at_the_first_value_of_the_new_level():
    assert change_points([50 + n for n in NOISE] + [45 + n for n in NOISE]) == (12,)


def test_two_steps_are_found():
    assert change_points([50 + n for n in NOISE] + [45 + n for n in NOISE] + [48 + n for n in NOISE]) == (12, 24)


def test_a_step_between_exact_values_is_found():
    assert change_points([42.5] * 5 + [42.4] * 4) == (5,)


@pytest.mark.parametrize(
    "values", [[50.0] * 20, [50 + n for n in NOISE], [0.0] * 9, [1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0]]
)
def test_no_change_is_found_where_none_is(values):
    assert change_points(values) == ()


def test_one_wild_session_is_no_new_level():
    values = [50 + n for n in NOISE]
    values[6] = 20.0
    assert change_points(values) == ()


def test_the_same_values_always_give_the_same_changes():
    values = list(np.random.default_rng(3).normal(50, 1, 60)) + list(np.random.default_rng(4).normal(48, 1, 60))
    found = {change_points(values) for _ in range(3)}
    assert len(found) == 1
    (only,) = found
    assert len(only) == 1
    assert abs(only[0] - 60) <= 2


def test_pure_noise_shows_a_change_in_few_series_and_a_clear_step_in_most():
    rng = np.random.default_rng(7)
    noise = sum(bool(change_points(list(rng.normal(100, 2, 20)))) for _ in range(200))
    steps = sum(bool(change_points([*rng.normal(100, 2, 10), *rng.normal(92, 2, 10)])) for _ in range(50))
    assert noise <= 4
    assert steps >= 47


@pytest.fixture
def store(make, journals, performance_limits, tmp_path):
    """Twelve sessions, a day apart; from the seventh on a token takes 25 ms in place of 20 (40 tokens/s, not 50)."""
    folder = tmp_path / "journal"
    slow = "perf_fail"
    for day in range(1, 13):
        journal = read_journal(journals / ("perf_pass" if day < 7 else slow))
        session = dataclasses.replace(
            journal.sessions[0], session_id=f"s{day:02}", started_at=f"2026-03-{day:02}T08:00:00+00:00"
        )
        writer = JournalWriter(folder / f"s{day:02}.jsonl")
        writer.append(session)
        for run in journal.runs:
            number = run.run_id.rpartition("-")[2]
            artifact = "a1" * 8 if day < 7 else "b2" * 8
            writer.append(
                dataclasses.replace(run, run_id=f"s{day:02}-{number}", session_id=f"s{day:02}", artifact_id=artifact)
            )
        writer.close()
    url = str(tmp_path / "history.db")
    with open_store(url) as engine:
        import_journals(engine, [folder], read_limits(performance_limits))
    return url


def series_of(store, metric, known=()):
    with open_store(store) as engine:
        (found,) = read_series(engine, metrics=[metric], known=known)
    return found


def test_the_first_run_after_which_a_metric_moved_is_named(store):
    """perf_pass has 50 tokens/s, perf_fail 1000 / 30."""
    series = series_of(store, "decode_tps")
    assert [point.session_id for point in series.points] == [f"s{day:02}" for day in range(1, 13)]
    (change,) = series.changes
    assert change.first_run == "s07-0"
    assert change.last.session_id == "s06"
    assert change.before == pytest.approx(50.0)
    assert change.after == pytest.approx(1000 / 30)
    assert change.relative == pytest.approx(-1 / 3)
    assert change.better is False
    assert (change.n_before, change.n_after) == (6, 6)


def test_a_metric_that_stays_has_no_change(store):
    assert series_of(store, "prefill_tps").changes == ()


def test_known_changes_annotate_the_change_they_fit(store):
    known = (
        KnownChange(date="2026-03-07", note="new compiler", metric="decode_*"),
        KnownChange(date="2026-03-07", note="another model", cell="other-*"),
        KnownChange(date="2026-03-03", note="earlier"),
    )
    (change,) = series_of(store, "decode_tps", known).changes
    assert change.known == ("new compiler",)


def test_an_unknown_metric_is_refused(store):
    with open_store(store) as engine, pytest.raises(UserError, match="no such metric"):
        read_series(engine, metrics=["speed"])


def test_the_file_of_known_changes_is_read(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text('[[change]]\ndate = 2026-03-07\nnote = "new compiler"\nmetric = "decode_*"\n')
    assert load_known_changes(path) == (KnownChange(date="2026-03-07", note="new compiler", metric="decode_*"),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[change]]\nnote = "x"\n', "date is missing"),
        ("[[change]]\ndate = 2026-03-07\n", "note is missing"),
        ('[[change]]\ndate = "2026-03-07"\nnote = "x"\n', "date is no date"),
        ('[[change]]\ndate = 2026-03-07\nnote = "x"\nphone = "y"\n', "unknown key"),
        ("[[change]]\ndate = 2026-03-07\nnote = 5\n", "note is no text"),
        ("changes = 5\n", "unknown content"),
        ("[[change", "cannot be read as TOML"),
    ],
)
def test_a_wrong_file_of_known_changes_is_refused(tmp_path, text, named):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=named):
        load_known_changes(path)


def test_the_page_holds_every_point_and_the_command_names_the_change(store, tmp_path, capsys):
    (tmp_path / "known.toml").write_text('[[change]]\ndate = 2026-03-07\nnote = "<b>new</b> compiler"\n')
    command = ["report", "--history", "--db", store, "--out", str(tmp_path), "--known", str(tmp_path / "known.toml")]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert re.search(r"decode_tps of synthetic-\S+ on SYNTHETIC-1: 50 to 33\.3333 tokens/s, first at run s07-0", told)
    page = (tmp_path / "history.html").read_text()
    assert "<b>new" not in page
    assert "&lt;b&gt;new&lt;/b&gt; compiler" in page
    data = json.loads(re.search(r'id="snapgate-data">(.*?)</script>', page, re.S)[1])
    (decode,) = [s for s in data["series"] if s["metric"] == "decode_tps"]
    assert decode["values"] == pytest.approx([50.0] * 6 + [1000 / 30] * 6)
    assert decode["changes"][0]["first_run"] == "s07-0"
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_history_of_a_database_that_is_not_there_is_the_users_error(tmp_path, capsys):
    assert main(["report", "--history", "--db", str(tmp_path / "no.db"), "--out", str(tmp_path)]) == 20
    assert not (tmp_path / "no.db").exists()


def test_a_stretch_of_equal_values_does_not_turn_noise_into_changes():
    """Thirty sessions of noise, then fourteen that are equal to the last digit at a lower level: one change."""
    rng = np.random.default_rng(3)
    noisy = [1000 + rng.uniform(0, 1) for _ in range(30)]
    assert change_points([*noisy, *[900.0] * 14]) == (30,)
    assert change_points([*[1000.0] * 10, *[900.0] * 10]) == (10,)
