from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from harness.errors import InfraError, UserError
from harness.virtual import VirtualPhone

pytestmark = pytest.mark.lane("virtual")


def _zones(adb: Any) -> dict[str, str]:
    """Zone type to the text of its temp file."""
    lines = adb.shell('for z in /sys/class/thermal/thermal_zone*; do echo "$(cat $z/type) $(cat $z/temp)"; done')
    return dict(line.split() for line in lines.splitlines())


BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def test_a_reboot_changes_the_boot_id_empties_the_log_and_keeps_files(
    adb: Any, phone: VirtualPhone, scratch: str
) -> None:
    before = adb.shell(BOOT_ID)
    adb.shell(f"echo kept > {scratch}/f; setprop debug.gone 1; setprop persist.kept 1; log -t mark before-the-reboot")
    phone.reboot()
    assert adb.shell(BOOT_ID) != before
    assert adb.shell(f"cat {scratch}/f") == "kept\n"
    assert adb.shell("getprop debug.gone; getprop persist.kept") == "\n1\n"
    assert "before-the-reboot" not in adb.shell("logcat -d")


@pytest.mark.parametrize("command", [("reboot",), ("shell", "reboot")])
def test_adb_can_reboot_the_phone(adb: Any, wait_for: Any, command: tuple[str, ...]) -> None:
    before = adb.shell(BOOT_ID)
    adb.run(*command)
    wait_for(lambda: adb.run("shell", BOOT_ID).stdout.decode() not in ("", before), "a new boot id")


def test_memory_is_the_profiles_and_what_others_take_is_missing_from_it(adb: Any, phone: VirtualPhone) -> None:
    available = "sed -n 's/^MemAvailable: *//p' /proc/meminfo"
    assert adb.shell("sed -n 's/^MemTotal: *//p' /proc/meminfo") == f"{12 << 20} kB\n"
    assert adb.shell(available) == f"{15 << 19} kB\n"  # 12 - 4.5 GiB
    phone.press_memory(2 << 30)
    assert adb.shell(available) == f"{11 << 19} kB\n"
    with pytest.raises(UserError, match="refused 'press_memory'"):
        phone.press_memory(-1)
    phone.clear_faults()
    assert adb.shell(available) == f"{15 << 19} kB\n"


def test_a_reboot_cuts_off_a_running_shell(adb: Any, phone: VirtualPhone) -> None:
    with adb.start("shell", "echo begun; sleep 600") as client:
        assert client.stdout.readline() == b"begun\n"
        phone.reboot()
        assert client.wait(30) == 255


def test_a_killed_phone_is_offline_until_it_boots_again(
    adb: Any, phone: VirtualPhone, server: Any, wait_for: Any
) -> None:
    phone.kill()
    offline = f"{phone.transport}\toffline".encode()
    wait_for(lambda: offline in server.run("devices").stdout, "the killed phone is offline")
    with pytest.raises(InfraError, match="is off"):
        phone.log("nobody there")
    phone.reboot()
    assert adb.shell("echo back") == "back\n"


def test_an_offline_phone_answers_no_handshake_and_comes_back(adb: Any, phone: VirtualPhone, wait_for: Any) -> None:
    phone.go_offline(3600)
    wait_for(lambda: b"offline" in adb.run("get-state").stderr + adb.run("devices").stdout, "the phone is offline")
    assert adb.run("shell", "echo no").returncode != 0
    phone.clear_faults()
    phone.disconnect()
    wait_for(lambda: adb.run("get-state").stdout == b"device\n", "the phone is back")


def test_a_hung_shell_never_answers_while_others_do(adb: Any, phone: VirtualPhone) -> None:
    phone.hang_shell(pattern="*stuck*")
    with pytest.raises(subprocess.TimeoutExpired):
        adb.run("shell", "echo stuck", timeout_s=2)
    assert adb.shell("echo stuck") == "stuck\n"


def test_a_held_temperature_shows_in_sysfs_and_in_dumpsys(adb: Any, phone: VirtualPhone) -> None:
    phone.set_temperature("skin-msm-therm", 45.25)
    zones = _zones(adb)
    assert zones["skin-msm-therm"] == "45250"
    text = adb.shell("dumpsys thermalservice")
    current = text.partition("Current temperatures from HAL:")[2]
    assert re.search(r"Temperature\{mValue=45\.[23], mType=3, mName=skin, mStatus=2\}", current)
    assert "Thermal Status: 2\n" in text
    assert "HAL Ready: true\n" in text
    phone.set_temperature("skin-msm-therm", 30.0)
    assert "Thermal Status: 0\n" in adb.shell("dumpsys thermalservice")
    phone.set_temperature("skin-msm-therm", None)


def test_zones_that_are_no_sensors_read_as_on_real_phones(adb: Any) -> None:
    zones = _zones(adb)
    assert zones["mmw0"] == "-273000"
    assert zones["hw-comparator"] == "125000"
    assert zones["pm8550-bcl-lvl0"] == "0"
    assert 25_000 < int(zones["nsphmx-0"]) < 80_000


def test_a_process_of_the_runners_name_heats_the_npu_and_raises_the_clocks(
    adb: Any, wait_for: Any, scratch: str
) -> None:
    find = "for z in /sys/class/thermal/thermal_zone*; do [ $(cat $z/type) = nsphmx-0 ] && cat $z/temp; done; true"
    idle = int(adb.shell(find))
    clock = "/sys/devices/system/cpu/cpu7/cpufreq/scaling_cur_freq"
    assert adb.shell(f"cat {clock}") == "480000\n"
    adb.shell(f"cp /system/bin/sh {scratch}/snapgate-runner")
    with adb.start("shell", f"exec {scratch}/snapgate-runner -c 'sleep 60; true'") as runner:
        wait_for(lambda: int(adb.shell(find)) > idle + 2000, "the NPU warms up")
        assert adb.shell(f"cat {clock}") == "3302400\n"
        runner.kill()
    wait_for(lambda: adb.shell(f"cat {clock}") == "480000\n", "the clock falls")


def test_the_battery_is_what_was_set_in_files_and_in_dumpsys(adb: Any, phone: VirtualPhone) -> None:
    phone.set_battery(percent=12.0, charging=False)
    supply = "/sys/class/power_supply/battery"
    assert adb.shell(f"cat {supply}/capacity {supply}/status") == "12\nDischarging\n"
    assert int(adb.shell(f"cat {supply}/current_now")) < 0
    fields = dict(line.strip().split(": ") for line in adb.shell("dumpsys battery").splitlines()[1:])
    assert (fields["level"], fields["status"], fields["USB powered"]) == ("12", "3", "false")
    assert fields["scale"] == "100"
    phone.set_battery(percent=100.0, charging=True)
    assert "  status: 5\n" in adb.shell("dumpsys battery")
    with pytest.raises(UserError, match="refused 'set_battery'"):
        phone.set_battery(percent=101.0)


def test_an_unknown_zone_is_refused_with_the_known_ones(phone: VirtualPhone) -> None:
    with pytest.raises(UserError, match="nsphmx-0"):
        phone.set_temperature("no-such-zone", 40.0)


def test_an_unknown_service_is_reported_as_android_does(adb: Any) -> None:
    done = adb.run("shell", "dumpsys nosuch")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"Can't find service: nosuch\n")


def test_the_log_can_be_written_filtered_and_cleared(adb: Any, phone: VirtualPhone) -> None:
    adb.shell("logcat -c")
    phone.log("first line\nsecond line", tag="DEBUG", level="F")
    adb.shell("log -p w -t runner 'from the phone'")
    lines = adb.shell("logcat -d").splitlines()
    assert lines[0] == "--------- beginning of main"
    assert [re.sub(r"^\S+ \S+ +\d+ +\d+ ", "", line) for line in lines[1:]] == [
        "F DEBUG   : first line",
        "F DEBUG   : second line",
        "W runner  : from the phone",
    ]
    assert len(adb.shell("logcat -d -s DEBUG").splitlines()) == 3
    assert "from the phone" in adb.shell("logcat -d -t 1")
    moment = " ".join(lines[3].split()[:2])
    assert adb.shell(f"logcat -d -T '{moment}'").splitlines()[-1] == lines[3]
    assert adb.shell("logcat -d -T '12-31 23:59:59.999'") == ""


def test_logcat_follows_what_is_written_later(adb: Any, phone: VirtualPhone) -> None:
    phone.log("before", tag="later")
    with adb.start("logcat", "-T", "1", "later:V", "*:S") as client:
        assert client.stdout.readline() == b"--------- beginning of main\n"
        assert client.stdout.readline().endswith(b"later   : before\n")
        phone.log("unwanted", tag="other")
        phone.log("now", tag="later")
        assert client.stdout.readline().endswith(b"later   : now\n")
        client.kill()
