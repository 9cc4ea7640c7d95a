"""Phone libraries into the cache of this host: from a Maven repository, or from an SDK.

A version's folder holds the libraries, flat, and ``libraries.json`` with their source and sha256. It appears whole or
not at all.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import HostError, UserError
from harness.record.artifact import sha256_of
from harness.runtime.archive import extract_libraries
from harness.runtime.check import check_machines, common_build, minor_of, release_of
from harness.runtime.maven import download
from harness.runtime.pinned import pinned
from harness.runtime.required import RequiredFile, all_files, cache_root, find_file

LIST: Final = "libraries.json"
LIST_SCHEMA: Final = "snapgate.phone-libraries/1"
_SKEL: Final = re.compile(r"libQnnHtpV(\d+)Skel\.so")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySet:
    """Phone libraries of this host. ``build_id`` is None where none of them names one."""

    folder: Path
    version: str
    build_id: str | None
    source: str
    sha256: Mapping[str, str]


def fetch_from_maven(
    archs: Sequence[int],
    *,
    version: str | None,
    sha256: str | None,
    repository: str | None,
    root: Path | None = None,
    progress: Callable[[str], None],
) -> LibrarySet:
    """``sha256`` of the ``.aar`` must be given for a version that is not pinned.

    Raises ``UserError``, ``HostError``.
    """
    known = pinned()
    version = version or known.default
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise UserError(
            "--version is not a version", found=repr(version), expected="like 2.50.0", next_step="correct it"
        )
    entry = known.runtime(version)
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UserError(
            "--sha256 is not a sha256", found=repr(sha256), expected="64 hex digits", next_step="correct it"
        )
    if entry is not None and sha256 is not None and sha256.lower() != entry.sha256:
        raise UserError(
            f"--sha256 is not that of {known.artifact} {version}",
            found=sha256.lower(),
            expected=entry.sha256,
            next_step="leave --sha256 out for a pinned version",
        )
    expected = (sha256.lower() if sha256 else None) or (entry.sha256 if entry else None)
    if expected is None:
        raise UserError(
            f"{known.artifact} {version} is not pinned",
            found="no sha256 to check it against",
            expected="one of " + ", ".join(runtime.version for runtime in known.runtimes) + ", or --sha256",
            next_step="give the sha256 of its .aar with --sha256, from a source that you trust",
        )
    root = root or cache_root()
    with _Staging(root, version) as staging:
        progress(f"fetching {known.group}:{known.artifact}:{version} with the Maven client")
        archive = download(known.group, known.artifact, version, "aar", staging.scratch, repository)
        found = sha256_of(archive)
        if found != expected:
            raise HostError(
                f"{archive.name} is not the one that is pinned",
                found=f"sha256 {found}, {archive.stat().st_size} bytes",
                expected=f"sha256 {expected}",
                next_step="fetch from a repository that you trust, and delete the client's own copy if it has one"
                f" (~/.m2/repository/{known.group.replace('.', '/')}/{known.artifact}/{version}); nothing was kept",
            )
        progress(f"unpacking {archive.name}, sha256 as pinned")
        wanted = all_files(_with_those_there(archs, root, version))
        paths = extract_libraries(archive, [file.name for file in wanted], staging.libraries)
        return staging.finish(wanted, paths, source=f"{known.group}:{known.artifact}:{version}, sha256 {expected}")


def fetch_from_sdk(
    archs: Sequence[int], sdk: Path, *, root: Path | None = None, progress: Callable[[str], None]
) -> LibrarySet:
    """Copies of an SDK's libraries (or of a flat folder's), under the version that they name."""
    wanted = all_files(archs)
    found = {file.name: path for file in wanted if (path := find_file(sdk, file)) is not None}
    absent = [f"{file.sdk_folder}/{file.name}" for file in wanted if file.name not in found]
    if absent:
        raise HostError(
            f"{sdk} lacks libraries for Android",
            found=f"no {', no '.join(absent)}",
            expected="a QAIRT SDK, or a flat folder with these files",
            next_step="name another with --sdk, or ask for fewer archs with --soc",
        )
    build_id = common_build(found)
    release = release_of(build_id) if build_id else None
    if release is None:
        raise HostError(
            f"the libraries in {sdk} name no build",
            found=f"no build id in {', '.join(sorted(found))}",
            expected="a string like v2.50.0.260828221209 in libQnnHtp.so",
            next_step="use a release of the QAIRT SDK",
        )
    with _Staging(root or cache_root(), ".".join(map(str, release))) as staging:
        progress(f"copying {len(found)} libraries of {build_id} from {sdk}")
        paths = {}
        for name, path in found.items():
            paths[name] = staging.libraries / name
            shutil.copyfile(path, paths[name])
        return staging.finish(wanted, paths, source=f"SDK, {build_id}")


def installed(root: Path | None = None) -> tuple[LibrarySet, ...]:
    """Fetched sets, newest version first. A folder without a readable list is passed over."""
    found = []
    for path in sorted((root or cache_root()).glob("*/" + LIST)):
        try:
            document: Any = json.loads(path.read_text(encoding="utf-8"))
            if document["schema"] != LIST_SCHEMA:
                continue
            entry = LibrarySet(
                folder=path.parent,
                version=str(document["version"]),
                build_id=None if document["build_id"] is None else str(document["build_id"]),
                source=str(document["source"]),
                sha256={str(name): str(digest) for name, digest in document["sha256"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        found.append(entry)
    return tuple(sorted(found, key=lambda entry: release_of(entry.version) or (0, 0, 0), reverse=True))


def refuse_changed(folder: Path, digests: Mapping[str, str]) -> None:
    """``HostError`` when libraries of a fetched set, given with their sha256, are no longer what was fetched."""
    entry = next((entry for entry in installed(folder.parent) if entry.folder == folder), None)
    for name, digest in digests.items():
        if entry is not None and entry.sha256.get(name, digest) != digest:
            raise HostError(
                f"{folder / name} has changed since it was fetched",
                found=f"sha256 {digest}",
                expected=f"sha256 {entry.sha256[name]}",
                next_step="fetch it again: `snapgate runtime fetch`",
            )


def _with_those_there(archs: Sequence[int], root: Path, version: str) -> tuple[int, ...]:
    """A later fetch of the same version adds to it."""
    there = next((entry for entry in installed(root) if entry.version == version), None)
    names = there.sha256 if there is not None else ()
    return tuple(sorted({*archs, *(int(match[1]) for name in names if (match := _SKEL.fullmatch(name)))}))


class _Staging:
    """A folder beside the target; renamed when whole, removed otherwise."""

    def __init__(self, root: Path, version: str) -> None:
        self._target = root / version
        self._version = version

    def __enter__(self) -> _Staging:
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=".fetch-", dir=self._target.parent))
        except OSError as exc:
            raise HostError(
                f"{self._target.parent} cannot be written",
                found=exc.strerror or str(exc),
                next_step="set XDG_CACHE_HOME to a folder that you may write to",
            ) from exc
        self.scratch = self._folder / "archive"
        self.libraries = self._folder / "libraries"
        self.scratch.mkdir()
        self.libraries.mkdir()
        return self

    def finish(self, wanted: Sequence[RequiredFile], paths: Mapping[str, Path], *, source: str) -> LibrarySet:
        check_machines(paths, wanted)
        build_id = common_build(paths)
        if build_id is not None and minor_of(build_id) != minor_of(self._version):
            raise HostError(
                f"libraries fetched as {self._version} are of another release",
                found=build_id,
                expected=self._version,
                next_step="name the version that they are of",
            )
        digests = {name: sha256_of(path) for name, path in sorted(paths.items())}
        document = {
            "schema": LIST_SCHEMA,
            "version": self._version,
            "build_id": build_id,
            "source": source,
            "sha256": digests,
        }
        (self.libraries / LIST).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if self._target.exists():
            shutil.rmtree(self._target)
        self.libraries.rename(self._target)
        return LibrarySet(folder=self._target, version=self._version, build_id=build_id, source=source, sha256=digests)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
