"""Who lives how long: labs end with their owner, daemons with ``stop``, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import harness
from harness.errors import HostError, UserError
from harness.virtual import PhoneSpec, VirtualLab, start_daemon, status, stop_daemon
from harness.virtual.adb_server import find_adb

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.usefixtures("isolation")]


def _family(pid: int) -> list[psutil.Process]:
    supervisor = psutil.Process(pid)
    return [supervisor, *supervisor.children(recursive=True)]


def _all_gone(family: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


def test_daemon_phones_survive_their_starter_join_and_stop(tmp_path: Path, wait_for: Any) -> None:
    said: list[str] = []
    first = start_daemon(tmp_path, [PhoneSpec(marker="gen2")], said.append)
    assert first.pid is not None
    family = _family(first.pid)
    try:
        both = start_daemon(tmp_path, [PhoneSpec(marker="elite5")], said.append)
        assert (both.pid, both.adb_port) == (first.pid, first.adb_port)
        assert [(phone.marker, phone.serial, phone.state) for phone in both.phones] == [
            ("gen2", "VDEVGEN2001", "on"),
            ("elite5", "VDEVELITE5001", "on"),
        ]
        assert status(tmp_path) == both
        assert any("VDEVGEN2001 is online" in line for line in said)
        family = _family(first.pid)
        assert len(family) >= 7
    finally:
        assert stop_daemon(tmp_path)
    wait_for(lambda: _all_gone(family), "every process of the lab has ended")
    assert not status(tmp_path).running
    assert not list((tmp_path / "phones").glob("*")) if (tmp_path / "phones").exists() else True
    assert not stop_daemon(tmp_path)


def test_a_killed_supervisor_takes_everything_with_it_and_is_seen_as_stale(tmp_path: Path, wait_for: Any) -> None:
    lab = start_daemon(tmp_path, [PhoneSpec(marker="gen1")])
    assert lab.pid is not None
    family = _family(lab.pid)
    os.kill(lab.pid, signal.SIGKILL)
    wait_for(lambda: _all_gone(family), "every process of the lab has ended")
    stale = status(tmp_path)
    assert (stale.running, stale.was_stale) == (False, True)
    assert not stop_daemon(tmp_path)
    assert not status(tmp_path).was_stale
    assert not (tmp_path / "phones").exists()


def test_a_lab_ends_when_its_owner_is_killed(tmp_path: Path, wait_for: Any) -> None:
    code = textwrap.dedent(
        f"""
        import pathlib, time
        from harness.virtual import PhoneSpec, VirtualLab
        lab = VirtualLab.start(pathlib.Path({str(tmp_path / "lab")!r}), [PhoneSpec(marker="gen1p")])
        print(lab._supervisor.pid, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        family = _family(int(owner.stdout.readline()))
        assert len(family) >= 5
        owner.kill()
    wait_for(lambda: _all_gone(family), "every process of the lab has ended")
    wait_for(lambda: not (tmp_path / "lab" / "phones").exists(), "the phones' files are deleted")


def test_a_folder_in_use_is_refused(lab: VirtualLab, tmp_path: Path) -> None:
    with VirtualLab.start(tmp_path, []), pytest.raises(HostError, match="in use"):
        VirtualLab.start(tmp_path, [])


def test_an_unknown_soc_and_a_used_serial_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with VirtualLab.start(tmp_path, []) as lab:
        with pytest.raises(UserError, match="unknown SoC"):
            lab.add([PhoneSpec(marker="gen9")])
        with pytest.raises(UserError, match="cannot be given"):
            lab.add([PhoneSpec(serial="TWICE"), PhoneSpec(serial="TWICE")])
        assert lab.phones == ()
        assert lab.add([PhoneSpec(serial="TWICE")])[0].serial == "TWICE"


def test_a_failed_first_daemon_start_leaves_nothing_running(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown SoC"):
        start_daemon(tmp_path, [PhoneSpec(marker="gen9")])
    assert not status(tmp_path).running


def test_eight_phones_of_a_deep_state_folder_are_online_together(tmp_path: Path, adb_of: Any) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with VirtualLab.start(deep, [PhoneSpec(marker="gen3")] * 8) as lab:
        serials = [phone.serial for phone in lab.phones]
        assert serials == [f"VDEVGEN3{number:03d}" for number in range(1, 9)]
        assert [adb_of(lab, phone).shell("getprop ro.serialno").strip() for phone in lab.phones] == serials


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    """Not below tmp_path, whose parents only their owner may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="the whole suite already runs as an ordinary user")
def test_an_ordinary_user_can_start_a_phone(home_of_nobody: Path) -> None:
    python = _python_for_everybody()
    code = textwrap.dedent(
        """
        import os, pathlib, subprocess
        from harness.virtual import PhoneSpec, VirtualLab
        from harness.virtual.adb_server import find_adb
        with VirtualLab.start(pathlib.Path(os.environ["HOME"], "lab"), [PhoneSpec(marker="gen3")]) as lab:
            adb = [str(find_adb()), "-P", str(lab.adb_port), "-s", lab.phones[0].transport]
            subprocess.run([*adb, "push", "/etc/hostname", "/data/local/tmp/h"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([*adb, "shell", "id -un; getprop ro.soc.model; ls /data/local/tmp"], check=True)
        """
    )
    places = [str(Path(harness.__file__).parents[1]), str(find_adb().parents[2])]
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home_of_nobody), "PYTHONPATH": os.pathsep.join(places)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["shell", "SM8650", "h"], done.stderr


def _python_for_everybody() -> str:
    """An interpreter of at least 3.11 that an ordinary user can run, with this checkout readable."""
    places = [str(Path(harness.__file__).parents[1]), str(find_adb())]
    for python in (sys.executable, "/usr/bin/python3"):
        probe = (
            "import os, sys; paths = [sys.executable, *sys.argv[1:]];"
            "sys.exit(sys.version_info < (3, 11) or not all(os.access(path, os.R_OK) for path in paths))"
        )
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-c", probe, *places],
            capture_output=True,
            cwd="/",
            check=False,
        )
        if done.returncode == 0:
            return python
    pytest.skip("no Python 3.11 that an ordinary user can run, or a checkout that only root can read")


def test_a_state_folder_where_no_program_may_run_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.virtual import PhoneSpec, VirtualLab\n"
        "VirtualLab.start(Path(sys.argv[1]), [PhoneSpec()])"
    )
    script = 'mount -t tmpfs -o noexec none "$2" && exec "$0" -c "$1" "$2"'
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, sys.executable, code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    message = done.stderr.strip().splitlines()[-1]
    assert "HostError: virtual phones cannot live in this folder" in message
    assert f"{tmp_path} on a file system mounted noexec" in message
