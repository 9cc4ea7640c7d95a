"""The live rows at the foot of a terminal: over a real socket and a real pseudo-terminal."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
import time
from types import SimpleNamespace

import pytest

from harness.plugin.case import Case
from harness.plugin.live import Board, Channel, Screen, clock_text, fitted, screen_for
from harness.plugin.options import PhoneChoice
from harness.plugin.phones import NO_PHONES
from harness.plugin.plan import PlannedRun, n_planned
from harness.plugin.suite_runs import EMULATED
from harness.record.codec import to_json
from harness.record.run import Cell
from harness.record.vocabulary import Suite
from harness.run.watch import Sign
from harness.soc import KvPrecision, Precision

SIGN = Sign(
    run_id="r",
    serial="VDEVGEN3001",
    cell="tiny-w8a16-kv8-SM8650",
    workload="latency",
    stage="generating",
    elapsed_s=65.0,
    heard_s=1.0,
    n_done=2,
    n_generations=4,
    n_tokens=40,
    celsius={"cpu": 45.5, "skin": 33.0},
    left_s=30.0,
    over=False,
)


@pytest.fixture
def terminal():
    """Both ends of a terminal of 24 rows and 160 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def read(descriptor: int, wanted: str, seconds: float = 10.0) -> str:
    text, deadline = "", time.monotonic() + seconds
    while wanted not in text and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.1)[0]:
            text += os.read(descriptor, 65536).decode()
    assert wanted in text, text
    return text


def test_two_workers_are_shown_with_phone_cell_heartbeat_tokens_temperatures_and_time_left(terminal):
    ours, theirs = terminal
    screen = Screen(theirs, n_workers=2)
    try:
        first, second = Channel(screen.address, "gw0"), Channel(screen.address, "gw1")
        first.plan({"latency": 2, "accuracy": 4})
        first.tell(SIGN)
        second.say("waiting for a phone")
        text = read(ours, "gw1  waiting for a phone")
        row = re.search(r"\x1b\[23;1H\x1b\[2K( gw0  VDEV.*?)\x1b", text)
        assert row is not None
        assert re.match(
            r" gw0  VDEVGEN3001 · latency tiny-w8a16-kv8-SM8650 · generating · 2/4 gen, 40 tok · "
            r"ETA 0:(30|29|28) · heard [12] s ago · cpu 46°C skin 33°C",
            row[1],
        )
        assert "0 of 6 runs done" in text
        assert "\x1b[1;21r" in text  # pytest keeps rows 1 to 21
        first.close()
        second.close()
    finally:
        screen.close()
    assert "\x1b[r" in read(ours, "\x1b[r")
    assert not os.path.exists(screen.address)  # noqa: PTH110
    screen.close()


def test_a_pipe_a_dumb_and_a_small_terminal_have_no_screen(terminal):
    _, theirs = terminal
    reading, writing = os.pipe()
    assert screen_for(writing, n_workers=1, environment={"TERM": "xterm"}) is None
    assert screen_for(theirs, n_workers=1, environment={"TERM": "dumb"}) is None
    assert screen_for(theirs, n_workers=1, environment={}) is None
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 160, 0, 0))
    assert screen_for(theirs, n_workers=1, environment={"TERM": "xterm"}) is None
    os.close(reading)
    os.close(writing)


def test_sending_neither_waits_nor_fails_when_nobody_reads(tmp_path):
    channel = Channel(str(tmp_path / "nobody"), "gw0")
    started = time.monotonic()
    for _ in range(2000):
        channel.tell(SIGN)
    assert time.monotonic() - started < 5
    channel.close()
    channel.tell(SIGN)


def test_the_time_left_of_a_session_is_that_of_the_runs_to_come():
    """Of four accuracy runs one took 100 s; of two latency runs one took 60 s and one runs for 65 s; a workload that
    nobody has finished counts as the mean of all, 80 s: (3 × 100 + 80) s, by two workers."""
    board = Board(n_workers=2, began=0.0)
    board.planned = {"accuracy": 4, "latency": 2, "smoke": 1}
    board.took = {"accuracy": [100.0], "latency": [60.0]}
    assert board.left_s() == (3 * 100 + 60 + 80) / 2
    board.take(json.dumps({"worker": "gw0", "sign": to_json(SIGN)}).encode(), 0.0)
    assert board.left_s() == (3 * 100 + 80) / 2
    board.take(json.dumps({"worker": "gw0", "sign": to_json(dataclasses.replace(SIGN, over=True))}).encode(), 1.0)
    assert board.took["latency"] == [60.0, 65.0]
    assert board.lines(1.0, 80, 4)[1].startswith(" gw0  latency of tiny-w8a16-kv8-SM8650 done")


def test_what_is_no_message_is_passed_over():
    board = Board(n_workers=1, began=0.0)
    for message in (
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"worker": "w", "sign": {"serial": 1}}',
        b'{"worker":"w","planned":"x"}',
        b'{"worker":"w","planned":{"latency":"x"}}',
    ):
        board.take(message, 0.0)
    assert len(board.lines(0.0, 80, 4)[0]) == 80


def test_hostile_text_neither_moves_the_cursor_nor_breaks_the_row():
    """Control characters and bidi overrides are gone; a wide character takes two cells."""
    assert fitted("a\x1b[31m\u202eb\x00📱c", 10) == "a[31mb📱c "
    assert fitted("📱📱", 3) == "📱 "


def test_every_round_of_endurance_is_a_run_to_come_and_what_no_phone_can_run_is_none():
    """On virtual phones endurance has 7 rounds. Of real phones none is attached."""
    case = Case(cell=Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650"), serial=None)
    runs = [PlannedRun(case=case, workload=name, n_tests=3) for name in ("latency", Suite.TOY, Suite.ENDURANCE)]
    settings = SimpleNamespace(phones=PhoneChoice.AUTO, require_device=False)
    assert n_planned(runs, settings, NO_PHONES) == {"latency": 1, "smoke-toy": 1, "endurance": EMULATED.rounds}
    settings = SimpleNamespace(phones=PhoneChoice.AUTO, require_device=True)
    assert n_planned(runs, settings, NO_PHONES) == {}


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (187, "3:07"), (3723, "1:02:03")])
def test_times_read_like_a_clock(seconds, text):
    assert clock_text(seconds) == text
