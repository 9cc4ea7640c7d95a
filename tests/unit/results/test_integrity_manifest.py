"""A finished run verifies; whatever is changed afterwards is found and named."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.errors import UserError
from harness.journal import JournalWriter, read_journal
from harness.plugin.conclusion import write_all
from harness.record.artifact import sha256_of
from harness.record.codec import to_json
from harness.results.gate import judge_journal, read_limits
from harness.results.integrity import cover, write_manifest
from harness.results.signature import new_key, sign

SUITES = Path(__file__).resolve().parents[3] / "suites"
RUN = "perf_pass-0"


@pytest.fixture
def results(journals, performance_limits, tmp_path):
    """The results folder of a run: a journal whose first run has its records and its log pulled from the phone."""
    folder = tmp_path / "out"
    (folder / "runs" / RUN).mkdir(parents=True)
    journal = read_journal(journals / "perf_pass")
    first = journal.runs[0]
    records = folder / "runs" / RUN / "records.jsonl"
    records.write_text("".join(json.dumps(line) + "\n" for line in runner_lines(first.log)))
    logcat = folder / "runs" / RUN / "logcat.txt"
    logcat.write_text("nothing\n")
    named = {p.relative_to(folder).as_posix(): sha256_of(p) for p in (records, logcat)}
    runs = (dataclasses.replace(first, files_sha256=named), *journal.runs[1:])
    writer = JournalWriter(folder / "journal" / f"{journal.sessions[0].session_id}.jsonl")
    for entry in (*journal.sessions, *runs):
        writer.append(entry)
    writer.close()
    return conclude(folder, performance_limits)


def runner_lines(log):
    kinds = {"context": log.contexts, "phase": log.phases, "memory": log.memory, "generation": log.generations}
    single = {"start": log.start, "platform": log.platform, "buffers": log.buffers, "end": log.end}
    for kind, items in (*kinds.items(), *((kind, [item]) for kind, item in single.items())):
        for item in items:
            yield {"type": kind, **to_json(item)}


def conclude(folder, limits):
    journal = read_journal(folder / "journal")
    write_all(folder, journal, judge_journal(journal, read_limits(limits)))
    write_manifest(folder, journal, journal_dir=folder / "journal", limits=limits, suites=SUITES)
    return folder


def verify(results, capsys, *arguments):
    code = main(["verify", "--results", str(results), *arguments])
    return code, capsys.readouterr().out


def replace_in(path, old, new, count=1):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


def rehash(results, *names):
    """What a careful forger does: the hashes in the manifest fit the changed files again."""
    path = results / "manifest.json"
    text = path.read_text()
    body = json.loads(text)
    hashes = {**body["journal"], **body["pulled"], **body["inputs"], **body["documents"]}
    for name in names:
        text = text.replace(hashes[name], sha256_of(results / name))
    path.write_text(text)


def journal_of(results):
    (path,) = (results / "journal").glob("*.jsonl")
    return path


def test_what_a_run_left_verifies(results, capsys):
    code, told = verify(results, capsys)
    assert code == 0
    assert "verified: everything is what the records give" in told
    assert re.search(r"recomputed \d\d measurements and \d\d verdicts", told)


def test_a_results_folder_can_be_moved(results, capsys, tmp_path):
    moved = tmp_path / "archive" / "elsewhere"
    shutil.copytree(results, moved)
    shutil.rmtree(results)
    assert verify(moved, capsys)[0] == 0


def test_a_changed_record_is_named(results, capsys):
    path = journal_of(results)
    replace_in(path, '"wall_s":', '"wall_s":1')
    code, told = verify(results, capsys)
    assert code == 12
    assert f"DIFFERS  record journal/{path.name}: was changed" in told


def test_a_changed_record_whose_hash_was_made_to_fit_is_found_by_computing_again(results, capsys):
    """One token of the second run comes a microsecond late: nothing but the figures can tell."""
    path = journal_of(results)
    lines = path.read_text().splitlines()
    run = json.loads(lines[2])
    run["entry"]["log"]["generations"][1]["token_ns"][-1] += 1_000
    lines[2] = json.dumps(run, separators=(",", ":"))
    path.write_text("\n".join(lines) + "\n")
    rehash(results, f"journal/{path.name}")
    code, told = verify(results, capsys)
    assert code == 12
    assert "was changed" not in told
    assert re.search(r"DIFFERS  report.json measurements\[\d+\]\.samples\[\d+\]: says [\d.]+, recomputed [\d.]+", told)


def test_a_journal_that_does_not_say_what_the_phone_recorded_is_found(results, capsys, performance_limits):
    """The forger changes the journal and lets SnapGate make everything else anew."""
    path = journal_of(results)
    lines = path.read_text().splitlines()
    run = json.loads(lines[1])
    run["entry"]["log"]["generations"][1]["token_ns"][-1] -= 1_000
    lines[1] = json.dumps(run, separators=(",", ":"))
    path.write_text("\n".join(lines) + "\n")
    conclude(results, performance_limits)
    code, told = verify(results, capsys)
    assert code == 12
    assert told.count("DIFFERS") == 1
    assert f"the journal does not say what runs/{RUN}/records.jsonl says" in told


def test_a_changed_limit_is_named_and_changes_what_is_recomputed(results, capsys):
    limits = results / "limits.toml"
    text = re.sub(r'(metric = "decode_tps".*?minimum = )[\d.]+', r"\g<1>48.0", limits.read_text(), count=1, flags=re.S)
    assert text != limits.read_text()
    limits.write_text(text)
    code, told = verify(results, capsys)
    assert code == 12
    assert "DIFFERS  input limits.toml: was changed" in told
    assert re.search(r"verdict.json verdicts\[\d+\]\.limit\.minimum: says 40.0, recomputed 48.0", told)


def test_a_changed_number_in_the_data_block_of_the_page_is_named(results, capsys):
    page = results / "report.html"
    replace_in(page, '"status":"PASS"', '"status":"FAIL"')
    rehash(results, "report.html")
    code, told = verify(results, capsys)
    assert code == 12
    assert 'DIFFERS  report.html data block status: says "FAIL", recomputed "PASS"' in told


def test_a_changed_number_in_the_text_of_the_page_is_found(results, capsys):
    page = results / "report.html"
    head, mark, tail = page.read_text().partition('id="verdict-rows"')
    page.write_text(head + mark + re.sub(r">50\.\d\d<", ">99.99<", tail, count=1))
    rehash(results, "report.html")
    code, told = verify(results, capsys)
    assert code == 12
    assert "DIFFERS  report.html: its text is not what the journal gives" in told


@pytest.mark.parametrize("name", ["report.json", "verdict.json"])
def test_a_changed_document_is_named(results, capsys, name):
    replace_in(results / name, '"exit_code": 0', '"exit_code": 10')
    code, told = verify(results, capsys)
    assert code == 12
    assert f"DIFFERS  document {name}: was changed" in told
    assert re.search(name.replace(".", r"\.") + r" [\w.]*exit_code: says 10, recomputed 0", told)


def test_a_changed_pulled_file_is_named(results, capsys):
    (results / "runs" / RUN / "logcat.txt").write_text("something\n")
    code, told = verify(results, capsys)
    assert code == 12
    assert f"DIFFERS  pulled file runs/{RUN}/logcat.txt: was changed" in told


def test_a_file_that_was_laid_beside_those_of_a_run_is_named(results, capsys):
    (results / "runs" / RUN / "logits.bin").write_text("better ones\n")
    code, told = verify(results, capsys)
    assert code == 12
    assert f"DIFFERS  pulled file runs/{RUN}/logits.bin: not in the manifest" in told


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("report.html", "document"),
        ("report.json", "document"),
        ("report.md", "document"),
        ("verdict.json", "document"),
        ("junit.xml", "document"),
        ("limits.toml", "input"),
        ("artifacts.json", "input"),
        (f"runs/{RUN}/records.jsonl", "pulled file"),
        (f"runs/{RUN}/logcat.txt", "pulled file"),
        ("journal/perf_pass.jsonl", "record"),
    ],
)
def test_a_byte_changed_or_a_file_gone_is_named_for_every_file_of_a_run(results, capsys, name, kind):
    (results / "junit.xml").write_text("<testsuites/>\n")
    assert cover(results, results / "junit.xml")
    assert verify(results, capsys)[0] == 0
    path = results / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b" ")
    code, told = verify(results, capsys)
    assert (code, f"DIFFERS  {kind} {name}: was changed" in told) == (12, True)
    path.unlink()
    code, told = verify(results, capsys)
    assert (code, f"DIFFERS  {kind} {name}: is gone" in told) == (12, True)


def test_every_file_that_a_run_leaves_is_covered(results):
    """Nothing lies in the results folder that the manifest does not name, but itself."""
    body = json.loads((results / "manifest.json").read_text())
    named = {*body["journal"], *body["pulled"], *body["inputs"], *body["documents"]}
    here = {path.relative_to(results).as_posix() for path in results.rglob("*") if path.is_file()}
    assert here - named == {"manifest.json"}


def test_only_a_file_of_the_results_folder_can_be_covered(results, tmp_path):
    other = tmp_path / "junit.xml"
    other.write_text("x")
    assert not cover(results, other)
    assert not cover(results, results / "no-such.xml")


def test_a_pulled_file_that_is_gone_is_named(results, capsys):
    (results / "runs" / RUN / "logcat.txt").unlink()
    code, told = verify(results, capsys)
    assert code == 12
    assert f"DIFFERS  pulled file runs/{RUN}/logcat.txt: is gone" in told


def test_a_journal_file_added_later_is_named(results, capsys):
    path = journal_of(results)
    added = path.with_name(f"{path.stem}-gw7.jsonl")
    added.write_text(path.read_text().splitlines()[1] + "\n")
    code, told = verify(results, capsys)
    assert code == 12
    assert f"DIFFERS  record journal/{added.name}: not in the manifest" in told


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"artifact_id": "', '"artifact_id": "f', "artifacts, runner or libraries differ"),
        ('"runs/perf_pass-0/logcat.txt": "', '"runs/perf_pass-0/logcat.txt": "0', "pulled files differ"),
        ('"sessions": [\n  "', '"sessions": [\n  "x', "sessions differ"),
        ('"release": false', '"release": true', "verdict.json status"),
        ('"schema": "snapgate.manifest/1"', '"schema": "snapgate.manifest/9"', "has another schema"),
        ("{", "", "cannot be read as JSON"),
    ],
)
def test_a_changed_manifest_is_found(results, capsys, old, new, named):
    replace_in(results / "manifest.json", old, new)
    code, told = verify(results, capsys)
    assert code == 12
    assert named in told


def test_a_name_that_leads_out_of_the_folder_is_refused(results, capsys):
    replace_in(results / "manifest.json", '"report.md": "', '"../../../../etc/passwd": "')
    code, told = verify(results, capsys)
    assert code == 12
    assert "a name that leads out of the results folder" in told


def test_a_folder_without_a_manifest_is_the_users_error(tmp_path):
    assert main(["verify", "--results", str(tmp_path)]) == 20


@pytest.mark.lane("sign")
class TestSignature:
    def test_a_signed_manifest_verifies_with_the_key_of_its_signer_only(self, results, capsys, tmp_path):
        public = new_key(tmp_path / "lab.pem")
        other = new_key(tmp_path / "other.pem")
        sign(results, tmp_path / "lab.pem")
        assert verify(results, capsys, "--key", str(public))[0] == 0
        code, told = verify(results, capsys, "--key", str(other))
        assert code == 12
        assert "its signature is not that of" in told

    def test_a_forgery_that_fits_in_itself_is_found_by_the_signature(self, results, capsys, tmp_path):
        """A journal without pulled records, and everything made anew from it: only the key tells."""
        public = new_key(tmp_path / "lab.pem")
        sign(results, tmp_path / "lab.pem")
        signature = (results / "manifest.sig").read_bytes()
        limits = tmp_path / "mild.toml"
        limits.write_text(re.sub(r"minimum = 40\.0\b", "minimum = 1.0", (results / "limits.toml").read_text()))
        conclude(results, limits)
        assert not (results / "manifest.sig").exists()
        (results / "manifest.sig").write_bytes(signature)
        assert verify(results, capsys)[0] == 0
        assert verify(results, capsys, "--key", str(public))[0] == 12

    def test_an_unsigned_manifest_does_not_satisfy_a_key(self, results, capsys, tmp_path):
        public = new_key(tmp_path / "lab.pem")
        code, told = verify(results, capsys, "--key", str(public))
        assert code == 12
        assert "is not signed" in told

    def test_the_private_key_is_for_its_owner_only_and_never_overwritten(self, tmp_path):
        assert main(["sign", "--new-key", str(tmp_path / "k.pem")]) == 0
        assert (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600
        before = (tmp_path / "k.pem").read_bytes()
        assert main(["sign", "--new-key", str(tmp_path / "k.pem")]) == 20
        assert (tmp_path / "k.pem").read_bytes() == before

    def test_a_public_key_cannot_sign(self, results, tmp_path, capsys):
        public = new_key(tmp_path / "lab.pem")
        assert main(["sign", "--results", str(results), "--key", str(public)]) == 20
        assert "is not a private key" in capsys.readouterr().err
        assert not (results / "manifest.sig").exists()


def test_the_suites_leave_a_manifest_that_verifies(journals, performance_limits, tmp_path, capsys):
    command = [sys.executable, "-m", "pytest", "suites", "--journal", str(journals / "perf_fail"), "-q"]
    command += ["--results", str(tmp_path), "--limits", str(performance_limits), "-p", "no:cacheprovider"]
    command += ["--junitxml", str(tmp_path / "junit.xml")]
    done = subprocess.run(command, cwd=SUITES.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 10
    assert f"wrote {tmp_path / 'manifest.json'}" in done.stdout
    body = json.loads((tmp_path / "manifest.json").read_text())
    assert body["artifacts"][0]["artifact_id"]
    assert "accuracy/test_logits.py" in body["suites"]
    assert set(body["documents"]) == {"report.html", "report.json", "report.md", "verdict.json", "junit.xml"}
    assert verify(tmp_path, capsys, "--suites", str(SUITES))[0] == 0


def test_a_folder_made_before_limits_named_their_source_still_verifies(results, performance_limits, capsys, tmp_path):
    """As such a folder was: limits without source and slack, in the documents as well as in the copy."""
    lines = [
        line
        for line in performance_limits.read_text().splitlines()
        if not line.startswith(("source", "slack", "proof"))
    ]
    old = tmp_path / "old.toml"
    old.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="source is missing"):
        read_limits(old)
    journal = read_journal(results / "journal")
    write_all(results, journal, judge_journal(journal, read_limits(old, stored=True)))
    write_manifest(results, journal, journal_dir=results / "journal", limits=old, suites=SUITES)
    assert verify(results, capsys)[0] == 0
