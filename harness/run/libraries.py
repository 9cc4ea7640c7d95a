"""Which files a phone needs besides the artifact, by its ABI: the runner and the QNN libraries.

``x86_64``: the libraries of the installed onnxruntime-qnn wheel, which is located and never imported. ``arm64-v8a``:
those of an Android QNN folder, either flat or laid out as the QAIRT SDK (``lib/aarch64-android``,
``lib/hexagon-v75/unsigned``). All missing files are named at once.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from harness.device.store import StoredFile
from harness.errors import HostError
from harness.record.artifact import sha256_of

BUILD_VARIABLE: Final = "SNAPGATE_BUILD"
QNN_ANDROID_VARIABLE: Final = "SNAPGATE_QNN_ANDROID"
RUNNER: Final = "snapgate-runner"

_PRESETS: Final[Mapping[str, str]] = {"x86_64": "host", "arm64-v8a": "android-arm64"}
_BUILD_COMMANDS: Final[Mapping[str, str]] = {"x86_64": "make runner", "arm64-v8a": "make runner-android"}
_DSP_FOLDERS: Final = (
    "/vendor/dsp/cdsp",
    "/vendor/lib/rfsa/adsp",
    "/system/lib/rfsa/adsp",
    "/vendor/dsp",
    "/dsp",
)
"""Where the DSP finds the phone's own libraries. /vendor/lib64 breaks sessions: it is never added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFiles:
    """``libraries`` go to ``libs/`` of the run folder, the runner beside it."""

    abi: str
    runner: StoredFile
    libraries: tuple[StoredFile, ...]

    @property
    def all(self) -> tuple[StoredFile, ...]:
        return (self.runner, *self.libraries)

    @property
    def libraries_sha256(self) -> dict[str, str]:
        return {file.name: file.sha256 for file in self.libraries}

    def environment(self, run_folder: PurePosixPath) -> dict[str, str]:
        """The DSP's list is separated by ``;``: with ``:`` it is taken for one folder of that name."""
        libs = f"{run_folder}/libs"
        if self.abi == "x86_64":
            return {"LD_LIBRARY_PATH": libs}
        return {"LD_LIBRARY_PATH": libs, "ADSP_LIBRARY_PATH": ";".join((libs, *_DSP_FOLDERS))}


def runtime_files(
    abi: str,
    htp_arch: int,
    *,
    build_dir: Path | None = None,
    qnn_android: Path | None = None,
) -> RuntimeFiles:
    """Everything for a phone of this ABI and HTP arch. ``HostError`` names each missing file and the next step."""
    if abi not in _PRESETS:
        raise HostError(
            f"there is no runner for ABI {abi or '(none)'}",
            found=abi or "ro.product.cpu.abi is empty",
            expected=" or ".join(_PRESETS),
            next_step="use a 64-bit phone",
        )
    runner = (build_dir or _build_dir()) / _PRESETS[abi] / RUNNER
    missing: list[str] = []
    steps: list[str] = []
    if not runner.is_file():
        missing.append(str(runner))
        steps.append(f"build the runner with `{_BUILD_COMMANDS[abi]}`")
    libraries = (
        _wheel_libraries(missing, steps) if abi == "x86_64" else _phone_libraries(htp_arch, qnn_android, missing, steps)
    )
    if missing:
        raise HostError(
            f"files for a phone of ABI {abi} and HTP v{htp_arch} are missing",
            found="not there: " + ", ".join(missing),
            next_step="; ".join(steps),
        )
    return RuntimeFiles(
        abi=abi,
        runner=_stored(runner, RUNNER, executable=True),
        libraries=tuple(_stored(path, f"libs/{path.name}", executable=True) for path in libraries),
    )


def _build_dir() -> Path:
    named = os.environ.get(BUILD_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[2] / "build"


def _wheel_libraries(missing: list[str], steps: list[str]) -> list[Path]:
    """libQnnHtp.so, libQnnSystem.so and the C++ runtime that the wheel brings for them."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or not spec.submodule_search_locations:
        missing.append("Python package onnxruntime_qnn")
        steps.append("pip install 'snapgate[prepare]' (x86-64 Linux)")
        return []
    folder = Path(next(iter(spec.submodule_search_locations)))
    wanted = [folder / "libQnnHtp.so", folder / "libQnnSystem.so"]
    support = sorted((folder.parent / "onnxruntime_qnn.libs").glob("*.so*"))
    absent = [str(path) for path in wanted if not path.is_file()]
    if not support:
        absent.append(str(folder.parent / "onnxruntime_qnn.libs" / "*.so"))
    if absent:
        missing.extend(absent)
        steps.append("reinstall onnxruntime-qnn")
    return [*wanted, *support]


def _phone_libraries(htp_arch: int, named: Path | None, missing: list[str], steps: list[str]) -> list[Path]:
    """The CPU side, and stub and skeleton of the HTP arch. A context binary needs no libQnnHtpPrepare.so."""
    if named is None and (value := os.environ.get(QNN_ANDROID_VARIABLE)):
        named = Path(value)
    version = f"V{htp_arch}"
    places = {
        "libQnnHtp.so": "lib/aarch64-android",
        "libQnnSystem.so": "lib/aarch64-android",
        f"libQnnHtp{version}Stub.so": "lib/aarch64-android",
        f"libQnnHtp{version}Skel.so": f"lib/hexagon-v{htp_arch}/unsigned",
    }
    if named is None:
        missing.extend(places)
        steps.append(f"set {QNN_ANDROID_VARIABLE} to a folder with these files, or to the QAIRT SDK")
        return []
    found = []
    for name, below in places.items():
        candidates = (named / name, named / below / name)
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            missing.append(f"{named}/{name} (or {below}/{name})")
        else:
            found.append(path)
    if len(found) < len(places):
        steps.append(f"copy them from one QAIRT SDK into {named}; all must be of the same version")
    return found


def _stored(path: Path, place: str, *, executable: bool) -> StoredFile:
    status = path.stat()
    digest = _hash_once(path, status.st_mtime_ns, status.st_size)
    return StoredFile.of(path, place, sha256=digest, executable=executable)


@functools.lru_cache(maxsize=64)
def _hash_once(path: Path, _mtime_ns: int, _size: int) -> str:
    return sha256_of(path)
