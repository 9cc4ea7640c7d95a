"""The shell v2 protocol, spoken by the test on the far end of a real socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest

from harness.device import shell
from harness.device.shell import LineSplitter, Patience, ShellResult, converse, quote, split_sentinel, with_sentinel
from harness.errors import DeadlineError, TransferError

NONCE = "0123456789abcdef"


def packet(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(4, "little") + data


def sentinel(status: int) -> bytes:
    return packet(2, b"\nsnapgate-exit-" + NONCE.encode() + b":%d\n" % status)


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def speak(
    wire: tuple[socket.socket, socket.socket],
    far_end: Callable[[socket.socket], None],
    *,
    patience: Patience | None = None,
    stdin: bytes | None = None,
    on_stdout: Callable[[bytes], None] | None = None,
) -> ShellResult:
    ours, theirs = wire
    thread = threading.Thread(target=far_end, args=(theirs,))
    thread.start()
    try:
        return converse(
            SimpleNamespace(conn=ours),
            argv=("true",),
            nonce=NONCE,
            stdin=stdin,
            patience=patience or Patience.of(20),
            what="try",
            on_stdout=on_stdout,
        )
    finally:
        thread.join()


def test_output_comes_back_apart_and_the_sentinel_is_taken_out(wire: tuple[socket.socket, socket.socket]) -> None:
    result = speak(
        wire, lambda s: s.sendall(packet(1, b"out\n") + packet(2, b"err\n") + sentinel(7) + packet(3, b"\x07"))
    )
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 7)


def test_the_phones_own_word_counts_when_the_status_packet_says_zero(wire: tuple[socket.socket, socket.socket]) -> None:
    assert speak(wire, lambda s: s.sendall(sentinel(42) + packet(3, b"\x00"))).exit_code == 42


def test_a_status_without_the_sentinel_is_lost_and_no_success(wire: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(TransferError, match="exit status was lost"):
        speak(wire, lambda s: s.sendall(packet(1, b"fine\n") + packet(3, b"\x00")))


def test_a_sentinel_of_another_command_is_no_status(wire: tuple[socket.socket, socket.socket]) -> None:
    foreign = packet(2, b"\nsnapgate-exit-ffffffffffffffff:0\n")
    with pytest.raises(TransferError, match="exit status was lost"):
        speak(wire, lambda s: s.sendall(foreign + packet(3, b"\x00")))


def test_packets_cut_anywhere_are_put_together(wire: tuple[socket.socket, socket.socket]) -> None:
    whole = packet(1, b"abc") + sentinel(0) + packet(3, b"\x00")

    def drip(far: socket.socket) -> None:
        for i in range(len(whole)):
            far.sendall(whole[i : i + 1])

    assert speak(wire, drip).stdout == b"abc"


def test_a_connection_that_ends_early_is_an_end_of_file(wire: tuple[socket.socket, socket.socket]) -> None:
    def hang_up(far: socket.socket) -> None:
        far.sendall(packet(1, b"half"))
        far.shutdown(socket.SHUT_WR)

    with pytest.raises(EOFError, match="before the exit status"):
        speak(wire, hang_up)


def test_a_phone_that_says_nothing_meets_the_deadline(wire: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(DeadlineError, match="not finished in time"):
        speak(wire, lambda _: None, patience=Patience.of(0.05))


def test_a_command_that_falls_silent_stalls_before_its_deadline(wire: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(DeadlineError, match=r"no sign of life for 0\.05 s"):
        speak(wire, lambda s: s.sendall(packet(1, b"a")), patience=Patience.of(60, stall_s=0.05))


def test_every_packet_is_a_sign_of_life(
    wire: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(shell, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    taken = threading.Event()

    def talk(far: socket.socket) -> None:
        clock[0] = 6.0
        far.sendall(packet(1, b"a"))
        taken.wait(20)
        time.sleep(0.1)
        far.sendall(sentinel(0) + packet(3, b"\0"))

    def take(_: bytes) -> None:
        clock[0] = 12.0
        taken.set()

    patience = Patience(deadline=1000.0, stall_s=10.0, _last=0.0)
    assert speak(wire, talk, patience=patience, on_stdout=take).exit_code == 0


def test_output_beyond_the_limit_is_dropped_and_counted(
    wire: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "STDOUT_LIMIT", 4)
    monkeypatch.setattr(shell, "STDERR_LIMIT", 3)
    result = speak(
        wire, lambda s: s.sendall(packet(1, b"123456") + packet(2, b"abcde") + sentinel(0) + packet(3, b"\0"))
    )
    assert (result.stdout, result.stderr, result.exit_code) == (b"1234", b"abc", 0)
    assert result.dropped_bytes >= 2 + 2


def test_stdin_is_sent_and_closed(wire: tuple[socket.socket, socket.socket]) -> None:
    seen = bytearray()

    def far_end(far: socket.socket) -> None:
        while not seen.endswith(packet(4, b"")):
            seen.extend(far.recv(100))
        far.sendall(sentinel(0) + packet(3, b"\0"))

    speak(wire, far_end, stdin=b"hello")
    assert bytes(seen) == packet(0, b"hello") + packet(4, b"")


def test_every_argument_reaches_the_program_as_it_is() -> None:
    assert quote(["echo", "a b", "$HOME;`id`", "it's", PurePosixPath("/data/x")]) == (
        "echo 'a b' '$HOME;`id`' 'it'\"'\"'s' /data/x"
    )


def test_the_sentinel_line_ends_the_command() -> None:
    assert with_sentinel("true", "ab").splitlines() == [
        "true",
        "_s=$?; echo >&2; echo snapgate-exit-ab:$_s >&2; exit $_s",
    ]


def test_a_sentinel_with_windows_line_ends_is_read() -> None:
    assert split_sentinel(b"oops\r\n\r\nsnapgate-exit-ab:3\r\n", "ab") == (b"oops\r\n", 3)


def test_text_after_the_sentinel_makes_it_none() -> None:
    assert split_sentinel(b"\nsnapgate-exit-ab:0\nmore\n", "ab") is None


def test_lines_are_handed_on_whole_and_the_last_one_at_the_end() -> None:
    lines: list[str] = []
    splitter = LineSplitter(lines.append)
    splitter.add(b"one\r\ntw")
    splitter.add(b"o\nthree")
    assert lines == ["one", "two"]
    splitter.finish()
    assert lines == ["one", "two", "three"]


def test_what_a_failure_shows_has_no_control_characters() -> None:
    result = ShellResult(argv=("x",), stdout=b"", stderr=b"\x1b[31mred\x07 \xff\n", exit_code=1, dropped_bytes=0)
    assert result.said() == "exit code 1: [31mred �"


@pytest.mark.parametrize("header", [b"\x01\xff\xff\xff\xff", b"\x09\x00\x00\x00\x00"])
def test_a_packet_that_cannot_be_one_is_refused_before_it_is_read(
    wire: tuple[socket.socket, socket.socket], header: bytes
) -> None:
    with pytest.raises(EOFError, match="not a shell packet"):
        speak(wire, lambda theirs: theirs.sendall(header))
