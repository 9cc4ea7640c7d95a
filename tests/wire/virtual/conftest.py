"""Two virtual phones for the module, and the real adb against their private server."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.errors import HostError
from harness.virtual import Isolation, PhoneSpec, VirtualLab, VirtualPhone, probe_sandbox
from harness.virtual.adb_server import find_adb

SMALL_STORAGE = 48 * 1024 * 1024
TIMEOUT_S = 60


QUICK = frozenset({"test_virtual_files", "test_virtual_listing", "test_virtual_shell"})
"""Modules that `make test` runs with both isolations, the others with the host's default only."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        chosen = (
            item.callspec.params.get("isolation")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if chosen is Isolation.PATHS and item.path.stem not in QUICK and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True, slots=True)
class Adb:
    """The adb program, on the lab's server and one phone (or none)."""

    port: int
    transport: str | None = None

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        chosen = () if self.transport is None else ("-s", self.transport)
        return subprocess.Popen(
            [str(find_adb()), "-P", str(self.port), *chosen, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self, *arguments: str, stdin: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[bytes]:
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise
            return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def shell(self, command: str) -> str:
        """stdout of a command that must succeed."""
        done = self.run("shell", command)
        assert done.returncode == 0, (command, done)
        return done.stdout.decode()


@pytest.fixture(scope="module", params=list(Isolation))
def isolation(request: pytest.FixtureRequest) -> Iterator[Isolation]:
    """Every phone that is started meanwhile is isolated this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SNAPGATE_ISOLATION", request.param)
        try:
            probe_sandbox()
        except HostError as exc:
            pytest.skip(str(exc))
        yield request.param


@pytest.fixture(scope="module")
def lab(isolation: Isolation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    """A gen3 with the host's disk, and an elite with 48 MiB of its own."""
    specs = [PhoneSpec(marker="gen3"), PhoneSpec(marker="elite", storage_bytes=SMALL_STORAGE)]
    with VirtualLab.start(tmp_path_factory.mktemp("lab"), specs) as started:
        assert started.isolation == isolation
        yield started


@pytest.fixture
def phone(lab: VirtualLab) -> Iterator[VirtualPhone]:
    yield lab.phones[0]
    lab.phones[0].clear_faults()


@pytest.fixture
def small_phone(lab: VirtualLab) -> Iterator[VirtualPhone]:
    yield lab.phones[1]
    lab.phones[1].clear_faults()


@pytest.fixture
def server(lab: VirtualLab) -> Adb:
    return Adb(lab.adb_port)


@pytest.fixture
def adb(lab: VirtualLab, phone: VirtualPhone) -> Adb:
    return Adb(lab.adb_port, phone.transport)


@pytest.fixture
def small_adb(lab: VirtualLab, small_phone: VirtualPhone) -> Adb:
    return Adb(lab.adb_port, small_phone.transport)


@pytest.fixture
def scratch(adb: Adb, request: pytest.FixtureRequest) -> str:
    """A folder on the phone for one test."""
    folder = f"/data/local/tmp/{request.node.name[:60]}"
    adb.shell(f"mkdir -p {folder}")
    return folder


@pytest.fixture
def wait_for() -> Callable[..., None]:
    def wait(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            time.sleep(0.05)

    return wait


@pytest.fixture
def adb_of() -> Callable[[VirtualLab, VirtualPhone], Adb]:
    """For a test that starts phones of its own."""
    return lambda lab, phone: Adb(lab.adb_port, phone.transport)


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """64 MiB whose every megabyte differs."""
    path = tmp_path / "noise"
    block = bytes(range(256)) * 4096
    with path.open("wb") as file:
        for number in range(64):
            file.write(number.to_bytes(4, "little") + block[4:])
    return path
