from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import adbutils
import pytest

from harness.virtual import VirtualLab, VirtualPhone

pytestmark = pytest.mark.lane("virtual")


def test_exit_code_stdout_and_stderr_arrive_apart(adb: Any) -> None:
    done = adb.run("shell", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


@pytest.mark.parametrize(("signal_name", "code"), [("KILL", 137), ("SEGV", 139), ("TERM", 143)])
def test_a_killed_program_exits_with_128_plus_the_signal(adb: Any, signal_name: str, code: int) -> None:
    assert adb.run("shell", f"kill -{signal_name} $$").returncode == code


def test_stdin_reaches_the_program_and_its_end_is_seen(adb: Any) -> None:
    sent = bytes(range(256)) * 8192
    done = adb.run("shell", "sha256sum", stdin=sent)
    assert done.stdout.split()[0].decode() == hashlib.sha256(sent).hexdigest()


def test_30_megabytes_of_output_arrive_whole(adb: Any) -> None:
    done = adb.run("exec-out", "head -c 30000000 /dev/zero")
    assert len(done.stdout) == 30_000_000
    framed = adb.run("shell", "head -c 30000000 /dev/zero; exit 3")
    assert (len(framed.stdout), framed.returncode) == (30_000_000, 3)


def test_shell_protocol_1_merges_the_outputs(adb: Any) -> None:
    done = adb.run("shell", "-x", "echo out; echo err >&2")
    assert sorted(done.stdout.split()) == [b"err", b"out"]
    assert done.stderr == b""


def test_a_terminal_is_given_when_asked_for(adb: Any) -> None:
    assert b"/dev/pts/" in adb.run("shell", "-tt", "tty").stdout
    assert b"/dev/pts/" not in adb.run("shell", "tty").stdout


def test_an_interactive_shell_runs_what_is_typed(adb: Any) -> None:
    done = adb.run("shell", stdin=b"echo $((40 + 2)) of it\nexit 5\n")
    assert b"42 of it" in done.stdout
    assert done.returncode == 5


def test_the_exit_code_waits_for_a_background_child_that_holds_the_output(adb: Any) -> None:
    done = adb.run("shell", "(sleep 1; echo late) & echo early")
    assert done.stdout == b"early\nlate\n"


def test_a_lost_client_hangs_up_the_program_that_replaced_the_shell(adb: Any, wait_for: Any) -> None:
    with adb.start("shell", "echo begun; exec sleep 987") as client:
        assert client.stdout.readline() == b"begun\n"
        client.kill()
    wait_for(lambda: "sleep 987" not in adb.shell("ps -ef | grep -v grep"), "sleep 987 is gone")


def test_a_program_in_a_session_of_its_own_survives_its_client(adb: Any) -> None:
    pid = int(adb.shell("setsid sleep 986 > /dev/null 2>&1 < /dev/null & echo $!"))
    assert "sleep 986" in adb.shell(f"sleep 0.5; tr '\\0' ' ' < /proc/{pid}/cmdline")
    adb.shell(f"kill -9 {pid}")


def test_adbutils_gets_exit_code_and_stderr_through_protocol_2(lab: VirtualLab, phone: VirtualPhone) -> None:
    device = adbutils.AdbClient(host=lab.adb_host, port=lab.adb_port).device(phone.transport)
    result = device.shell2("echo out; echo err >&2; exit 9", v2=True)
    assert (result.returncode, result.stdout, result.stderr) == (9, "out\n", "err\n")


def test_the_environment_is_androids_and_not_the_hosts(adb: Any) -> None:
    environment = dict(line.split("=", 1) for line in adb.shell("env").splitlines())
    assert environment["HOME"] == "/"
    assert environment["TMPDIR"] == "/data/local/tmp"
    assert environment["ANDROID_DATA"] == "/data"
    assert "/usr/bin" not in environment["PATH"]
    assert not {name for name in environment if name.startswith(("PYTHON", "LD_", "SNAPGATE"))}


def test_the_user_is_shell_and_system_files_are_read_only(adb: Any) -> None:
    assert adb.shell("id -u; id -un").split() == ["2000", "shell"]
    for path in ("/x", "/system/x", "/sys/x", "/vendor/x", "/usr/x"):
        assert adb.run("shell", f"touch {path}").returncode != 0, path


def test_the_hosts_files_and_processes_are_out_of_sight(adb: Any) -> None:
    assert adb.run("shell", "ls /home /root /tmp").returncode != 0
    assert len(adb.shell("ps -e").splitlines()) < 12


@pytest.mark.parametrize(
    "command",
    [
        "df /data/local/tmp | grep -q /data",
        "test $(stat -c %s /system/etc/hosts) -gt 10",
        "dd if=/dev/zero of=/data/local/tmp/z bs=1024 count=4 2> /dev/null && rm /data/local/tmp/z",
        "timeout 1 sleep 20; test $? -eq 124",
        "mkdir -p /sdcard/a/b && mv /sdcard/a /sdcard/c && ls /sdcard/c/b && rm -r /sdcard/c",
        "sleep 30 & sleep 0.2; kill $! && ! wait $!",
        "ps -e -o pid=,args= | grep -q adbd",
        "test $(uname -m) = x86_64",
        "test $(nproc) -ge 1",
        "grep -q MemAvailable /proc/meminfo && grep -q . /proc/cpuinfo",
    ],
)
def test_a_tool_that_a_harness_needs_works(adb: Any, command: str) -> None:
    done = adb.run("shell", command)
    assert done.returncode == 0, done


def test_a_pushed_elf_runs_with_a_library_found_through_ld_library_path(adb: Any, scratch: str, tmp_path: Path) -> None:
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }\n")
    (tmp_path / "main.c").write_text("int answer(void);\nint main(void) { return answer(); }\n")
    for arguments in (
        ["-shared", "-fPIC", "answer.c", "-o", "libanswer.so"],
        ["main.c", "-L.", "-lanswer", "-o", "main"],
    ):
        subprocess.run(["cc", *arguments], cwd=tmp_path, check=True, timeout=60)
    adb.run("push", str(tmp_path / "libanswer.so"), str(tmp_path / "main"), scratch)
    assert adb.run("shell", f"LD_LIBRARY_PATH={scratch} {scratch}/main").returncode == 42
    assert adb.run("shell", f"{scratch}/main").returncode == 127


def test_shared_memory_and_threads_work_as_the_emulator_needs_them(adb: Any) -> None:
    assert adb.shell("echo x > /dev/shm/x && cat /dev/shm/x && rm /dev/shm/x") == "x\n"
