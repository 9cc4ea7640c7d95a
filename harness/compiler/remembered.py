"""Hashes of large files that have not changed since they were hashed: a second identical preparation reads none again.

A hash is trusted while the file's device, inode, size, mtime and ctime are what they were. That is not enough for a
file written in the moment before it was hashed: clocks of file systems are coarse, and a later change may leave the
same times. So nothing is remembered of a file that was changed in the last ``SETTLED_S`` before its hashing began.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.record.artifact import sha256_of

SETTLED_S: Final = 2.0
"""The coarsest file times in use (FAT)."""
SMALLEST_BYTES: Final = 16 << 20
"""Smaller files are hashed each time: it takes a few hundredths of a second."""
MAX_FILES: Final = 1000
_FORMAT: Final = 1


def cache_file() -> Path:
    """``$XDG_CACHE_HOME/snapgate/hashes.json``, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "snapgate" / "hashes.json"


@dataclass(slots=True, kw_only=True)
class RememberedHashes:
    """The memory in ``file``. It is only a shortcut: whatever is wrong with it costs a hashing, never an error."""

    file: Path = field(default_factory=cache_file)
    smallest_bytes: int = SMALLEST_BYTES
    now: Callable[[], float] = time.time
    _known: dict[str, list[Any]] | None = None
    """Resolved path to the file's identity and the sha256."""

    def sha256_of(self, path: Path) -> str:
        """As ``harness.record.artifact.sha256_of``."""
        before = path.stat()
        if before.st_size < self.smallest_bytes:
            return sha256_of(path)
        name = str(path.resolve())
        kept = self._load().get(name)
        if kept is not None and kept[:-1] == _identity(before):
            return str(kept[-1])
        began = self.now()
        digest = sha256_of(path)
        if self._settled(before, began) and _identity(path.stat()) == _identity(before):
            self._remember(name, [*_identity(before), digest])
        return digest

    def settle(self, paths: Iterable[Path]) -> None:
        """Hash files that were just written, once they are old enough to be remembered."""
        large = [path for path in paths if path.stat().st_size >= self.smallest_bytes]
        if large:
            newest = max(_changed(path.stat()) for path in large)
            time.sleep(min(max(newest + SETTLED_S - self.now(), 0.0), SETTLED_S) + 0.05)
        for path in large:
            self.sha256_of(path)

    def _settled(self, status: os.stat_result, began: float) -> bool:
        return _changed(status) + SETTLED_S <= began

    def _load(self) -> dict[str, list[Any]]:
        if self._known is None:
            self._known = _read(self.file)
        return self._known

    def _remember(self, name: str, entry: list[Any]) -> None:
        known = {path: kept for path, kept in _read(self.file).items() if path != name and Path(path).exists()}
        known[name] = entry
        self._known = dict(list(known.items())[-MAX_FILES:])
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.file.with_name(f".{self.file.name}.{os.getpid()}.tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump({"format": _FORMAT, "files": self._known}, stream, indent=0)
            temporary.replace(self.file)


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _changed(status: os.stat_result) -> float:
    return max(status.st_mtime, status.st_ctime)


def _read(file: Path) -> dict[str, list[Any]]:
    """Nothing, where the file is absent, damaged, or such that another user could have written it."""
    with suppress(OSError, ValueError, RecursionError):
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return {}
        data = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("format") == _FORMAT and isinstance(data.get("files"), dict):
            return {name: kept for name, kept in data["files"].items() if _is_entry(kept)}
    return {}


def _is_entry(kept: object) -> bool:
    if not isinstance(kept, list) or len(kept) != 6:
        return False
    *numbers, digest = kept
    return all(type(number) is int for number in numbers) and isinstance(digest, str) and len(digest) == 64
