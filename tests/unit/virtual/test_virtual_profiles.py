from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.soc import SOCS
from harness.virtual import profile
from harness.virtual.android_tools import AndroidTools, find_android_tools
from harness.virtual.profile import load_profile, profile_markers
from harness.virtual.root import PhoneIdentity, build_root, prepare_boot
from harness.virtual.sandbox import Interpreter
from harness.virtual.shims import FALLBACKS

NO_TOOLS = AndroidTools(mksh=None, toybox=None)
PYTHON = Interpreter(program=Path("/usr/bin/python3"), mounts=(), home=None)


def _build(folder: Path, marker: str, tools: AndroidTools = NO_TOOLS) -> dict[str, str]:
    """A built root's properties."""
    identity = PhoneIdentity(serial="VDEVTEST", network="none", isolation="namespaces")
    build_root(folder, load_profile(marker), identity, tools, PYTHON)
    prepare_boot(folder)
    return dict(line.split("=", 1) for line in (folder / "vdev/props").read_text().splitlines())


def test_every_soc_of_the_catalogue_has_a_profile() -> None:
    assert profile_markers() == tuple(sorted(soc.marker for soc in SOCS))
    assert {load_profile(soc.part).soc for soc in SOCS} == set(SOCS)


@pytest.mark.parametrize("marker", profile_markers())
def test_a_profile_has_eight_cores_and_the_zones_that_sensors_look_for(marker: str) -> None:
    described = load_profile(marker)
    assert sorted(cpu for cluster in described.clusters for cpu in cluster.cpus) == list(range(8))
    types = [zone.type for zone in described.zones]
    assert len(set(types)) == len(types)
    assert {"skin-msm-therm", "battery", "ddr", "gpuss-0", "hw-comparator", "mmw0"} <= set(types)
    reported = [zone.hal_type for zone in described.zones if zone.hal_type is not None]
    assert {0, 1, 2, 3, 9} == set(reported)
    assert reported.count(2) == reported.count(3) == 1


def test_a_part_names_the_same_profile_as_its_marker() -> None:
    assert load_profile("SM8750") == load_profile("elite")


def test_a_soc_without_a_profile_is_refused_with_those_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elite5.toml").touch()
    monkeypatch.setattr(profile, "_FOLDER", tmp_path)
    with pytest.raises(UserError, match="elite5"):
        load_profile("gen4s")


@pytest.mark.parametrize(
    ("marker", "part", "platform"),
    [
        ("gen1", "SM8450", "taro"),
        ("gen1p", "SM8475", "taro"),
        ("gen2", "SM8550", "kalama"),
        ("gen3", "SM8650", "pineapple"),
        ("elite", "SM8750", "sun"),
        ("elite5", "SM8850", "canoe"),
    ],
)
def test_a_root_names_its_soc_and_says_it_is_virtual(tmp_path: Path, marker: str, part: str, platform: str) -> None:
    props = _build(tmp_path / "root", marker)
    assert (props["ro.soc.model"], props["ro.board.platform"]) == (part, platform)
    assert props["ro.serialno"] == "VDEVTEST"
    assert props["ro.snapgate.virtual"] == "1"
    assert (props["ro.snapgate.isolation"], props["ro.snapgate.network"]) == ("namespaces", "none")
    assert props["ro.product.manufacturer"] == "SnapGate Virtual"
    assert props["ro.build.fingerprint"].startswith(f"SnapGate/vdev_{marker}/vdev_{marker}:")


def test_sensor_files_are_named_and_scaled_as_in_sysfs(tmp_path: Path) -> None:
    _build(tmp_path / "root", "gen3")
    sys = tmp_path / "root/vdev/sys"
    zones = {
        (zone / "type").read_text().strip(): int((zone / "temp").read_text())
        for zone in (sys / "class/thermal").glob("thermal_zone*")
    }
    assert zones["nsphmx-0"] == 33600  # the fourth NPU sensor of a group that idles at 33 degrees, 0.2 apart
    assert zones["mmw0"] == -273000
    assert zones["hw-comparator"] == 125000
    assert (sys / "devices/system/cpu/cpu7/cpufreq/cpuinfo_max_freq").read_text() == "3302400\n"
    assert (sys / "devices/system/cpu/cpu3/cpufreq/related_cpus").read_text() == "2 3 4\n"
    assert (sys / "class/power_supply/battery/charge_counter").read_text() == "4250000\n"


def test_each_boot_has_its_own_id_and_keeps_only_persistent_properties(tmp_path: Path) -> None:
    root = tmp_path / "root"
    _build(root, "gen2")
    first = (root / "vdev/boot_id").read_text()
    with (root / "vdev/props").open("a") as file:
        file.write("persist.a=1\ndebug.b=2\n")
    boot_id = prepare_boot(root)
    assert (root / "vdev/boot_id").read_text() == boot_id + "\n" != first
    props = (root / "vdev/props").read_text().splitlines()
    assert "persist.a=1" in props
    assert "debug.b=2" not in props


def test_the_hosts_programs_stand_in_where_android_tools_are_missing(tmp_path: Path) -> None:
    props = _build(tmp_path / "root", "gen3")
    assert props["ro.snapgate.tools"] == "host"
    assert props["ro.snapgate.shell"] == Path("/bin/sh").resolve().name
    programs = tmp_path / "root/system/bin"
    assert {"sh", "getprop", "sha256sum", "stat", "df", "kill", "ps", "timeout"} <= {
        path.name for path in programs.iterdir()
    }
    assert all(path.is_file() for path in programs.iterdir())


def test_a_host_without_procps_still_gives_a_phone_ps_and_kill(tmp_path: Path) -> None:
    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", FALLBACKS[name], name, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    with subprocess.Popen(["sleep", "612"]) as other:
        try:
            listed = run("ps", "-e", "-o", "pid=,ppid=,args=").stdout.splitlines()
            assert f"{other.pid} {os.getpid()} sleep 612 " in listed
            assert run("ps", "-o", "pid,comm").stdout.splitlines()[0] == "PID COMM"
            assert f"{other.pid} sleep" in run("ps", "-A").stdout.splitlines()
            assert run("ps", "-o", "vsz").stderr == "ps: this phone does not know column vsz\n"
            assert run("ps", "--forest").returncode == 1
            assert run("kill", "-TERM", str(other.pid)).returncode == 0
            assert other.wait(20) == -signal.SIGTERM
        finally:
            other.kill()


def test_android_tools_are_taken_where_the_host_has_them(tmp_path: Path) -> None:
    """Stand-ins of the two programs: what counts here is who gets linked to whom."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"mksh": "#!/bin/sh\n", "toybox": "#!/bin/sh\necho cat ls sha256sum\n"}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    found = find_android_tools({"PATH": str(tools), "HOME": str(tmp_path)})
    assert found == AndroidTools(mksh=tools / "mksh", toybox=tools / "toybox")
    props = _build(tmp_path / "root", "gen3", found)
    assert (props["ro.snapgate.shell"], props["ro.snapgate.tools"]) == ("mksh", "toybox")
    programs = tmp_path / "root/system/bin"
    assert (programs / "sh").read_text() == "#!/bin/sh\n"
    assert str((programs / "ls").readlink()) == "toybox"
    assert str((programs / "sha256sum").readlink()) != "toybox"
    assert str((programs / "dd").readlink()) != "toybox"


def test_no_android_tools_are_found_where_there_are_none(tmp_path: Path) -> None:
    assert find_android_tools({"PATH": str(tmp_path), "HOME": str(tmp_path)}) == NO_TOOLS


def test_the_board_description_is_json_that_covers_every_zone(tmp_path: Path) -> None:
    _build(tmp_path / "root", "elite5")
    board = json.loads((tmp_path / "root/vdev/board.json").read_text())
    assert len(board["zones"]) == len(load_profile("elite5").zones)
    assert board["load_processes"] == ["snapgate-runner"]


@pytest.mark.parametrize("name", ["cmd", "dumpsys", "getprop", "log", "logcat", "reboot", "setprop"])
def test_a_shim_is_a_script_that_the_shell_can_parse(tmp_path: Path, name: str) -> None:
    _build(tmp_path / "root", "gen3")
    path = tmp_path / "root/system/bin" / name
    assert path.read_text().startswith("#!/system/bin/sh\n")
    assert "@PYTHON@" not in path.read_text()
    subprocess.run(["sh", "-n", str(path)], check=True, timeout=30)
