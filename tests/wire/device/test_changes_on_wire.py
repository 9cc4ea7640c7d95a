"""Settings that a run changes on a phone, and how they come back after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.main import main
from harness.device.adb import AdbDevice
from harness.device.changes import JOURNAL, Change, apply, pending, restore
from harness.device.conditions import note_run, read_conditions
from harness.device.lease import STATE_VARIABLE
from harness.errors import InfraError, UserError
from harness.pool.local import PhoneInfo, acquire
from harness.virtual.lab import VirtualLab, VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("wire-changes")]

ALL = (Change.SCREEN_OFF, Change.REFRESH_60, Change.FIXED_PERFORMANCE)


def said(device: AdbDevice, *argv: str) -> str:
    return device.run(list(argv)).text.strip()


@pytest.fixture
def awake(device: AdbDevice) -> AdbDevice:
    device.run(["input", "keyevent", "224"])
    return device


def test_a_setting_is_journalled_set_seen_in_the_conditions_and_put_back(awake: AdbDevice) -> None:
    assert (read_conditions(awake).screen_on, read_conditions(awake).refresh_hz) == (True, 120.0)
    assert apply(awake, ALL) == ("screen-off", "refresh-60", "fixed-performance")
    assert pending(awake) == {"screen-off": "on", "refresh-60": "null", "fixed-performance": "false"}
    during = read_conditions(awake)
    assert (during.screen_on, during.refresh_hz) == (False, 60.0)
    assert said(awake, "cat", "/dev/vdev/fixed_performance") == "true"
    assert sorted(restore(awake)) == ["fixed-performance: false", "refresh-60: null", "screen-off: on"]
    after = read_conditions(awake)
    assert (after.screen_on, after.refresh_hz) == (True, 120.0)
    assert said(awake, "cat", "/dev/vdev/fixed_performance") == "false"
    assert pending(awake) == {}


def test_the_value_of_before_a_crash_is_kept_when_the_next_run_sets_it_again(awake: AdbDevice) -> None:
    awake.run(["settings", "put", "system", "peak_refresh_rate", "90.0"])
    apply(awake, [Change.REFRESH_60])
    apply(awake, [Change.REFRESH_60])  # the first holder died; 60.0 is what the phone has now
    restore(awake)
    assert said(awake, "settings", "get", "system", "peak_refresh_rate") == "90.0"
    awake.run(["settings", "delete", "system", "peak_refresh_rate"])


def test_a_new_lease_puts_back_what_a_dead_holder_had_set(
    awake: AdbDevice, lab: VirtualLab, info: PhoneInfo, tmp_path: Path
) -> None:
    apply(awake, [Change.SCREEN_OFF])
    assert info.facts is not None
    with acquire(info.facts, holder="next", adb_host=lab.adb_host, adb_port=lab.adb_port, state_dir=tmp_path):
        assert read_conditions(awake).screen_on is True
    assert pending(awake) == {}


def test_devices_restore_puts_back_and_says_so(
    awake: AdbDevice,
    lab: VirtualLab,
    virtual: VirtualPhone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    apply(awake, [Change.SCREEN_OFF])
    command = ["devices", "--adb-port", str(lab.adb_port), "restore"]
    assert main([*command, virtual.serial]) == 0
    assert capsys.readouterr().out == f"{virtual.serial}: put back screen-off: on\n"
    assert main(command) == 0
    assert capsys.readouterr().out == f"{virtual.serial}: nothing was left changed\n"
    assert main([*command, "NOBODY"]) == 20


def test_a_journal_that_says_something_else_is_no_command(awake: AdbDevice) -> None:
    awake.script(
        'mkdir -p "$1"; echo "1; touch /data/local/tmp/owned" > "$1/refresh-60"; echo x > "$1/other"',
        JOURNAL,
        what="damage the journal",
    )
    with pytest.raises(InfraError, match="could not be put back") as caught:
        restore(awake)
    assert caught.value.found is not None
    assert "other: 'x' is nothing that SnapGate sets" in caught.value.found
    assert awake.run(["test", "-e", "/data/local/tmp/owned"]).exit_code == 1
    awake.run(["rm", "-rf", JOURNAL])


def test_a_network_phone_is_never_put_into_airplane_mode(awake: AdbDevice) -> None:
    with pytest.raises(UserError, match="would cut off"):
        apply(awake, [Change.AIRPLANE])
    assert pending(awake) == {}


def test_conditions_say_when_the_last_run_ended(device: AdbDevice, virtual: VirtualPhone) -> None:
    device.run(["mkdir", "-p", "/data/local/tmp/snapgate"])
    note_run(device)
    since = read_conditions(device).since_last_run_s
    assert since is not None
    assert 0.5 < since < 30
    virtual.reboot()
    assert read_conditions(device).since_last_run_s is None


def test_a_phone_that_warms_shows_its_trend(device: AdbDevice, virtual: VirtualPhone) -> None:
    found = read_conditions(device)
    assert found.charger == "usb"
    assert found.background_load is not None
    assert found.governors
    virtual.set_temperature("skin-msm-therm", 60.0)
    virtual.set_temperature("skin-msm-therm", None)  # from here it falls by itself, half of the way in 83 s
    trend = read_conditions(device, window_s=3).trend_celsius_per_min
    assert trend is not None
    assert -20 < trend < -5
