"""The store: what the journals say, in SQL, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from harness.cli.capabilities import find_postgresql
from harness.cli.main import main
from harness.errors import HostError, UserError
from harness.journal import JournalWriter, read_journal
from harness.results import schema_versions
from harness.results.derive import derive
from harness.results.gate import read_limits
from harness.results.history import read_series
from harness.results.store import clear, group_files, import_journals, open_store
from reports.site import build_site

pytestmark = pytest.mark.lane("history")


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server of our own on a Unix socket; as root it runs as nobody, since it refuses root."""
    programs = find_postgresql()
    folder = Path(tempfile.mkdtemp(prefix="snapgate-pg-", dir="/tmp"))
    who = {}
    if os.geteuid() == 0:
        who = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(folder, "nobody", "nogroup")
    data = folder / "data"
    command = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "snapgate",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
        "--no-locale",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder, **who)
    settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([programs / "postgres", "-D", data, *settings], stderr=log, cwd=folder, **who)
    try:
        url = f"postgresql://snapgate@/postgres?host={folder}"
        probe = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.pool.NullPool)
        deadline = time.monotonic() + 60
        while True:
            try:
                with probe.connect():
                    break
            except sa.exc.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
                time.sleep(0.2)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.lane("postgresql"))])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "new folder" / "history.db")
        return
    address = request.getfixturevalue("server")
    yield address
    engine = sa.create_engine(address.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.pool.NullPool)
    schema_versions.metadata.drop_all(engine)


@pytest.fixture
def limits(performance_limits):
    return read_limits(performance_limits)


def rows(engine, table):
    with engine.connect() as connection:
        return [row._asdict() for row in connection.execute(sa.select(table))]


def without_ids(found):
    return sorted(({k: v for k, v in row.items() if k != "measurement_id"} for row in found), key=repr)


def test_the_store_holds_every_run_and_measurement_of_the_journals(url, journals, limits):
    with open_store(url) as engine:
        done = import_journals(engine, [journals / "perf_pass", journals / "infra"], limits)
        assert done.added == ("perf_pass", "infra")
        by_run = {row["run_id"]: row for row in rows(engine, schema_versions.runs)}
        assert len(by_run) == 6
        assert sorted(row["outcome"] for row in by_run.values()) == ["INFRA"] + ["completed"] * 5
        measured = [r for r in rows(engine, schema_versions.measurements) if r["session_id"] == "perf_pass"]
        expected = derive(read_journal(journals / "perf_pass"))
        assert {(r["metric"], r["value"], r["ci_low"], r["n_samples"]) for r in measured} == {
            (m.metric, m.value, m.interval[0] if m.interval else None, len(m.samples)) for m in expected
        }
        (decode,) = [r for r in measured if r["metric"] == "decode_tps"]
        assert decode["run_ids"] == [run.run_id for run in read_journal(journals / "perf_pass").runs]
        assert decode["status"] == "PASS"
        sessions = {row["session_id"]: row["status"] for row in rows(engine, schema_versions.sessions)}
        assert sessions == {"perf_pass": "PASS", "infra": "INFRA"}


def test_importing_again_changes_nothing(url, journals, limits):
    with open_store(url) as engine:
        import_journals(engine, [journals / "perf_pass"], limits)
        before = rows(engine, schema_versions.measurements)
        done = import_journals(engine, [journals / "perf_pass"], limits)
        assert done.unchanged == ("perf_pass",)
        assert rows(engine, schema_versions.measurements) == before


def test_a_session_that_grew_replaces_what_was_there(url, journals, limits, tmp_path):
    whole = (journals / "perf_pass" / "perf_pass.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "journal" / "perf_pass.jsonl"
    path.parent.mkdir()
    path.write_text("".join(whole[:2]))
    with open_store(url) as engine:
        import_journals(engine, [path.parent], limits)
        assert len(rows(engine, schema_versions.runs)) == 1
        path.write_text("".join(whole))
        assert import_journals(engine, [path.parent], limits).replaced == ("perf_pass",)
        assert len(rows(engine, schema_versions.runs)) == 3


def test_other_limits_judge_the_session_again(url, journals, limits):
    with open_store(url) as engine:
        import_journals(engine, [journals / "perf_pass"], limits)
        strict = tuple(dataclasses.replace(x, minimum=45.0) if x.metric == "decode_tps" else x for x in limits)
        strict = tuple(dataclasses.replace(x, minimum=900.0) if x.metric == "prefill_tps" else x for x in strict)
        assert import_journals(engine, [journals / "perf_pass"], strict).replaced == ("perf_pass",)
        assert [row["status"] for row in rows(engine, schema_versions.sessions)] == ["FAIL"]


def test_a_store_made_again_from_the_journals_is_the_same(url, journals, limits):
    folders = [journals / name for name in ("perf_pass", "perf_fail", "infra")]
    tables = (schema_versions.sessions, schema_versions.runs, schema_versions.measurements)
    with open_store(url) as engine:
        import_journals(engine, folders, limits)
        before = [without_ids(rows(engine, table)) for table in tables]
        clear(engine)
        assert rows(engine, schema_versions.runs) == []
        import_journals(engine, folders, limits)
        assert [without_ids(rows(engine, table)) for table in tables] == before


def test_a_store_of_an_older_version_is_brought_up_and_keeps_its_rows(url, journals, limits):
    with open_store(url) as engine:
        schema_versions.metadata.drop_all(engine)
        schema_versions.migrate(engine, to=1)
        assert sa.inspect(engine).get_indexes("measurements") == []
        import_journals(engine, [journals / "perf_pass"], limits)
        with engine.begin() as connection:  # the first version did not know it
            connection.execute(sa.text("ALTER TABLE runs DROP COLUMN runtime"))
    with open_store(url) as engine:
        names = {index["name"] for index in sa.inspect(engine).get_indexes("measurements")}
        assert names == {"ix_measurements_series", "ix_measurements_session"}
        assert [row["runtime"] for row in rows(engine, schema_versions.runs)] == ["qnn"] * 3
        assert rows(engine, schema_versions.schema_version) == [{"version": len(schema_versions.VERSIONS)}]


def test_a_store_of_a_newer_version_is_refused_and_left_alone(url):
    with open_store(url) as engine, engine.begin() as connection:
        connection.execute(schema_versions.schema_version.update().values(version=99))
    with pytest.raises(UserError, match="schema version 99"), open_store(url):
        pass


def test_text_that_a_database_cannot_hold_is_replaced(url, journals, limits, tmp_path):
    journal = read_journal(journals / "perf_pass")
    writer = JournalWriter(tmp_path / "j" / "perf_pass.jsonl")
    device = dataclasses.replace(journal.runs[0].device, serial="A\0B", model="one \U0001f4f1 שלום")
    for entry in (*journal.sessions, dataclasses.replace(journal.runs[0], device=device)):
        writer.append(entry)
    writer.close()
    with open_store(url) as engine:
        import_journals(engine, [tmp_path / "j"], limits)
        (run,) = rows(engine, schema_versions.runs)
    assert (run["serial"], run["phone"]) == ("A\ufffdB", "one \U0001f4f1 שלום")


def test_worker_files_belong_to_their_session(tmp_path, journals):
    session, *runs = (journals / "perf_pass" / "perf_pass.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "perf_pass.jsonl").write_text(session)
    (tmp_path / "perf_pass-gw0.jsonl").write_text(runs[0])
    (tmp_path / "perf_pass-gw1.jsonl").write_text(runs[1])
    grouped = group_files(tmp_path)
    assert {k: [p.name for p in v] for k, v in grouped.items()} == {
        "perf_pass": ["perf_pass-gw0.jsonl", "perf_pass-gw1.jsonl", "perf_pass.jsonl"]
    }


def test_a_damaged_journal_leaves_the_store_as_it_was(tmp_path, journals, limits):
    good = (journals / "perf_pass" / "perf_pass.jsonl").read_text()
    (tmp_path / "perf_pass.jsonl").write_text(good)
    with open_store(str(tmp_path / "h.db")) as engine:
        import_journals(engine, [tmp_path / "perf_pass.jsonl"], limits)
        (tmp_path / "perf_pass.jsonl").write_text(good.replace('"workload"', '"werkload"', 1))
        with pytest.raises(UserError):
            import_journals(engine, [tmp_path / "perf_pass.jsonl"], limits)
        assert len(rows(engine, schema_versions.runs)) == 3


@pytest.mark.parametrize(
    ("url", "error"), [("mysql://x/y", UserError), ("://", UserError), ("/proc/1/x/h.db", HostError)]
)
def test_a_database_that_cannot_be_used_is_named(url, error):
    with pytest.raises(error), open_store(url):
        pass


def test_a_password_is_never_shown(tmp_path):
    with pytest.raises(HostError) as caught, open_store(f"postgresql://me:s3cret@/x?host={tmp_path}"):
        pass
    assert "s3cret" not in str(caught.value)


def test_the_command_says_what_it_did(journals, tmp_path, capsys, performance_limits):
    command = ["store", "import", "--journal", str(journals / "perf_pass"), str(journals / "perf_fail")]
    command += ["--db", str(tmp_path / "h.db"), "--limits", str(performance_limits)]
    assert main(command) == 0
    assert "2 sessions added, 0 replaced, 0 unchanged" in capsys.readouterr().out
    assert main(command) == 0
    assert "0 sessions added, 0 replaced, 2 unchanged" in capsys.readouterr().out
    assert main([*command, "--rebuild"]) == 0
    assert "2 sessions added" in capsys.readouterr().out


def test_history_and_site_can_be_made_of_either_database(url, journals, limits, tmp_path):
    with open_store(url) as engine:
        import_journals(engine, [journals / "perf_pass", journals / "perf_fail"], limits)
        (series,) = read_series(engine, metrics=["decode_tps"])
        assert [point.value for point in series.points] == pytest.approx([1000 / 30, 50.0])
        assert build_site(engine, tmp_path / "site").n_runs == 6
    rows_of_page = (tmp_path / "site" / "metric-decode_tps.html").read_text()
    assert "50.00 tok/s" in rows_of_page
    assert "33.33" in rows_of_page
