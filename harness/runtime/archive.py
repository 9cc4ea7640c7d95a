"""Libraries out of an ``.aar``, which is a zip that somebody else made.

One hostile entry refuses the whole archive, wanted or not: a path that leaves the archive, a link, an encrypted or
repeated entry, or more bytes than the limits allow. Sizes are counted while they are unpacked, not believed.
"""

from __future__ import annotations

import errno
import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from harness.errors import HostError

ABI_FOLDER: Final = "jni/arm64-v8a"
ENTRIES_LIMIT: Final = 2000
FILE_LIMIT: Final = 512 * 1024 * 1024
TOTAL_LIMIT: Final = 2 * 1024 * 1024 * 1024
_CHUNK: Final = 1024 * 1024


def extract_libraries(
    archive: Path, names: Iterable[str], folder: Path, *, file_limit: int = FILE_LIMIT, total_limit: int = TOTAL_LIMIT
) -> dict[str, Path]:
    """Unpack ``jni/arm64-v8a/<name>`` of each name into ``folder``. ``HostError``: damaged, hostile, not whole."""
    wanted = tuple(names)
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = _entries(archive, opened)
            absent = [name for name in wanted if f"{ABI_FOLDER}/{name}" not in entries]
            if absent:
                raise HostError(
                    f"{archive.name} lacks libraries",
                    found=f"no {', no '.join(absent)} in {ABI_FOLDER}",
                    expected="libraries for every HTP arch asked for",
                    next_step="ask for fewer archs with --soc, or for another --version",
                )
            unpacked: dict[str, Path] = {}
            left = total_limit
            for name in wanted:
                target = folder / name
                left -= _unpack(archive, opened, entries[f"{ABI_FOLDER}/{name}"], target, min(file_limit, left))
                unpacked[name] = target
            return unpacked
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as exc:
        if isinstance(exc, OSError) and exc.errno != errno.EINVAL:
            raise  # of this host's disk; a damaged archive asks to read before its own beginning
        raise HostError(
            f"{archive.name} is damaged", found=str(exc), expected="a zip archive", next_step="fetch it again"
        ) from exc


def _entries(archive: Path, opened: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    listed = opened.infolist()
    if len(listed) > ENTRIES_LIMIT:
        raise _hostile(archive, f"{len(listed)} entries", f"at most {ENTRIES_LIMIT}")
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in listed:
        name = entry.orig_filename
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name or not name:
            raise _hostile(archive, f"an entry named {name!r}", "paths inside the archive")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _hostile(archive, f"{name!r}, which is a link or a device", "files and folders")
        if entry.flag_bits & 0x1:
            raise _hostile(archive, f"{name!r}, which is encrypted", "plain entries")
        if str(path) in entries:
            raise _hostile(archive, f"{name!r} twice", "each entry once")
        entries[str(path)] = entry
    return entries


def _unpack(archive: Path, opened: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, limit: int) -> int:
    """Returns the bytes written."""
    written = 0
    with opened.open(entry) as source, target.open("xb") as sink:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > limit:
                raise _hostile(archive, f"{entry.filename!r} unpacks to more than {limit} bytes", "less")
            sink.write(chunk)
    return written


def _hostile(archive: Path, found: str, expected: str) -> HostError:
    return HostError(
        f"{archive.name} is not taken",
        found=found,
        expected=expected,
        next_step="fetch it again, from a repository that you trust",
    )
