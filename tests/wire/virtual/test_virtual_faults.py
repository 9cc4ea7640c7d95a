"""Each fault of the virtual phone, as the real adb sees it, and that it is over when it is cleared."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from harness.virtual import VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("virtual-faults")]

TEXT = b"0123456789" * 10_000


@pytest.fixture
def remote(adb: Any, scratch: str, tmp_path: Path) -> str:
    """100 000 bytes on the phone."""
    (tmp_path / "there").write_bytes(TEXT)
    assert adb.run("push", str(tmp_path / "there"), f"{scratch}/f").returncode == 0
    return f"{scratch}/f"


@pytest.mark.parametrize(
    ("how", "after", "code", "left"),
    [
        ("truncate", 70_000, 0, TEXT[:70_000]),
        ("corrupt", 10, 0, TEXT[:10] + b"1" + TEXT[11:]),
        ("disconnect", 65_536, 1, None),
    ],
)
def test_a_pull_ends_as_the_fault_has_it_and_the_next_is_whole(
    adb: Any, phone: VirtualPhone, remote: str, tmp_path: Path, how: str, after: int, code: int, left: bytes | None
) -> None:
    phone.fail_pull(how, after, pattern="*/f")
    done = adb.run("pull", remote, str(tmp_path / "back"))
    assert done.returncode == code, done
    if left is not None:
        assert (tmp_path / "back").read_bytes() == left
    adb.run("wait-for-device")
    assert adb.run("pull", remote, str(tmp_path / "again")).returncode == 0
    assert (tmp_path / "again").read_bytes() == TEXT


def test_a_truncated_push_reports_success_and_is_short(
    adb: Any, phone: VirtualPhone, scratch: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(TEXT)
    phone.truncate_push(1000, pattern="*/f")
    assert adb.run("push", str(tmp_path / "f"), f"{scratch}/f").returncode == 0
    assert adb.shell(f"wc -c < {scratch}/f").strip() == "1000"


def test_a_shells_exit_code_lines_and_head_can_be_spoiled(adb: Any, phone: VirtualPhone) -> None:
    phone.spoil_shell("no_exit", pattern="*marker*")
    assert adb.run("shell", "echo marker; exit 3").returncode != 3
    phone.spoil_shell("crlf", pattern="*marker*")
    assert adb.run("shell", "echo marker").stdout == b"marker\r\n"
    phone.spoil_shell("garbage_shell", pattern="*marker*")
    assert adb.run("shell", "echo marker").stdout == b"\x00\xff\xfe{]\x1b[2J\nmarker\n"
    assert adb.run("shell", "echo marker; exit 3").returncode == 3


def test_a_frozen_link_passes_nothing_and_then_everything(adb: Any, phone: VirtualPhone) -> None:
    began = time.monotonic()
    phone.freeze(2.0)
    assert adb.run("shell", "echo late").stdout == b"late\n"
    assert time.monotonic() - began >= 1.9


def test_a_slow_link_takes_its_time_in_both_directions(
    adb: Any, phone: VirtualPhone, scratch: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(TEXT * 4)
    phone.slow_down(200_000)
    for command in (("push", str(tmp_path / "f"), f"{scratch}/f"), ("pull", f"{scratch}/f", str(tmp_path / "back"))):
        began = time.monotonic()
        assert adb.run(*command).returncode == 0
        assert 1.0 < time.monotonic() - began < 20
    assert (tmp_path / "back").read_bytes() == TEXT * 4


def test_bytes_of_nobody_cost_the_connection_and_adb_comes_back(adb: Any, phone: VirtualPhone, wait_for: Any) -> None:
    phone.send_garbage(200, seed=7)
    wait_for(lambda: adb.run("shell", "echo here").stdout == b"here\n", "the phone answers again")


def test_a_host_is_unauthorized_until_its_key_is_accepted(adb: Any, phone: VirtualPhone, wait_for: Any) -> None:
    phone.set_trust(False)
    wait_for(lambda: b"unauthorized" in adb.run("get-state").stderr, "adb lists it as unauthorized")
    phone.set_trust(True)
    wait_for(lambda: adb.run("get-state").stdout == b"device\n", "adb lists it as device")


def test_a_phone_in_recovery_is_listed_as_that(adb: Any, phone: VirtualPhone, wait_for: Any) -> None:
    phone.set_mode("recovery")
    wait_for(lambda: adb.run("get-state").stdout == b"recovery\n", "adb lists it as recovery")
    phone.clear_faults()
    wait_for(lambda: adb.run("get-state").stdout == b"device\n", "adb lists it as device")


def test_on_a_noexec_storage_nothing_becomes_executable(
    adb: Any, phone: VirtualPhone, scratch: str, tmp_path: Path
) -> None:
    phone.set_noexec(True)
    (tmp_path / "program").write_text("#!/system/bin/sh\necho ran\n")
    (tmp_path / "program").chmod(0o755)
    adb.run("push", str(tmp_path / "program"), f"{scratch}/program")
    assert adb.run("shell", f"chmod 755 {scratch}/program; {scratch}/program").returncode == 126
    phone.set_noexec(False)
    assert adb.shell(f"chmod 755 {scratch}/program; {scratch}/program") == "ran\n"


def test_a_clock_that_jumped_is_that_of_date_and_of_the_log(adb: Any, phone: VirtualPhone) -> None:
    phone.jump_clock(-7200)
    assert abs(int(adb.shell("date +%s")) - (time.time() - 7200)) < 30
    phone.log("after the jump")
    stamp = adb.shell("date '+%m-%d %H'").strip()
    assert any("after the jump" in line and line.startswith(stamp) for line in adb.shell("logcat -d").splitlines())
    phone.clear_faults()
    assert abs(int(adb.shell("date +%s")) - time.time()) < 30


def test_the_memory_killer_kills_and_says_whom(adb: Any, phone: VirtualPhone) -> None:
    with adb.start(
        "shell", "cp /system/bin/sh /data/local/tmp/victim; /data/local/tmp/victim -c 'while :; do :; done'"
    ) as running:
        for _ in range(100):
            if "victim" in adb.shell("ps -A -o NAME 2>/dev/null || ps -e -o comm"):
                break
            time.sleep(0.05)
        phone.kill_for_memory("victim")
        assert running.wait(20) == 137
    phone.kill_for_memory("com.other.app", kill=False)
    log = adb.shell("logcat -d -s lowmemorykiller:I")
    assert "Kill 'victim'" in log
    assert "Kill 'com.other.app'" in log


def test_a_wrapped_log_holds_nothing_older(adb: Any, phone: VirtualPhone) -> None:
    phone.log("precious")
    phone.wrap_log(10)
    assert "precious" not in adb.shell("logcat -d")


def heated(adb: Any, phone: VirtualPhone) -> tuple[str, str, str]:
    phone.hold_clock(True)
    phone.set_battery(percent=50, charging=False)
    for zone in ("skin-msm-therm", "nsphmx-0"):
        phone.set_temperature(zone, 30.0)
        phone.set_temperature(zone, None)
    for _ in range(6):
        phone.advance(100, load=1.0)
    values = adb.shell(
        "cat /sys/class/power_supply/battery/charge_counter; "
        "cd /sys/class/thermal; for z in *zone*; do case $(cat $z/type) in skin-msm-therm) cat $z/temp;; esac; done; "
        "cat /sys/devices/system/cpu/cpu7/cpufreq/scaling_max_freq"
    ).split()
    return values[0], values[1], values[2]


def test_time_that_is_advanced_by_hand_gives_the_same_heat_and_charge_each_time(adb: Any, phone: VirtualPhone) -> None:
    first = heated(adb, phone)
    assert heated(adb, phone) == first
    # 2.48 A for 600 s out of 2500 mAh
    assert int(first[0]) == 2_500_000 - round(2_480_000 * 600 / 3600)
    assert 42_000 < int(first[1]) < 43_000
    phone.set_temperature("skin-msm-therm", 45.0)
    throttled = int(adb.shell("cat /sys/devices/system/cpu/cpu7/cpufreq/scaling_max_freq"))
    assert throttled == round(int(first[2]) * 0.85)
    phone.set_temperature("skin-msm-therm", None)
    phone.set_battery(percent=85, charging=True)
