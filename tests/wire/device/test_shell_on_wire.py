"""Commands on a phone, through the real adb server."""

from __future__ import annotations

import signal
import time

import pytest

from harness.device.adb import AdbDevice
from harness.errors import DeadlineError, PhoneLostError
from harness.virtual.lab import VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("wire-shell")]


def test_arguments_reach_a_program_unchanged(device: AdbDevice) -> None:
    words = ["a b", "$HOME", "`id`", "it's", 'say "x"', "; exit 9", "ünï", "*"]
    result = device.script('for a in "$@"; do echo "<$a>"; done', *words, what="echo")
    assert result.text.splitlines() == [f"<{word}>" for word in words]
    assert result.exit_code == 0


def test_stdout_stderr_and_exit_code_come_apart(device: AdbDevice) -> None:
    result = device.run(["sh", "-c", "echo out; echo err >&2; exit 42"])
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 42)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_shows_as_128_and_its_number(device: AdbDevice, number: signal.Signals) -> None:
    assert device.run(["sh", "-c", f"kill -{int(number)} $$"]).exit_code == 128 + number


def test_binary_output_comes_back_unchanged(device: AdbDevice) -> None:
    result = device.run(["sh", "-c", r"printf '\000\r\n\377\n'"])
    assert result.stdout == b"\x00\r\n\xff\n"


def test_stdin_reaches_the_program_and_ends(device: AdbDevice) -> None:
    body = bytes(range(256)) * 300
    assert device.run(["cat"], stdin=body).stdout == body


def test_output_over_16_mib_is_cut_and_the_rest_counted(device: AdbDevice) -> None:
    result = device.run(["head", "-c", str(17 * 1024 * 1024), "/dev/zero"])
    assert len(result.stdout) == 16 * 1024 * 1024
    assert result.dropped_bytes == 1024 * 1024
    assert result.exit_code == 0


def test_a_command_that_never_answers_meets_its_deadline(device: AdbDevice, virtual: VirtualPhone) -> None:
    virtual.hang_shell(pattern="*never*")
    with pytest.raises(DeadlineError, match="not finished in time"):
        device.run(["echo", "never"], timeout_s=1)
    assert device.run(["echo", "again"]).text == "again\n"


def test_lines_are_handed_on_while_the_program_still_runs(device: AdbDevice) -> None:
    seen: list[tuple[str, float]] = []
    began = time.monotonic()
    result = device.stream(
        ["sh", "-c", "echo first; sleep 1; echo second"],
        on_line=lambda line: seen.append((line, time.monotonic() - began)),
        deadline_s=30,
        stall_s=30,
    )
    ended = time.monotonic() - began
    assert [line for line, _ in seen] == ["first", "second"]
    assert ended - seen[0][1] >= 0.9
    assert result.exit_code == 0


def test_a_program_that_falls_silent_is_told_from_one_that_takes_long(device: AdbDevice) -> None:
    with pytest.raises(DeadlineError, match="no sign of life for 1 s"):
        device.stream(["sh", "-c", "echo x; sleep 5"], on_line=lambda _: None, deadline_s=60, stall_s=1)


def test_a_phone_that_loses_power_under_a_command_is_lost(device: AdbDevice, virtual: VirtualPhone) -> None:
    try:
        with pytest.raises(PhoneLostError, match="went away"):
            device.stream(
                ["sh", "-c", "echo up; sleep 60"], on_line=lambda _: virtual.kill(), deadline_s=60, stall_s=60
            )
    finally:
        virtual.reboot()
