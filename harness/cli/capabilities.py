"""What this host can do, found by trying: the base of ``snapgate doctor`` and of the test lanes."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from harness.errors import HostError
from harness.runtime.locate import library_folder
from harness.runtime.required import ARCHS, QNN_ANDROID_VARIABLE
from harness.virtual import probe_sandbox

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: where ``build/`` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    reason: str
    remedy: str
    """A command, or a sentence"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    name: str
    allows: str
    check: Callable[[], Missing | None]
    """None: this host can."""
    note: Callable[[], str | None] = lambda: None
    """Where this host can: what it does with less than it should; None: nothing."""


def _program(*names: str, package: str) -> Callable[[], Missing | None]:
    def check() -> Missing | None:
        absent = [name for name in names if shutil.which(name) is None]
        if absent:
            return Missing(reason=f"no {', '.join(absent)} on the PATH", remedy=f"sudo apt-get install -y {package}")
        return None

    return check


def _modules(*names: str, extra: str) -> Callable[[], Missing | None]:
    def check() -> Missing | None:
        absent = [name for name in names if importlib.util.find_spec(name) is None]
        if absent:
            return Missing(
                reason=f"Python package {', '.join(absent)} is not installed", remedy=f"pip install 'snapgate[{extra}]'"
            )
        return None

    return check


def find_postgresql() -> Path | None:
    """The newest folder with PostgreSQL's server programs: Debian's, or that of ``initdb`` on the PATH."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    whole = [folder for folder in folders if (folder / "postgres").is_file()]
    return max(whole, key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0, default=None)


def _postgresql() -> Missing | None:
    lack = _modules("sqlalchemy", "psycopg", extra="history")()
    if lack is None and find_postgresql() is None:
        return Missing(reason="no initdb and postgres", remedy="sudo apt-get install -y postgresql")
    return lack


AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
"""The accessibility checker, for tests of the pages only; never part of a page."""


def _axe() -> Missing | None:
    return None if AXE.is_file() else Missing(reason=f"no {AXE.relative_to(ROOT)}", remedy="tools/install-lanes.sh")


def _qnn() -> Missing | None:
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return Missing(reason=f"{platform.machine()} {sys.platform}", remedy="use an x86-64 Linux host")
    name, version = platform.libc_ver()
    if name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) < (2, 35):
        return Missing(reason=f"glibc {version}, 2.35 is needed", remedy="use Debian 12, Ubuntu 22.04 or newer")
    for module in ("onnxruntime_qnn", "onnx", "safetensors"):
        if importlib.util.find_spec(module) is None:
            return Missing(reason=f"Python package {module} is not installed", remedy="pip install 'snapgate[prepare]'")
    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / "libQnnHtp.so").is_file():
        return Missing(
            reason="onnxruntime_qnn is there without its libQnnHtp.so",
            remedy="pip install --force-reinstall onnxruntime-qnn",
        )
    return None


def _compiler() -> Missing | None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        return Missing(reason="no C++ compiler", remedy="sudo apt-get install -y g++")
    scripts = Path(sys.executable).parent
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None and not (scripts / tool).exists():
            return Missing(reason=f"no {tool}", remedy=f"pip install {tool}")
    return None


def runner_path() -> Path:
    """The runner built for this host. SNAPGATE_BUILD names another build folder."""
    return Path(os.environ.get("SNAPGATE_BUILD", ROOT / "build")) / "host" / "snapgate-runner"


def _runner() -> Missing | None:
    path = runner_path()
    if not path.is_file():
        return Missing(reason=f"{path} does not exist", remedy="make runner")
    return None


def _virtual() -> Missing | None:
    try:
        probe_sandbox()
    except HostError as exc:
        return Missing(reason=f"{exc.what}: {exc.found}", remedy=exc.next_step or "use an attached phone")
    return None


def _reduced_isolation() -> str | None:
    return probe_sandbox().reduction


def _adb() -> Missing | None:
    spec = importlib.util.find_spec("adbutils")
    bundled = spec is not None and spec.origin is not None and (Path(spec.origin).parent / "binaries" / "adb").is_file()
    if bundled or shutil.which("adb") is not None:
        return None
    return Missing(reason="no adb in the adbutils wheel or on the PATH", remedy="sudo apt-get install -y adb")


def _ndk() -> Missing | None:
    folder = os.environ.get("ANDROID_NDK_HOME")
    if not folder or not Path(folder).is_dir():
        return Missing(
            reason="ANDROID_NDK_HOME names no folder", remedy="install the Android NDK and set ANDROID_NDK_HOME"
        )
    return None


def _android_libraries() -> Missing | None:
    try:
        folders = {arch: library_folder(arch) for arch in ARCHS}
    except HostError as exc:
        return Missing(reason=f"{exc.what}: {exc.found}", remedy="correct it")
    if not any(folder is not None and folder.is_dir() for folder in folders.values()):
        return Missing(
            reason=f"none fetched, and {QNN_ANDROID_VARIABLE} names no folder",
            remedy="snapgate runtime fetch (docs/phone-libraries.md)",
        )
    return None


CAPABILITIES: Mapping[str, Capability] = MappingProxyType(
    {
        capability.name: capability
        for capability in (
            Capability(name="qnn", allows="prepare models; run the HTP emulator", check=_qnn),
            Capability(name="build", allows="build the native runner", check=_compiler),
            Capability(name="runner", allows="run models on phones of this host's ABI", check=_runner),
            Capability(name="adb", allows="talk to phones", check=_adb),
            Capability(name="virtual", allows="start virtual phones", check=_virtual, note=_reduced_isolation),
            Capability(
                name="android-tools",
                allows="give virtual phones Android's own shell and tools",
                check=_program("mksh", "toybox", package="mksh toybox"),
            ),
            Capability(
                name="arm64",
                allows="cross compile the runner and run its unit tests under qemu",
                check=_program(
                    "aarch64-linux-gnu-g++", "qemu-aarch64-static", package="g++-aarch64-linux-gnu qemu-user-static"
                ),
            ),
            Capability(
                name="valgrind", allows="check the runner's memory use", check=_program("valgrind", package="valgrind")
            ),
            Capability(
                name="browser",
                allows="look at the report in headless Chromium",
                check=_program("chromium", package="chromium"),
            ),
            Capability(name="axe", allows="check the pages' accessibility with axe-core", check=_axe),
            Capability(
                name="history",
                allows="keep runs in a database and draw trends",
                check=_modules("sqlalchemy", "psycopg", "ruptures", extra="history"),
            ),
            Capability(name="postgresql", allows="test the store on a PostgreSQL server", check=_postgresql),
            Capability(
                name="parquet", allows="export raw samples as Parquet", check=_modules("pyarrow", extra="parquet")
            ),
            Capability(
                name="sign",
                allows="sign a run's manifest and check signatures",
                check=_modules("cryptography", extra="sign"),
            ),
            Capability(
                name="maven", allows="fetch libraries for phones", check=_program("mvn", "java", package="maven")
            ),
            Capability(
                name="fuzz",
                allows="fuzz the runner's readers",
                check=_program("clang++", package="clang libclang-rt-dev"),
            ),
            Capability(name="ndk", allows="build the runner for a phone", check=_ndk),
            Capability(name="android-libraries", allows="run on a phone", check=_android_libraries),
        )
    }
)

HARDWARE: frozenset[str] = frozenset({"ndk", "android-libraries"})
"""Capabilities that no package manager can give: `make test-all` does not insist on them."""
