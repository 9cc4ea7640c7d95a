"""Phone libraries for tests, made here: an ELF header and the strings that QNN's carry, and no vendor's byte."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from harness.runtime.required import all_files


class MadeLibraries:
    build = "v2.50.0.260828221209"
    older = "v2.49.40.260810104044"

    @staticmethod
    def library(build: str, *, machine: int = 183, kind: str = "id") -> bytes:
        """``kind``: how it tells its build, as the real ones do: id and release, the release alone, or a stamp."""
        header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine) + bytes(44)
        release, _, stamp = build.removeprefix("v").rpartition(".")
        said = {
            "id": f"\0{build}\0AISW_VERSION: {release}\0",
            "release": f"\0AISW_VERSION: {release}\0",
            "stamp": f"\0{stamp}\0",
        }[kind]
        return header + said.encode()

    @classmethod
    def named(cls, name: str, build: str | None = None) -> bytes:
        """libQnnSystem.so tells only a stamp; a skeleton is for the DSP."""
        kind = "stamp" if name == "libQnnSystem.so" else "id"
        return cls.library(build or cls.build, machine=164 if name.endswith("Skel.so") else 183, kind=kind)

    @classmethod
    def folder(cls, folder: Path, places: list[str], build: str | None = None) -> Path:
        for place in places:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(cls.named(Path(place).name, build))
        return folder

    @classmethod
    def archive(cls, path: Path, archs: tuple[int, ...], *, builds: dict[str, str] | None = None) -> Path:
        """An ``.aar`` laid out as the published one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            out.writestr("AndroidManifest.xml", "<manifest package='test'/>")
            for file in all_files(archs):
                out.writestr(f"jni/arm64-v8a/{file.name}", cls.named(file.name, (builds or {}).get(file.name)))
        return path


@pytest.fixture(scope="session")
def made() -> type[MadeLibraries]:
    return MadeLibraries


@pytest.fixture
def no_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that has no phone libraries: the cache is an empty folder, which is returned."""
    for variable in ("SNAPGATE_QNN_ANDROID", "QNN_SDK_ROOT", "QAIRT_SDK_ROOT", "SNAPGATE_MAVEN_REPOSITORY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "snapgate" / "qnn-android"
