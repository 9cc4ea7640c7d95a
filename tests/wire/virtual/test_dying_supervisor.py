"""A supervisor that was killed a moment ago: its socket is dead while its lock is still held."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.virtual import control, daemon


@contextlib.contextmanager
def _dying(state_dir: Path, *, holds_s: float) -> Iterator[None]:
    """Holds the folder's lock, hangs up on whoever asks, and lets the lock go ``holds_s`` after the first question."""
    (state_dir / "lab.json").write_text("{}", encoding="utf-8")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        (state_dir / control.LOCK_NAME).open("w", encoding="utf-8") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        listener.bind(str(state_dir / control.SOCKET_NAME))
        listener.listen()

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                listener.accept()[0].close()
                time.sleep(holds_s)
                fcntl.flock(lock, fcntl.LOCK_UN)

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield
        thread.join()


def test_a_supervisor_that_is_dying_is_seen_as_stale(tmp_path: Path) -> None:
    with _dying(tmp_path, holds_s=0.3):
        seen = daemon.status(tmp_path)
    assert (seen.running, seen.was_stale) == (False, True)


def test_one_that_lives_on_without_an_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_DYING_S", 0.1)
    with _dying(tmp_path, holds_s=0.6), pytest.raises(control.NoAnswerError, match="does not answer"):
        daemon.status(tmp_path)


def test_phones_join_no_supervisor_that_is_dying(tmp_path: Path) -> None:
    said: list[str] = []
    with _dying(tmp_path, holds_s=0.3):
        started = daemon.start_daemon(tmp_path, [], said.append)
    try:
        assert started.running
        assert said[0] == "the supervisor there has just ended"
    finally:
        assert daemon.stop_daemon(tmp_path)
