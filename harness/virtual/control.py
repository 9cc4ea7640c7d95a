"""Questions to a running supervisor: one JSON line over its socket, answered by progress lines and one result."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import errors
from harness.errors import HostError, SnapGateError

SOCKET_NAME = "control.sock"
LOCK_NAME = "supervisor.lock"
ANSWER_TIMEOUT_S = 120.0
"""The longest silence before a supervisor counts as hung; starting a phone reports progress in between."""


class NoAnswerError(HostError):
    """A supervisor holds the folder, or held it a moment ago, and does not answer."""


def is_running(state_dir: Path) -> bool:
    """Whether a supervisor holds the folder. Its lock ends with it, however it ended."""
    try:
        fd = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def request(
    state_dir: Path, message: dict[str, Any], progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """The supervisor's result. Raises the error it reports, or NoAnswerError."""
    try:
        with _connected(state_dir) as connection:
            connection.sendall(json.dumps(message).encode() + b"\n")
            with connection.makefile("rb") as answers:
                for line in answers:
                    answer = json.loads(line)
                    if "progress" in answer:
                        progress(answer["progress"])
                    elif "error" in answer:
                        raise decode_error(answer["error"])
                    else:
                        result: dict[str, Any] = answer["result"]
                        return result
    except (OSError, ValueError) as exc:
        raise _no_answer(state_dir, f"{exc}") from exc
    raise _no_answer(state_dir, "it closed the connection")


def _no_answer(state_dir: Path, found: str) -> NoAnswerError:
    return NoAnswerError(
        "the virtual phones' supervisor does not answer",
        found=found,
        expected=f"a supervisor behind {state_dir / SOCKET_NAME}",
        next_step=f"read {state_dir / 'supervisor.log'}; 'snapgate virtual stop' ends what is left",
    )


@contextlib.contextmanager
def _connected(state_dir: Path) -> Iterator[socket.socket]:
    folder = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(ANSWER_TIMEOUT_S)
        # A socket's path may have 107 bytes at most; a folder's descriptor makes it short.
        connection.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        yield connection
    finally:
        connection.close()
        os.close(folder)


def encode_error(error: SnapGateError) -> dict[str, Any]:
    return {
        "class": type(error).__name__,
        "what": error.what,
        "found": error.found,
        "expected": error.expected,
        "next_step": error.next_step,
    }


def decode_error(encoded: dict[str, Any]) -> SnapGateError:
    kind = getattr(errors, encoded["class"], HostError)
    if not (isinstance(kind, type) and issubclass(kind, SnapGateError)):
        kind = HostError
    return kind(encoded["what"], found=encoded["found"], expected=encoded["expected"], next_step=encoded["next_step"])
