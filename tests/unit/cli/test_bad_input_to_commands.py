"""What a person mistypes: one line on stderr, the documented exit code, and nothing left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.errors import UserError

DATA = Path(__file__).resolve().parents[2] / "data"
GATE = ["gate", "--journal", str(DATA / "journals" / "perf_pass"), "--limits", str(DATA / "limits_performance.toml")]
RECOMPUTE = ["recompute", "--journal", str(DATA / "journals" / "perf_pass")]
REPORT = ["report", *GATE[1:]]


def told(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("command", [GATE, RECOMPUTE, REPORT])
def test_an_out_below_a_file_is_one_error_before_any_verdict(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("kept")
    code, out, err = told(capsys, [*command, "--out", str(tmp_path / "file" / "below" / "more")])
    assert code in (20, 21)
    assert out == ""
    assert err.startswith("error: ")
    assert "file/below" in err
    assert "next step: " in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_out_that_is_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    code, out, err = told(capsys, [*GATE, "--out", str(tmp_path / "file")])
    assert (code, out) == (20, "")
    assert err == (
        f"error: {tmp_path}/file cannot be written; found: File exists; "
        "expected: a folder that this user may write to; next step: choose another --out\n"
    )


def test_a_bad_journal_makes_no_out_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(
        capsys, ["gate", "--journal", str(tmp_path / "none"), *GATE[3:], "--out", str(tmp_path / "out")]
    )
    assert code == 20
    assert f"no journal in {tmp_path}/none; found: no such folder" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wanted", ["*", "**", "perf", "../perf_pass"])
def test_a_session_is_never_a_pattern(wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, [*GATE, "--session", wanted])
    assert code == 20
    assert f"has no session {wanted}; found: perf_pass" in err


def test_an_option_is_not_guessed_from_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, [*GATE, "--rel"])
    assert code == 20
    assert "unrecognized arguments: --rel" in err


@pytest.mark.parametrize("port", ["0", "65536", "-1", "adb", ""])
def test_a_port_out_of_range_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, ["devices", f"--adb-port={port}"])
    assert code == 20
    assert f"{port!r} is not a port, which is 1 to 65535" in err


def test_a_port_of_the_environment_that_is_none_is_named_like_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "usb")
    code, _, err = told(capsys, ["devices"])
    assert code == 20
    assert "'usb' is not a port" in err
    assert told(capsys, GATE)[0] == 0


def test_a_package_without_its_libraries_is_the_hosts_fault_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "onnxruntime_qnn.py").write_text("raise ImportError('libQnnHtp.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime_qnn", raising=False)
    checkpoint = Path(__file__).resolve().parents[3] / "models" / "tiny-llama"
    code, out, err = told(capsys, ["prepare", str(checkpoint), "--soc", "gen3", "--out", str(tmp_path / "out")])
    assert (code, out) == (21, "")
    assert "is not whole; found: no libonnxruntime_providers_qnn.so, no libQnnHtp.so" in err
    assert "next step: pip install --force-reinstall onnxruntime-qnn" in err
    assert not (tmp_path / "out").exists()
    assert told(capsys, GATE)[0] == 0


def test_an_error_is_one_line_whatever_a_library_says() -> None:
    assert str(UserError("a", found="first\nsecond", next_step="c")) == "a; found: first second; next step: c"
