"""Do these libraries belong together, and will they load what a compiler wrote?

The second is decided by the HTP API version that the compiler leaves in the context binary: a library refuses
(``CONTEXT_INVALID_ARGUMENT``, 5000) one with a newer minor, whatever its other versions; an older one it loads. This
was tried on the HTP emulator with all pairs of five builds, 2.47 to 2.51 (docs/phone-libraries.md). The minor of the
HTP API is that of the build's release in every build seen.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import ArtifactError, HostError
from harness.runtime.elf import ARM64, HEXAGON, LibraryIdentity, identify, machine_name
from harness.runtime.required import RequiredFile


def release_of(build_id: str) -> tuple[int, int, int] | None:
    """``(2, 50, 40)`` of ``v2.50.40.260831140417`` or ``2.50.40``."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:\.|$)", build_id)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def minor_of(build_id: str) -> tuple[int, int] | None:
    """``(2, 50)``: what decides whether a library loads a context binary."""
    release = release_of(build_id)
    return None if release is None else release[:2]


def common_build(files: Mapping[str, Path]) -> str | None:
    """The one build id of libraries given by name. None: none of them names one.

    ``HostError`` names the libraries that speak against it.
    """
    identities = {name: _identify_once(path) for name, path in files.items()}
    named = {name: identity for name, identity in identities.items() if identity.build_ids}
    if not named:
        return None
    first = "libQnnHtp.so" if "libQnnHtp.so" in named else min(named)
    own = named[first].build_ids
    if len(own) > 1:
        raise HostError(
            f"{files[first]} names two builds",
            found=", ".join(sorted(own)),
            expected="one",
            next_step="fetch the libraries again with `snapgate runtime fetch`",
        )
    (build_id,) = own
    others = [f"{name}: {said}" for name, identity in identities.items() if (said := identity.contradicts(build_id))]
    if others:
        raise HostError(
            "the QNN libraries are not of one build",
            found="; ".join(others),
            expected=f"{build_id}, as {first} says",
            next_step="take all from one archive or SDK: `snapgate runtime fetch`",
        )
    return build_id


def check_machines(files: Mapping[str, Path], wanted: Sequence[RequiredFile]) -> None:
    """arm64 for what the runner loads, Hexagon for what the DSP loads. ``HostError`` otherwise."""
    for file in wanted:
        machine, expected = _identify_once(files[file.name]).machine, HEXAGON if file.dsp else ARM64
        if machine != expected:
            raise HostError(
                f"{files[file.name]} is for another machine",
                found=machine_name(machine),
                expected=machine_name(expected),
                next_step="take the Android libraries: `snapgate runtime fetch`",
            )


def silent_libraries(files: Mapping[str, Path]) -> tuple[str, ...]:
    """Those that say nothing of their build."""
    return tuple(name for name, path in files.items() if _identify_once(path).says_nothing)


def will_load(*, compiler: str, runtime: str) -> bool | None:
    """Whether libraries of build ``runtime`` load what build ``compiler`` wrote. None: not readable as versions."""
    written, reading = minor_of(compiler), minor_of(runtime)
    return None if written is None or reading is None else written <= reading


def refuse_newer_artifact(*, artifact: str, compiler: str | None, runtime: str | None) -> None:
    """``ArtifactError`` when the libraries are older than the artifact's compiler: they would refuse it with 5000."""
    if compiler is None or runtime is None or will_load(compiler=compiler, runtime=runtime) is not False:
        return
    raise ArtifactError(
        f"artifact {artifact} was compiled by a newer QNN than the libraries for the phone",
        found=f"compiler {compiler}, libraries {runtime}",
        expected="libraries of the same or a later minor version",
        next_step="`snapgate runtime fetch` newer libraries, or prepare again with an older onnxruntime-qnn"
        " (docs/phone-libraries.md)",
    )


def _identify_once(path: Path) -> LibraryIdentity:
    status = path.stat()
    return _identify(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=128)
def _identify(path: Path, _mtime_ns: int, _size: int) -> LibraryIdentity:
    return identify(path)
