"""Two daemons behind the real adb: the virtual phone's, and the genuine one of Debian trixie where it can be had."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.virtual.adb_server import find_adb
from harness.virtual.lab import PhoneSpec, VirtualLab
from harness.virtual.sandbox import probe_namespaces

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "snapgate" / "adbd-trixie"
GENUINE = "SNAPGATE_GENUINE_ADBD"
"""Set by `make conformance`: fetch the genuine one and ask it too."""
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Daemon:
    port: int
    transport: str
    folder: str

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(find_adb()), "-P", str(self.port), "-s", self.transport, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(stdin, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def shell(self, command: str) -> bytes:
        return self.run("shell", command).stdout


def _fetched() -> Path:
    done = subprocess.run(
        [ROOT / "tools/fetch-adbd.sh", CACHE], capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"Debian trixie's adbd cannot be had here: {done.stderr.strip() or done.returncode}")
    return CACHE


@contextlib.contextmanager
def _genuine(folder: Path) -> Iterator[Daemon]:
    package = _fetched()
    bubblewrap, own_network = probe_namespaces()
    if not own_network:
        pytest.skip("the genuine adbd trusts everybody, and this host gives it no network of its own")
    libraries = "/trixie/usr/lib/x86_64-linux-gnu"
    listener = socket.create_server(("127.0.0.1", 0))
    prefix = Path(sys.base_prefix).resolve()
    command = [str(bubblewrap), "--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent"]
    command += ["--ro-bind", "/usr", "/usr", "--ro-bind", str(package), "/trixie", "--proc", "/proc", "--dev", "/dev"]
    for name in ("bin", "lib", "lib64", "sbin"):
        path = Path("/", name)
        command += ["--symlink", str(path.readlink()), str(path)] if path.is_symlink() else ["--ro-bind", name, name]
    if not prefix.is_relative_to("/usr"):
        command += ["--ro-bind", str(prefix), str(prefix)]
    command += ["--ro-bind", str(ROOT / "tests/conformance"), "/conformance", "--tmpfs", "/data", "--dir", "/tmp"]
    interpreter = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    command += [str(interpreter), "/conformance/relay.py", str(listener.fileno())]
    command += [f"{libraries}/ld-linux-x86-64.so.2", "--library-path", f"{libraries}:{libraries}/android"]
    command += ["/trixie/usr/lib/android-sdk/platform-tools/adbd"]
    port = _free_port()
    home = folder / "home"
    home.mkdir()
    transport = f"127.0.0.1:{listener.getsockname()[1]}"
    environment = {**os.environ, "HOME": str(home)}
    with (folder / "adbd.log").open("wb") as log:
        adbd = subprocess.Popen(command, pass_fds=[listener.fileno()], stdout=log, stderr=log)
        server = subprocess.Popen(
            [find_adb(), "-P", str(port), "nodaemon", "server"], env=environment, stdout=log, stderr=log
        )
        listener.close()
        try:
            daemon = Daemon(port, transport, "/data")
            for _ in range(100):
                subprocess.run(
                    [find_adb(), "-P", str(port), "connect", transport], capture_output=True, check=False, timeout=30
                )
                if daemon.run("get-state").stdout == b"device\n":
                    break
                time.sleep(0.2)
            else:
                pytest.fail((folder / "adbd.log").read_text(errors="replace")[-2000:])
            yield daemon
        finally:
            for process in (server, adbd):
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@pytest.fixture(scope="session", params=["virtual", "genuine"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    if request.param == "genuine":
        if GENUINE not in os.environ:
            pytest.skip("the genuine adbd is asked by `make conformance`")
        with _genuine(folder) as started:
            yield started
        return
    with VirtualLab.start(folder, [PhoneSpec(marker="gen3")]) as lab:
        yield Daemon(lab.adb_port, lab.phones[0].transport, "/data/local/tmp")


@pytest.fixture
def place(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    """A folder of one test."""
    folder = f"{daemon.folder}/{abs(hash(request.node.name)) % 10**8}"
    assert daemon.run("shell", f"mkdir -p {folder}").returncode == 0
    return folder
