"""What a harness relies on in adbd, asked of the virtual phone's daemon and of the genuine one: the same answers."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("conformance")]

EVERY_BYTE = bytes(range(256)) * 4096


def test_the_features_that_the_harness_uses_are_offered(daemon: Any) -> None:
    offered = set(daemon.run("features").stdout.decode().split())
    assert {"shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir", "sendrecv_v2"} <= offered


@pytest.mark.parametrize("code", [0, 1, 7, 126, 255])
def test_the_exit_code_of_a_command_comes_back(daemon: Any, code: int) -> None:
    assert daemon.run("shell", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_command_that_a_signal_ended_gives_128_and_its_number(daemon: Any, number: int) -> None:
    assert daemon.run("shell", f"sh -c 'kill -{int(number)} $$'").returncode == 128 + number


def test_stdout_and_stderr_are_kept_apart(daemon: Any) -> None:
    done = daemon.run("shell", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_no_line_end_is_translated_and_no_byte_changed(daemon: Any) -> None:
    assert daemon.run("shell", "cat", stdin=EVERY_BYTE).stdout == EVERY_BYTE
    assert daemon.run("exec-out", r"printf 'a\r\nb\n\000\377'").stdout == b"a\r\nb\n\x00\xff"


def test_stdin_ends_when_the_client_closes_it(daemon: Any) -> None:
    assert daemon.run("shell", "wc -c; echo done", stdin=b"12345").stdout.split() == [b"5", b"done"]


def test_the_old_shell_merges_its_streams_and_has_no_exit_code(daemon: Any) -> None:
    done = daemon.run("shell", "-x", "echo out; echo err >&2; exit 5")
    assert (done.returncode, sorted(done.stdout.split())) == (0, [b"err", b"out"])


def test_megabytes_of_output_arrive_whole(daemon: Any) -> None:
    assert len(daemon.shell("head -c 20000000 /dev/zero")) == 20_000_000


def test_a_terminal_is_one_and_pipes_are_none(daemon: Any) -> None:
    assert daemon.run("shell", "-tt", "test -t 0 && test -t 1 && echo tty").stdout.strip() == b"tty"
    assert daemon.run("shell", "-T", "test -t 1 || echo pipe").stdout.strip() == b"pipe"


def test_a_shell_gets_a_hangup_when_its_client_dies(daemon: Any, place: str) -> None:
    with daemon.start("shell", f"trap 'echo hup > {place}/sign; exit' HUP; while :; do sleep 0.1; done") as client:
        time.sleep(1)
        client.kill()
    for _ in range(50):
        if daemon.shell(f"cat {place}/sign 2>/dev/null") == b"hup\n":
            return
        time.sleep(0.1)
    pytest.fail("no hangup")


def test_many_shells_answer_at_once(daemon: Any) -> None:
    running = [daemon.start("shell", f"sleep 0.5; echo {n}") for n in range(12)]
    assert [process.communicate(timeout=30)[0] for process in running] == [b"%d\n" % n for n in range(12)]


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 3_000_000])
def test_a_file_goes_there_and_back_unchanged(daemon: Any, place: str, tmp_path: Path, size: int) -> None:
    data = (EVERY_BYTE * 4)[:size]
    (tmp_path / "f").write_bytes(data)
    assert daemon.run("push", str(tmp_path / "f"), f"{place}/f").returncode == 0
    assert daemon.run("pull", f"{place}/f", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == data


@pytest.mark.parametrize(("mode", "there"), [(0o644, "664"), (0o755, "775"), (0o600, "660")])
def test_the_owners_permissions_are_given_to_all_before_the_umask(
    daemon: Any, place: str, tmp_path: Path, mode: int, there: str
) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "f").chmod(mode)
    daemon.run("push", str(tmp_path / "f"), f"{place}/f")
    found = daemon.shell(f"stat -c %a {place}/f").decode().strip()
    owner = str(mode >> 6 & 7)
    assert found in {owner * 3, there}


def test_the_time_of_a_pushed_file_is_kept(daemon: Any, place: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    os.utime(tmp_path / "f", (1_600_000_000, 1_600_000_000))
    daemon.run("push", str(tmp_path / "f"), f"{place}/f")
    assert daemon.shell(f"stat -c %Y {place}/f").strip() == b"1600000000"


def test_folders_are_made_on_the_way_and_come_back_whole(daemon: Any, place: str, tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    for name in ("a", "e/b", "e/c"):
        (tmp_path / "d" / name).write_text(name)
    assert daemon.run("push", str(tmp_path / "d"), f"{place}/deep/er").returncode == 0
    assert daemon.run("pull", f"{place}/deep/er", str(tmp_path / "back")).returncode == 0
    back = {str(p.relative_to(tmp_path / "back")): p.read_text() for p in (tmp_path / "back").rglob("*") if p.is_file()}
    assert back == {"a": "a", "e/b": "e/b", "e/c": "e/c"}


def test_a_pushed_file_replaces_the_one_that_was_there(daemon: Any, place: str, tmp_path: Path) -> None:
    for text in ("a longer text", "short"):
        (tmp_path / "f").write_text(text)
        assert daemon.run("push", str(tmp_path / "f"), f"{place}/f").returncode == 0
    assert daemon.shell(f"cat {place}/f") == b"short"


def test_a_link_is_listed_as_one(daemon: Any, place: str) -> None:
    daemon.shell(f"cd {place}; echo x > f; ln -s f link")
    lines = daemon.run("ls", place).stdout.decode().split("\n")
    modes = {line.split()[-1]: int(line.split()[0], 16) for line in lines if line}
    assert stat.S_ISLNK(modes["link"])
    assert stat.S_ISREG(modes["f"])
    assert stat.S_ISDIR(modes["."])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pull", "{place}/absent", "{local}/x"), b"No such file or directory"),
        (("push", "{local}/f", "/proc/nowhere/f"), b"secure_mkdirs"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    daemon: Any, place: str, tmp_path: Path, arguments: tuple[str, ...], words: bytes
) -> None:
    (tmp_path / "f").write_text("x")
    done = daemon.run(*(word.format(place=place, local=tmp_path) for word in arguments))
    assert done.returncode == 1
    assert words in done.stdout + done.stderr
    assert daemon.shell("echo alive") == b"alive\n"


def test_an_unknown_service_is_refused_and_the_connection_stays(daemon: Any) -> None:
    assert daemon.run("jdwp-nothing").returncode != 0
    assert daemon.shell("echo alive") == b"alive\n"
