"""Phones without namespaces: when they are chosen, what they say of themselves, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.device.adb import Adb as AdbServer
from harness.device.identity import read_facts
from harness.virtual import PhoneSpec, start_daemon, status, stop_daemon

pytestmark = pytest.mark.lane("virtual")


@pytest.fixture
def own_namespaces() -> None:
    """What forbids namespaces below it is one itself: such a host cannot be made where they are forbidden already."""
    made = subprocess.run(["unshare", "-Ur", "true"], capture_output=True, text=True, timeout=20, check=False)
    if made.returncode != 0:
        pytest.skip(f"this host forbids user namespaces: {made.stderr.strip()}")


def _where_namespaces_are_forbidden(code: str, *arguments: str, isolation: str) -> subprocess.CompletedProcess[str]:
    """A user namespace that allows no further ones, with no capability left, is such a host."""
    script = (
        "echo 0 > /proc/sys/user/max_user_namespaces &&"
        ' exec setpriv --bounding-set -all --inh-caps -all --no-new-privs "$0" -c "$@"'
    )
    return subprocess.run(
        ["unshare", "-Ur", "sh", "-c", script, sys.executable, code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "SNAPGATE_ISOLATION": isolation},
    )


@pytest.mark.usefixtures("own_namespaces")
def test_a_host_that_forbids_namespaces_is_told_what_permits_them(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.virtual import PhoneSpec, VirtualLab\n"
        "VirtualLab.start(Path(sys.argv[1]), [PhoneSpec()])"
    )
    done = _where_namespaces_are_forbidden(code, str(tmp_path / "lab"), isolation="namespaces")
    message = done.stderr.strip().splitlines()[-1]
    assert "HostError: virtual phones cannot be isolated on this host" in message
    assert "user.max_user_namespaces = 0" in message
    assert "sudo sysctl -w user.max_user_namespaces=15000" in message


@pytest.mark.usefixtures("own_namespaces")
def test_a_host_that_forbids_namespaces_gets_phones_of_mapped_paths_that_say_so(tmp_path: Path) -> None:
    code = textwrap.dedent(
        """
        import subprocess, sys
        from pathlib import Path
        from harness.virtual import PhoneSpec, VirtualLab
        from harness.virtual.adb_server import find_adb
        with VirtualLab.start(Path(sys.argv[1]), [PhoneSpec()], lambda text: print(text, file=sys.stderr)) as lab:
            adb = [str(find_adb()), "-P", str(lab.adb_port), "-s", lab.phones[0].transport]
            subprocess.run([*adb, "shell", "id -un; getprop ro.snapgate.isolation; ls -d /data/local/tmp /home"])
        """
    )
    done = _where_namespaces_are_forbidden(code, str(tmp_path / "lab"), isolation="")
    assert done.stdout.split() == ["shell", "paths", "/data/local/tmp"], done.stderr
    assert "REDUCED ISOLATION" in done.stderr
    assert "user.max_user_namespaces = 0" in done.stderr


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The state folder of one phone of mapped paths; all of it is stopped in the end."""
    monkeypatch.setenv("SNAPGATE_ISOLATION", "paths")
    start_daemon(tmp_path / "state", [PhoneSpec(marker="gen3")])
    yield tmp_path / "state"
    stop_daemon(tmp_path / "state")


DETACHED = "setsid sh -c 'trap \"\" HUP TERM INT; (setsid sleep 98761 &) ; sleep 98762' > /dev/null 2>&1 < /dev/null &"
"""Leaves its session, ignores every polite signal, and gives a child away to process 1."""


def _sleepers() -> set[int]:
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if {"98761", "98762"} & set(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


@pytest.mark.parametrize("end", ["stop", "kill the supervisor", "kill the tracer", "kill process 1"])
def test_detached_programs_end_with_their_phone_however_it_ends(
    mapped: Path, adb_of: Any, wait_for: Any, end: str
) -> None:
    lab = status(mapped)
    assert lab.pid is not None
    adb = adb_of(lab, lab.phones[0])
    adb.shell(DETACHED)
    wait_for(lambda: len(_sleepers()) >= 2, "both programs run")
    supervisor = psutil.Process(lab.pid)
    tracers = [child for child in supervisor.children() if "--storage" in child.cmdline() or "adbd" in child.cmdline()]
    assert len(tracers) == 1
    if end == "stop":
        stop_daemon(mapped)
        assert _sleepers() == set()
    elif end == "kill the supervisor":
        os.kill(lab.pid, signal.SIGKILL)
    elif end == "kill the tracer":
        tracers[0].kill()
    else:
        tracers[0].children()[0].kill()
    wait_for(lambda: _sleepers() == set(), "nothing of the phone runs any more")


def test_a_phone_of_mapped_paths_is_named_so_where_people_and_programs_look(mapped: Path, adb_of: Any) -> None:
    lab = status(mapped)
    assert lab.isolation == "paths"
    assert lab.reduction is not None
    assert "SNAPGATE_ISOLATION=paths" in lab.reduction
    assert "network, process numbers" in lab.reduction
    assert lab.adb_port is not None
    facts, reason = read_facts(AdbServer(lab.adb_host, lab.adb_port).device(lab.phones[0].transport))
    assert (facts.isolation, reason) == ("paths", None)


def test_a_phone_of_mapped_paths_cannot_reach_the_hosts_processes(mapped: Path, adb_of: Any) -> None:
    lab = status(mapped)
    adb = adb_of(lab, lab.phones[0])
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        try:
            pid = bystander.pid
            done = adb.run("shell", f"kill -9 {pid}; ls /proc/{pid}; kill -9 -{pid}; kill -9 -1")
            assert done.stdout == b""
            assert done.stderr.count(b"No such") == 4, done.stderr
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert adb.shell("echo alive") == "alive\n"
