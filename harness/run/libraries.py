"""Which files a phone needs besides the artifact, by its ABI: the runner and the QNN libraries.

``x86_64``: the libraries of the installed onnxruntime-qnn wheel, which is located and never imported. ``arm64-v8a``:
those that ``harness.runtime`` finds: a folder or SDK of the user's, or what ``snapgate runtime fetch`` brought. All
missing files are named at once; libraries of different builds, or for another machine, are refused.
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
from harness.runtime.check import check_machines, common_build
from harness.runtime.fetch import refuse_changed
from harness.runtime.locate import library_folder
from harness.runtime.required import QNN_ANDROID_VARIABLE, find_file, required_files

BUILD_VARIABLE: Final = "SNAPGATE_BUILD"
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
    build_id: str | None = None
    """The one build that the QNN libraries are of; None: they name none."""

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
    compiled_by: str | None = None,
) -> RuntimeFiles:
    """Everything for a phone of this ABI and HTP arch. ``HostError`` names each missing file and the next step.

    ``compiled_by``: the build id of the artifact's compiler, which helps to choose among several sets of libraries.
    """
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
    if abi == "x86_64":
        libraries = _wheel_libraries(missing, steps)
    else:
        folder = qnn_android or library_folder(htp_arch, compiled_by=compiled_by)
        libraries = _phone_libraries(htp_arch, folder, missing, steps)
    if missing:
        raise HostError(
            f"files for a phone of ABI {abi} and HTP v{htp_arch} are missing",
            found="not there: " + ", ".join(missing),
            next_step="; ".join(steps),
        )
    qnn = {path.name: path for path in libraries if path.name.startswith("libQnn")}
    if abi != "x86_64":
        check_machines(qnn, required_files(htp_arch))
    stored = tuple(_stored(path, f"libs/{path.name}", executable=True) for path in libraries)
    if abi != "x86_64":
        refuse_changed(libraries[0].parent, {file.name: file.sha256 for file in stored})
    return RuntimeFiles(
        abi=abi,
        runner=_stored(runner, RUNNER, executable=True),
        libraries=stored,
        build_id=common_build(qnn),
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


def _phone_libraries(htp_arch: int, folder: Path | None, missing: list[str], steps: list[str]) -> list[Path]:
    """The CPU side, and stub and skeleton of the HTP arch."""
    wanted = required_files(htp_arch)
    if folder is None:
        missing.extend(file.name for file in wanted)
        steps.append(
            f"`snapgate runtime fetch`, or set {QNN_ANDROID_VARIABLE} to a folder with these files or to the QAIRT SDK"
        )
        return []
    found = [path for file in wanted if (path := find_file(folder, file)) is not None]
    if len(found) < len(wanted):
        names = {path.name for path in found}
        missing.extend(
            f"{folder}/{file.name} (or {file.sdk_folder}/{file.name})" for file in wanted if file.name not in names
        )
        steps.append(f"`snapgate runtime fetch`, or copy them from one QAIRT SDK into {folder}")
    return found


def _stored(path: Path, place: str, *, executable: bool) -> StoredFile:
    status = path.stat()
    digest = _hash_once(path, status.st_mtime_ns, status.st_size)
    return StoredFile.of(path, place, sha256=digest, executable=executable)


@functools.lru_cache(maxsize=64)
def _hash_once(path: Path, _mtime_ns: int, _size: int) -> str:
    return sha256_of(path)
