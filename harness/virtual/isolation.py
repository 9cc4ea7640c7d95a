"""How phones are kept apart from the host: by namespaces where the host allows them, else by mapped paths."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness.errors import HostError, UserError

from . import paths, sandbox
from .sandbox import Interpreter

VARIABLE = "SNAPGATE_ISOLATION"


class Isolation(StrEnum):
    NAMESPACES = "namespaces"
    """User, mount, pid, ipc, uts and (where allowed) network namespaces, made by bubblewrap."""
    PATHS = "paths"
    """Every program is traced, and the paths and process numbers in its system calls are changed."""


REDUCED = (
    "shared with the host: network, process numbers, System V IPC; what a program writes through mapped memory is not "
    "counted against a storage size; programs on the phone cannot use ptrace, io_uring or Unix sockets with a path"
)
"""What ``Isolation.PATHS`` lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What this host allows, found by trying. ``reason``: why it is not namespaces; None if it is."""

    isolation: Isolation
    program: Path
    own_network: bool
    reason: str | None = None

    @property
    def reduction(self) -> str | None:
        """For people: that phones are isolated less, how, and why. None if they are not."""
        if self.reason is None:
            return None
        return f"REDUCED ISOLATION of virtual phones: mapped paths instead of namespaces ({self.reason}); {REDUCED}"


def wanted_isolation(environment: Mapping[str, str] = os.environ) -> Isolation | None:
    """``SNAPGATE_ISOLATION``; None: namespaces if the host allows them. Raises UserError for any other word."""
    word = environment.get(VARIABLE, "")
    if not word:
        return None
    try:
        return Isolation(word)
    except ValueError as exc:
        raise UserError(
            f"{VARIABLE} names no isolation of virtual phones",
            found=repr(word),
            expected=" or ".join(Isolation),
            next_step=f"correct {VARIABLE} or unset it",
        ) from exc


def probe_sandbox() -> Sandbox:
    """Try namespaces, then mapped paths, once around ``true``.

    Raises HostError naming what forbids both and what permits the first, UserError for a malformed
    ``SNAPGATE_ISOLATION``.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise HostError(
            "virtual phones cannot run on this host",
            found=f"{sys.platform} on {platform.machine()}",
            expected="Linux on x86_64",
            next_step="use an attached phone, or an x86-64 Linux host",
        )
    wanted = wanted_isolation()
    if wanted is Isolation.PATHS:
        return _mapped_paths(f"{VARIABLE}={Isolation.PATHS}")
    try:
        bubblewrap, own_network = sandbox.probe_namespaces()
    except HostError as refusal:
        if wanted is Isolation.NAMESPACES:
            raise
        try:
            return _mapped_paths(refusal.found or refusal.what)
        except HostError as exc:
            raise HostError(
                refusal.what,
                found=f"{refusal.found}; and without namespaces: {exc.what}: {exc.found}",
                expected=refusal.expected,
                next_step=refusal.next_step,
            ) from exc
    return Sandbox(isolation=Isolation.NAMESPACES, program=bubblewrap, own_network=own_network)


def _mapped_paths(reason: str) -> Sandbox:
    return Sandbox(isolation=Isolation.PATHS, program=paths.probe_tracer(), own_network=False, reason=reason)


def phone_command(
    allowed: Sandbox,
    interpreter: Interpreter,
    folder: Path,
    *,
    storage_bytes: int | None,
    listen_fd: int,
    control_fd: int,
) -> list[str]:
    """The command line of a phone whose root folder is ``folder``; the two descriptors must be inheritable."""
    if allowed.isolation is Isolation.NAMESPACES:
        start = sandbox.phone_arguments(allowed.program, interpreter, folder, storage_bytes, allowed.own_network)
    else:
        start = paths.phone_arguments(allowed.program, interpreter, folder, storage_bytes)
    for name, value in interpreter.environment().items():
        start += ["--setenv", name, value]
    daemon = ["-m", "adbd", "--listen-fd", str(listen_fd), "--control-fd", str(control_fd)]
    return [*start, "--", *interpreter.arguments(), *daemon]


def adb_server_command(allowed: Sandbox, adb: Path, home: Path, arguments: Sequence[str]) -> list[str]:
    """adb alone with the system's libraries: no ``/dev/bus/usb``, no user's home, and it ends with its parent."""
    if allowed.isolation is Isolation.NAMESPACES:
        command = sandbox.adb_server_arguments(allowed.program, adb, home)
    else:
        command = paths.adb_server_arguments(allowed.program, adb, home)
    settings = {
        "HOME": "/home",
        "ANDROID_USER_HOME": "/home",
        "ADB_USB": "0",
        "ADB_MDNS": "0",
        "ADB_MDNS_AUTO_CONNECT": "0",
        # One below the first port that a scan for emulators would try.
        "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553",
        "ADB_REJECT_KILL_SERVER": "1",
    }
    for name, value in settings.items():
        command += ["--setenv", name, value]
    return [*command, "--", "/adb", *arguments]
