"""Virtual phones that outlive the command that starts them: what ``snapgate virtual start | list | stop`` calls."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HostError

from . import control
from .device import remove_tree
from .lab import ADB_HOST, PhoneSpec, add_phones, launch_supervisor, wait_until_gone

_DYING_S = 2.0
"""A killed process answers no more some milliseconds before the kernel takes its locks from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneStatus:
    """``state`` is ``on`` or ``off`` (killed, or its daemon ended)."""

    marker: str
    serial: str
    transport: str
    boot_id: str | None
    state: str
    storage_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStatus:
    """What runs in one state folder. ``was_stale``: a supervisor had died there without cleaning up."""

    state_dir: Path
    running: bool
    was_stale: bool = False
    pid: int | None = None
    adb_host: str = ADB_HOST
    adb_port: int | None = None
    isolation: str | None = None
    reduction: str | None = None
    """What is less isolated than with namespaces, and why; None if nothing is."""
    phones: tuple[PhoneStatus, ...] = ()


def default_state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """``$SNAPGATE_STATE``, else ``snapgate`` under the XDG state folder; ``virtual`` in it."""
    named = environment.get("SNAPGATE_STATE")
    if named:
        return Path(named) / "virtual"
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "/")) / ".local" / "state")
    return Path(state) / "snapgate" / "virtual"


def start_daemon(
    state_dir: Path, phones: Sequence[PhoneSpec], progress: Callable[[str], None] = lambda _: None
) -> LabStatus:
    """Start phones that stay; joins those already running in ``state_dir``. Returns the whole folder's status.

    If the very first phones of a folder cannot be started, nothing is left running.
    """
    if control.is_running(state_dir):
        try:
            add_phones(state_dir, phones, progress)
            return status(state_dir)
        except control.NoAnswerError:
            if not wait_until_gone(state_dir, _DYING_S):
                raise
            progress("the supervisor there has just ended")
    progress(f"starting a private adb server, state in {state_dir}")
    # It is meant to outlive this object, which would otherwise warn of a child still running.
    launch_supervisor(state_dir, owner=None).returncode = 0
    try:
        add_phones(state_dir, phones, progress)
    except BaseException:
        stop_daemon(state_dir)
        raise
    return status(state_dir)


def status(state_dir: Path) -> LabStatus:
    """Raises HostError if a supervisor runs there but does not answer."""
    if not control.is_running(state_dir):
        return _not_running(state_dir)
    try:
        described = control.request(state_dir, {"op": "list"})
    except control.NoAnswerError:
        if not wait_until_gone(state_dir, _DYING_S):
            raise
        return _not_running(state_dir)
    return LabStatus(
        state_dir=state_dir,
        running=True,
        pid=described["pid"],
        adb_port=described["adb_port"],
        isolation=described["isolation"],
        reduction=described["reduction"],
        phones=tuple(PhoneStatus(**phone) for phone in described["phones"]),
    )


def _not_running(state_dir: Path) -> LabStatus:
    return LabStatus(state_dir=state_dir, running=False, was_stale=(state_dir / "lab.json").exists())


def stop_daemon(state_dir: Path, progress: Callable[[str], None] = lambda _: None) -> bool:
    """End everything of that folder, also what does not answer any more. False if nothing ran there."""
    if not control.is_running(state_dir):
        _clear_stale(state_dir)
        return False
    progress("stopping the virtual phones and their adb server")
    # A supervisor that cannot answer any more is killed below.
    with contextlib.suppress(HostError):
        control.request(state_dir, {"op": "stop"})
    if not wait_until_gone(state_dir):
        progress("the supervisor does not end by itself: killing it")
        _kill(state_dir)
        if not wait_until_gone(state_dir):
            raise HostError(
                "the virtual phones cannot be stopped",
                found=f"a process that still holds {state_dir / control.LOCK_NAME}",
                expected="no supervisor left",
                next_step=f"find it with 'fuser {state_dir / control.LOCK_NAME}' and kill it",
            )
        _clear_stale(state_dir)
    return True


def _kill(state_dir: Path) -> None:
    """Its phones and adb server die with it. The lock is held, so the recorded pid is still its own."""
    try:
        pid = int(json.loads((state_dir / "lab.json").read_text(encoding="utf-8"))["pid"])
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError, KeyError, TypeError):
        return


def _clear_stale(state_dir: Path) -> None:
    for name in ("lab.json", control.SOCKET_NAME):
        (state_dir / name).unlink(missing_ok=True)
    remove_tree(state_dir / "phones")
