"""What a library file says of itself: its machine, and the QNN build it is of. Nothing is loaded or executed."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import HostError

ARM64: Final = 183
HEXAGON: Final = 164
X86_64: Final = 62
_MACHINES: Final = {ARM64: "arm64", HEXAGON: "Hexagon", X86_64: "x86-64", 40: "32-bit Arm", 3: "32-bit x86"}

_RELEASE: Final = re.compile(rb"(\d{1,2}\.\d{1,3}\.\d{1,3})(?![0-9.])")
_BUILD_ID: Final = re.compile(rb"(v\d\.\d{1,3}\.\d{1,3}\.\d{12})(?![0-9])")
_STAMP: Final = re.compile(rb"\0(2\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])[0-5]\d[0-5]\d)(?=\0)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryIdentity:
    """``build_ids``: ``v2.50.40.260831140417``. ``releases``: ``2.50.40``. ``stamps``: lone 12-digit build times.

    Stamps are looked for only where there is neither id nor release (libQnnSystem.so).
    """

    machine: int
    build_ids: frozenset[str]
    releases: frozenset[str]
    stamps: frozenset[str]

    def contradicts(self, build_id: str) -> str | None:
        """What in this library speaks against its being of that build. A library may say nothing of its build."""
        others = sorted(self.build_ids - {build_id})
        if others:
            return others[0]
        release, _, stamp = build_id.removeprefix("v").rpartition(".")
        others = sorted(self.releases - {release})
        if others:
            return f"release {others[0]}"
        if self.stamps and stamp not in self.stamps:
            return f"build time {min(self.stamps)}"
        return None

    @property
    def says_nothing(self) -> bool:
        return not (self.build_ids or self.releases or self.stamps)


def machine_name(machine: int) -> str:
    return _MACHINES.get(machine, f"machine {machine}")


def identify(path: Path) -> LibraryIdentity:
    """Reads the whole file. ``HostError``: it is not a shared library."""
    content = path.read_bytes()
    if content[:4] != b"\x7fELF" or len(content) < 52 or content[5] != 1:
        raise HostError(
            f"{path} is not a library",
            found=content[:4].hex() or "an empty file",
            expected="a little-endian ELF file",
            next_step="fetch or copy it again",
        )
    (machine,) = struct.unpack_from("<H", content, 18)
    build_ids = frozenset(
        said
        for major in (b"v2.", b"v3.")
        for at in _places(content, major)
        if not content[at - 1 : at].isalnum() and (said := _match(_BUILD_ID, content, at))
    )
    label = b"AISW_VERSION: "
    releases = frozenset(said for at in _places(content, label) if (said := _match(_RELEASE, content, at + len(label))))
    stamps = () if build_ids or releases else _STAMP.findall(content)
    return LibraryIdentity(
        machine=machine, build_ids=build_ids, releases=releases, stamps=frozenset(text.decode() for text in stamps)
    )


def _places(content: bytes, word: bytes) -> Iterator[int]:
    """Libraries have 100 MB: this passes over them ten times faster than a regular expression."""
    at = content.find(word)
    while at >= 0:
        yield at
        at = content.find(word, at + 1)


def _match(pattern: re.Pattern[bytes], content: bytes, at: int) -> str | None:
    match = pattern.match(content, at)
    return None if match is None else match[1].decode()
