"""`snapgate doctor` asks what will be asked when it matters: its answers are those of the commands themselves."""

from __future__ import annotations

import json

import pytest

from harness.cli.capabilities import CAPABILITIES, HARDWARE
from harness.cli.main import main
from harness.errors import HostError
from harness.virtual import probe_sandbox


def doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["doctor", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "snapgate.doctor/1"
    return {row["name"]: row for row in answer["capabilities"]}


def test_every_capability_is_answered_and_every_no_names_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    rows = doctor(capsys)
    assert list(rows) == list(CAPABILITIES)
    assert set(rows) > HARDWARE
    for row in rows.values():
        assert row["ok"] is (row["reason"] is None) is (row["remedy"] is None)


def test_a_host_without_namespaces_starts_phones_with_less_isolation_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPGATE_ISOLATION", "paths")
    try:
        probe_sandbox()
    except HostError as exc:
        pytest.skip(str(exc))
    row = doctor(capsys)["virtual"]
    assert row["ok"] is True
    assert "REDUCED ISOLATION" in str(row["note"])
    assert "network" in str(row["note"])


def test_a_host_on_which_no_phone_can_start_is_told_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.virtual.isolation.platform.machine", lambda: "riscv64")
    row = doctor(capsys)["virtual"]
    assert row["ok"] is False
    assert "on riscv64" in str(row["reason"])
    assert row["remedy"] == "use an attached phone, or an x86-64 Linux host"
