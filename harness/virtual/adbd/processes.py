"""Starts programs on the phone and collects every process that ends, adopted orphans included.

As process 1 the daemon inherits all orphans, so one SIGCHLD handler waits for any child; nothing else may wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SHELL = "/system/bin/sh"
_DEFAULT_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGXFSZ,
    signal.SIGCHLD,
)
_ENVIRONMENT = {
    "ANDROID_ASSETS": "/system/app",
    "ANDROID_BOOTLOGO": "1",
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "ANDROID_STORAGE": "/storage",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "HOSTNAME": "localhost",
    "LOGNAME": "shell",
    "PATH": "/product/bin:/apex/com.android.runtime/bin:/system_ext/bin:/system/bin:/system/xbin:/odm/bin:/vendor/bin",
    "SHELL": SHELL,
    "TMPDIR": "/data/local/tmp",
    "USER": "shell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    pid: int
    ended: asyncio.Future[int]
    """The exit code; 128 + n for a process killed by signal n."""

    def signal(self, number: int) -> None:
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Processes:
    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[int]] = {}

    def install(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        terminal: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Run ``arguments[0]`` in a session of its own, on three descriptors or on the terminal of that path."""
        if terminal is not None:
            # A session leader that opens a terminal without O_NOCTTY gets it as its controlling terminal.
            files = [
                (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
            ]
        else:
            if stdin is None or stdout is None or stderr is None:
                raise ValueError("a process without a terminal needs three descriptors")
            files = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate((stdin, stdout, stderr))]
        pid = os.posix_spawn(
            arguments[0],
            list(arguments),
            {**_ENVIRONMENT, **(environment or {})},
            file_actions=files,
            setsid=True,
            setsigmask=[],
            setsigdef=_DEFAULT_SIGNALS,
        )
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[pid] = ended
        return Child(pid=pid, ended=ended)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._waiting.pop(pid, None)
            if ended is not None and not ended.done():
                code = os.waitstatus_to_exitcode(status)
                ended.set_result(code if code >= 0 else 128 - code)


def running_commands() -> list[str]:
    """The names (at most 15 characters) of all processes that run or wait, zombies left out."""
    return [name for _, name in _running()]


def resident_bytes(names: Collection[str]) -> int:
    """Of all processes with these names; pages that several share are counted for each."""
    pages = 0
    for pid, name in _running():
        if name in names:
            with contextlib.suppress(OSError, ValueError, IndexError):
                pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processes_named(name: str) -> list[int]:
    return [pid for pid, found in _running() if found == name[:15]]


def _running() -> list[tuple[int, str]]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if not rest.lstrip().startswith(("Z", "X")):
            found.append((int(entry.name), name))
    return found
