"""Phones without namespaces: ``pathmap/`` (C++, compiled once for this host) traces all programs of a phone.

A seccomp filter stops them at the system calls that name files or processes; the tracer changes those to the host's
names and lets every other call run at full speed. It needs no privilege, and its end is the end of all it traces.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HostError

from .sandbox import ADBD_MOUNT, ADBD_PACKAGE, SYSTEM_FOLDERS, Interpreter

_SOURCES = Path(__file__).with_name("pathmap")
_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror")
_COMPILER = "g++"
_COMPILE_TIMEOUT_S = 300
_PROBE_TIMEOUT_S = 60
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
_LINKS: Mapping[str, str] = {
    "dev/fd": "/proc/self/fd",
    "dev/stdin": "/proc/self/fd/0",
    "dev/stdout": "/proc/self/fd/1",
    "dev/stderr": "/proc/self/fd/2",
}
_SKELETON = "skeleton"
_TABLES = "mount-tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    source: Path
    target: str
    """Absolute, on the phone."""
    writable: bool = False


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    cache = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "/")) / ".cache")
    return Path(cache) / "snapgate" / "pathmap"


def build_tracer(folder: Path | None = None) -> Path:
    """The tracer's program, compiled if ``folder`` (the user's cache) has none of these sources and this compiler.

    Raises HostError where there is no compiler, or the folder cannot be written.
    """
    compiler = shutil.which(_COMPILER)
    if compiler is None:
        raise HostError(
            "virtual phones without namespaces need a compiler",
            found=f"no {_COMPILER} on the PATH",
            expected="g++ 9 or newer",
            next_step="sudo apt-get install -y g++",
        )
    sources = sorted(_SOURCES.glob("*.cpp"))
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False, timeout=_PROBE_TIMEOUT_S).stdout
    digest = hashlib.sha256(b"\0".join((version, *map(str.encode, _FLAGS))))
    for path in sorted(_SOURCES.glob("*.[ch]*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = (cache_folder() if folder is None else folder) / digest.hexdigest()[:20] / "snapgate-phone"
    if os.access(target, os.X_OK):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as place:
            made = Path(place, target.name)
            _compile([compiler, *_FLAGS, *map(str, sources), "-o", str(made)])
            made.replace(target)
    except OSError as exc:
        raise HostError(
            "the tracer of virtual phones cannot be stored",
            found=f"{exc}",
            expected=f"a folder that can be written: {target.parent}",
            next_step="set XDG_CACHE_HOME to such a folder",
        ) from exc
    return target


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        complaint = done.stderr.strip()[-600:] if done.returncode != 0 else ""
        failed = done.returncode != 0
    except subprocess.TimeoutExpired as exc:
        complaint, failed = f"{exc}", True
    if failed:
        raise HostError(
            "the tracer of virtual phones does not compile",
            found=complaint or "no message",
            expected="a g++ that knows C++17, with the C library's and the kernel's headers",
            next_step="sudo apt-get install -y g++ libc6-dev linux-libc-dev",
        )


def probe_tracer() -> Path:
    """The tracer, once it has run ``true``. Raises HostError naming what forbids it."""
    program = build_tracer()
    system = _arguments(program, host_system())
    try:
        done = subprocess.run(
            [*system, "--identity", "2000", "--", "/usr/bin/true"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        complaint = "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as exc:
        complaint = f"{exc}"
    if complaint:
        raise HostError(
            "programs cannot be traced on this host",
            found=complaint,
            expected="permission to ptrace a child and to install a seccomp filter",
            next_step="allow ptrace: sudo sysctl -w kernel.yama.ptrace_scope=1; in a container: "
            "--security-opt seccomp=unconfined, or --cap-add SYS_PTRACE",
        )
    return program


def host_system() -> list[Mount]:
    """The host's programs and libraries, where they are on the host too."""
    mounts = [Mount(source=Path("/usr"), target="/usr")]
    mounts += [
        Mount(source=path, target=str(path))
        for path in (Path("/", name) for name in SYSTEM_FOLDERS)
        if path.is_dir() and not path.is_symlink()
    ]
    return mounts


def _kernel_files() -> list[Mount]:
    mounts = [
        Mount(source=Path("/proc"), target="/proc", writable=True),
        Mount(source=Path("/proc/sys"), target="/proc/sys"),
    ]
    devices = (Path("/dev", name) for name in _DEVICES)
    return mounts + [Mount(source=path, target=str(path), writable=True) for path in devices if path.exists()]


def phone_mounts(folder: Path, interpreter: Interpreter) -> list[Mount]:
    """Everything on the phone, its storage last."""
    mounts = [*host_system(), *_kernel_files()]
    mounts += [Mount(source=source, target=str(target)) for source, target in interpreter.mounts]
    mounts.append(Mount(source=ADBD_PACKAGE, target=str(ADBD_MOUNT / "adbd")))
    mounts += [Mount(source=folder / name, target=f"/{name}") for name in ("system", "vendor")]
    mounts += [
        Mount(source=folder / "shm", target="/dev/shm", writable=True),  # noqa: S108
        Mount(source=folder / "vdev", target="/dev/vdev", writable=True),
        Mount(source=folder / "vdev/sys", target="/sys"),
        Mount(source=folder / "vdev/boot_id", target="/proc/sys/kernel/random/boot_id"),
        Mount(source=folder / "vdev/meminfo", target="/proc/meminfo"),
        Mount(source=folder / "storage", target="/storage", writable=True),
        Mount(source=folder / "data", target="/data", writable=True),
    ]
    return mounts


def phone_arguments(program: Path, interpreter: Interpreter, folder: Path, storage_bytes: int | None) -> list[str]:
    """The tracer's command line up to the program, and the folders that it needs beside the phone's own."""
    (folder / "shm").mkdir(exist_ok=True)
    mounts = phone_mounts(folder, interpreter)
    links = {"sdcard": "/storage/emulated/0", "bin": "system/bin", "etc": "system/etc", **_LINKS}
    shown = [mount for mount in mounts if mount.source != ADBD_PACKAGE]
    temporary = folder / "data/local/tmp"
    storage: list[str] = []
    if storage_bytes is not None:
        shown.append(Mount(source=temporary, target="/data/local/tmp", writable=True))
        storage = ["--storage", str(temporary), str(storage_bytes)]
    _build_skeleton(folder / _SKELETON, mounts, links)
    _write_tables(folder / _TABLES, shown)
    root = Mount(source=folder / _SKELETON, target="/")
    tables = ["--mount-tables", str(folder / _TABLES), "--identity", "2000"]
    return [*_arguments(program, [root, *mounts]), *tables, *storage]


def adb_server_arguments(program: Path, adb: Path, home: Path) -> list[str]:
    skeleton, temporary = home.with_name("adb-root"), home.with_name("adb-tmp")
    temporary.mkdir(exist_ok=True)
    mounts = [*host_system(), *_kernel_files(), Mount(source=adb, target="/adb")]
    mounts += [
        Mount(source=home, target="/home", writable=True),
        Mount(source=temporary, target="/tmp", writable=True),  # noqa: S108
    ]
    _build_skeleton(skeleton, mounts, _LINKS)
    return _arguments(program, [Mount(source=skeleton, target="/"), *mounts])


def _arguments(program: Path, mounts: Iterable[Mount]) -> list[str]:
    arguments = [str(program)]
    for mount in mounts:
        arguments += ["--mount", "rw" if mount.writable else "ro", str(mount.source), mount.target]
    return arguments


def _build_skeleton(folder: Path, mounts: Iterable[Mount], links: Mapping[str, str]) -> None:
    """The names that a listing of the root shows: empty folders and files to mount over, and links."""
    folder.mkdir(exist_ok=True)
    for mount in mounts:
        place = folder / mount.target.lstrip("/")
        if mount.source.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    system = {name: str(Path("/", name).readlink()) for name in SYSTEM_FOLDERS if Path("/", name).is_symlink()}
    for name, target in {**system, **links}.items():
        place = folder / name
        if not place.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)


def _write_tables(folder: Path, mounts: Iterable[Mount]) -> None:
    """``/proc/mounts`` and ``/proc/self/mountinfo`` of the phone."""
    folder.mkdir(exist_ok=True)
    types = _file_system_types()
    short, long = [], []
    for number, mount in enumerate(mounts, start=1):
        device = mount.source.stat().st_dev
        place = next((point for point in types if mount.source.is_relative_to(point)), None)
        kind = "none" if place is None else types[place]
        mode = "rw" if mount.writable else "ro"
        short.append(f"/dev/block/vdev{number} {mount.target} {kind} {mode} 0 0\n")
        numbers = f"{os.major(device)}:{os.minor(device)}"
        long.append(f"{number} 0 {numbers} / {mount.target} {mode} - {kind} /dev/block/vdev{number} {mode}\n")
    (folder / "mounts").write_text("".join(short), encoding="ascii")
    (folder / "mountinfo").write_text("".join(long), encoding="ascii")


def _file_system_types() -> dict[Path, str]:
    """The host's mount points, the deepest first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    found = {Path(words[1]): words[2] for words in (line.split(" ") for line in lines) if len(words) > 2}
    return dict(sorted(found.items(), key=lambda item: len(item[0].parts), reverse=True))
