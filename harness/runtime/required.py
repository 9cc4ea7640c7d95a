"""Which library files a phone needs for one HTP arch, and where an SDK or a folder keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import HostError
from harness.soc import SOCS

ANDROID_FOLDER: Final = "lib/aarch64-android"
QNN_ANDROID_VARIABLE: Final = "SNAPGATE_QNN_ANDROID"
SDK_VARIABLES: Final = ("QNN_SDK_ROOT", "QAIRT_SDK_ROOT")
ARCHS: Final = tuple(sorted({soc.htp_arch for soc in SOCS}))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredFile:
    name: str
    sdk_folder: str
    """Below the SDK's root"""
    dsp: bool
    """True: a Hexagon program that the DSP loads; False: an arm64 library that the runner loads."""
    purpose: str


def required_files(htp_arch: int) -> tuple[RequiredFile, ...]:
    """Those that run a context binary: libQnnHtpPrepare.so is for compiling on the phone, which SnapGate never does."""
    arch = f"V{htp_arch}"
    return (
        RequiredFile(name="libQnnHtp.so", sdk_folder=ANDROID_FOLDER, dsp=False, purpose="HTP backend"),
        RequiredFile(name="libQnnSystem.so", sdk_folder=ANDROID_FOLDER, dsp=False, purpose="reads context binaries"),
        RequiredFile(
            name=f"libQnnHtp{arch}Stub.so", sdk_folder=ANDROID_FOLDER, dsp=False, purpose="the backend's way to the DSP"
        ),
        RequiredFile(
            name=f"libQnnHtp{arch}Skel.so",
            sdk_folder=f"lib/hexagon-v{htp_arch}/unsigned",
            dsp=True,
            purpose="the program on the DSP",
        ),
    )


def all_files(archs: Iterable[int] = ARCHS) -> tuple[RequiredFile, ...]:
    """For several archs, each file once."""
    return tuple({file.name: file for arch in archs for file in required_files(arch)}.values())


def find_file(root: Path, file: RequiredFile) -> Path | None:
    """In a flat folder, or in the layout of the SDK."""
    return next((path for path in (root / file.name, root / file.sdk_folder / file.name) if path.is_file()), None)


def cache_root() -> Path:
    """Where fetched libraries are kept, one folder a version."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "snapgate" / "qnn-android"


def sdk_root() -> Path | None:
    """The SDK that the environment names. ``HostError``: it names no folder."""
    for variable in SDK_VARIABLES:
        value = os.environ.get(variable)
        if value:
            if not Path(value).is_dir():
                raise HostError(
                    f"{variable} names no folder",
                    found=value,
                    expected="the root of a QAIRT SDK",
                    next_step="correct it",
                )
            return Path(value)
    return None
