"""Files on the phone, by content: ``/data/local/tmp/snapgate/store/<sha256>/<name>``.

A file is pushed once, to a temporary name, hashed on the phone and renamed; so a file under its final name is whole.
How it gets there is in ``upload.py``. A run gets a folder of links to the store. Whether a whole set is there already
costs one round trip (name and size; the runner itself hashes the contents it depends on). Everything else below
``snapgate/`` belongs to a run, and a lease that begins finds nobody else at work: what is left there is of a run that
died, and is removed; only what had arrived of a file is kept for a day, so that its push can go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.conditions import parse_df_available
from harness.device.faults import command_fault
from harness.device.shell import ShellResult
from harness.device.upload import BLOCKS_FROM_BYTES, FilePush, Upload
from harness.errors import HostError, InfraError, PhoneStorageError
from harness.record.artifact import sha256_of

ROOT: Final = PurePosixPath("/data/local/tmp/snapgate")
SPARE_BYTES: Final = 64 * 1024 * 1024
"""Left free on the phone beyond the files to push: room for records and for Android itself."""

_RESIDENT: Final = re.compile(r"(\d{1,12}) (\d{1,15}) ([0-9a-f]{64})/([^/]+)")
_CHECK: Final = """
cd "$1" 2>/dev/null || exit 0
set --
while read -r f; do set -- "$@" "$f"; done
stat -c '%s %n' "$@" 2>/dev/null
touch -c "$@" 2>/dev/null
exit 0
"""
_LIST: Final = """
df -k "$1"
cd "$1/store" 2>/dev/null || exit 0
stat -c '%Y %s %n' */* */.*.part */.*.blocks 2>/dev/null
exit 0
"""
PREPARE: Final = """
mkdir -p "$1/store" "$1/runs" || exit 1
printf '#!/system/bin/sh\\nexit 0\\n' > "$1/.probe" && chmod 755 "$1/.probe" || exit 1
"$1/.probe" 2>&1; status=$?
rm -f "$1/.probe"
[ $status -eq 126 ] && exit 126
exit 0
"""
_CLEAN: Final = """
cd "$1" 2>/dev/null || exit 0
for p in runs/*/pid; do
  [ -f "$p" ] || continue
  read -r pid < "$p"
  case "$pid" in ''|*[!0-9]*) continue;; esac
  case "$(tr '\\0' ' ' < /proc/$pid/cmdline 2>/dev/null)" in *snapgate-runner*) kill -9 $pid 2>/dev/null;; esac
done
rm -rf runs store/*/.*.patch store/*/.*.new
find store -type f -name '.*' ! -name '*.blocks' -mtime +1 -exec rm -f {} \\;
for d in store/*; do [ -d "$d" ] && rmdir "$d" 2>/dev/null; done
mkdir -p runs
"""
_LINK: Final = """
mkdir -p "$1/libs" || exit 1
while read -r sha name place; do ln -s "$2/$sha/$name" "$1/$place" || exit 1; done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of this host that the phone needs. ``place``: its path below the run folder (``libs/libQnnHtp.so``)."""

    local: Path
    sha256: str
    n_bytes: int
    place: PurePosixPath
    executable: bool = False

    @property
    def name(self) -> str:
        return self.place.name

    @classmethod
    def of(cls, local: Path, place: str, *, sha256: str | None = None, executable: bool = False) -> StoredFile:
        """Raises ``HostError`` when the file is not there."""
        if not local.is_file():
            raise HostError(f"{local} does not exist", expected="a file", next_step="build or install it first")
        if not re.fullmatch(r"[A-Za-z0-9._+/-]+", place):
            raise ValueError(f"not a place in a run folder: {place!r}")
        return cls(
            local=local,
            sha256=sha256 if sha256 is not None else sha256_of(local),
            n_bytes=local.stat().st_size,
            place=PurePosixPath(place),
            executable=executable,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """``bytes_pushed``: what was sent, which is less than the files where they were resumed or changed."""

    n_pushed: int
    bytes_pushed: int
    seconds: float
    files: tuple[FilePush, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """One file of the store as it lies on the phone. A ``name`` with a dot in front is no file of a run yet."""

    last_used: int
    n_bytes: int
    sha256: str
    name: str


def parse_residents(text: str) -> tuple[Resident, ...]:
    """``mtime size sha/name`` lines; anything else is passed over."""
    found = []
    for line in text.splitlines():
        match = _RESIDENT.fullmatch(line.strip())
        if match is not None:
            found.append(Resident(last_used=int(match[1]), n_bytes=int(match[2]), sha256=match[3], name=match[4]))
    return tuple(found)


def choose_evictions(
    residents: Iterable[Resident], *, needed_bytes: int, free_bytes: int, keep: frozenset[str]
) -> tuple[Resident, ...] | None:
    """Which files must go, longest unused first, so that ``needed_bytes`` fit. None: not even all of them suffice.

    A file whose sha256 is in ``keep`` never goes.
    """
    missing = needed_bytes - free_bytes
    chosen = []
    for resident in sorted(residents, key=lambda r: r.last_used):
        if missing <= 0:
            break
        if resident.sha256 not in keep:
            chosen.append(resident)
            missing -= resident.n_bytes
    return tuple(chosen) if missing <= 0 else None


def choose_base(residents: Iterable[Resident], file: StoredFile) -> Resident | None:
    """The version of ``file`` used last, if its block hashes are there and it is of about the same size."""
    residents = tuple(residents)
    hashed = {(r.sha256, r.name) for r in residents if r.name.endswith(".blocks")}
    bases = [
        r
        for r in residents
        if r.name == file.name
        and (r.sha256, f".{r.name}.blocks") in hashed
        and file.n_bytes <= 2 * r.n_bytes <= 4 * file.n_bytes
        and file.n_bytes >= BLOCKS_FROM_BYTES
    ]
    return max(bases, key=lambda r: r.last_used, default=None)


_GONE: Final = 'while read -r place; do [ -e "$1/$place" ] || echo "$place"; done'


class PhoneStore:
    """The store of one leased phone. One instance lives as long as the lease."""

    def __init__(self, device: AdbDevice, root: PurePosixPath = ROOT) -> None:
        self._device = device
        self._root = root
        self._store = root / "store"
        self._in_use: set[str] = set()

    def prepare(self) -> None:
        """Make the folders and try whether programs may run there. ``PhoneStorageError``: full, read-only, noexec."""
        what = f"prepare {self._root}"
        result = self._device.script(PREPARE, self._root, what=what)
        if result.exit_code == 126:
            raise PhoneStorageError(
                f"{what}: the storage of phone {self._device.transport} is mounted noexec",
                found=result.said(),
                expected=f"programs may run from {self._root}",
                next_step="use a phone whose adb shell may execute below /data/local/tmp",
            )
        self._check(result, what)

    def clean(self) -> None:
        """Remove runs of holders that died, with their processes, and half pushed files. Only a lease holder may."""
        what = f"clean {self._root}"
        self._check(self._device.script(_CLEAN, self._root, timeout_s=120, what=what), what)

    def ensure(self, files: Sequence[StoredFile], *, progress: Callable[[str], None]) -> PushReport:
        """Push what is not there yet. ``seconds`` is the whole time: check, transfer and verification.

        Where all files are there, this is one command on the phone.
        """
        began = time.monotonic()
        self._in_use.update(file.sha256 for file in files)
        missing = self._missing(files)
        pushed: list[FilePush] = []
        if missing:
            free, residents = self._survey()
            parts = {r.sha256: r.n_bytes for r in residents if r.name.endswith(".part")}
            needed = sum(max(0, file.n_bytes - parts.get(file.sha256, 0)) for file in missing)
            room, residents = self._make_room(needed, free, residents)
            what = "make folders in the store"
            self._check(self._device.run(["mkdir", "-p", *(self._store / f.sha256 for f in missing)], what=what), what)
            for file in missing:
                progress(f"pushing {file.name} ({file.n_bytes / 1e6:.1f} MB) to phone {self._device.transport}")
                upload = Upload(
                    self._device,
                    file.local,
                    self._store / file.sha256 / file.name,
                    sha256=file.sha256,
                    n_bytes=file.n_bytes,
                    mode=0o555 if file.executable else 0o444,
                    progress=progress,
                )
                base = choose_base(residents, file)
                pushed.append(
                    upload.run(
                        part_bytes=parts.get(file.sha256, 0),
                        base=None if base is None else self._store / base.sha256 / base.name,
                        room_bytes=room,
                    )
                )
        return PushReport(
            n_pushed=len(missing),
            bytes_pushed=sum(file.bytes_sent for file in pushed),
            seconds=time.monotonic() - began,
            files=tuple(pushed),
        )

    def make_run_folder(self, run_id: str, files: Sequence[StoredFile]) -> PurePosixPath:
        """A fresh folder with links to ``files`` at their places; ``libs/`` is always there."""
        folder = self._root / "runs" / run_id
        what = f"make the run folder {run_id}"
        listing = "".join(f"{file.sha256} {file.name} {file.place}\n" for file in files)
        self._check(self._device.script(_LINK, folder, self._store, stdin=listing.encode(), what=what), what)
        return folder

    def gone(self, folder: PurePosixPath, files: Sequence[StoredFile]) -> tuple[str, ...]:
        """Which of ``files`` a run folder does not lead to any more: somebody has emptied the store."""
        what = "look for the files of the run"
        listing = "".join(f"{file.place}\n" for file in files)
        result = self._device.script(_GONE, folder, stdin=listing.encode(), what=what)
        self._check(result, what)
        missing = frozenset(result.text.splitlines())
        return tuple(str(file.place) for file in files if str(file.place) in missing)

    def remove_run_folder(self, run_id: str) -> None:
        what = f"remove the run folder {run_id}"
        self._check(self._device.run(["rm", "-rf", self._root / "runs" / run_id], timeout_s=60, what=what), what)

    def forget(self, files: Sequence[StoredFile]) -> None:
        """Take files out of the store, for they turned out not to be what was pushed."""
        what = "remove damaged files"
        folders = [self._store / file.sha256 for file in files]
        self._check(self._device.run(["rm", "-rf", *folders], timeout_s=60, what=what), what)

    def residents(self) -> tuple[Resident, ...]:
        """Whole files; not what an interrupted push left."""
        return tuple(resident for resident in self._survey()[1] if not resident.name.startswith("."))

    def _survey(self) -> tuple[int, tuple[Resident, ...]]:
        """Free bytes, and everything in the store."""
        what = "list the store"
        result = self._device.script(_LIST, self._root, what=what)
        self._check(result, what)
        return self._free(result, what), parse_residents(result.text)

    def _free(self, result: ShellResult, what: str) -> int:
        lines = result.text.splitlines()
        free = parse_df_available("\n".join(line for line in lines if not _RESIDENT.fullmatch(line.strip())))
        if free is None:
            raise InfraError(f"{what}: cannot read `df` of phone {self._device.transport}", found=result.said())
        return free

    def free_bytes(self) -> int:
        what = "read free storage"
        result = self._device.run(["df", "-k", self._root], what=what)
        self._check(result, what)
        return self._free(result, what)

    def _missing(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
        wanted = {f"{file.n_bytes} {file.sha256}/{file.name}": file for file in files}
        listing = "".join(f"{line.partition(' ')[2]}\n" for line in wanted)
        what = "check the store"
        result = self._device.script(_CHECK, self._store, stdin=listing.encode(), timeout_s=60, what=what)
        self._check(result, what)
        have = set(result.text.splitlines())
        return tuple(file for line, file in wanted.items() if line not in have)

    def _make_room(self, n_bytes: int, free: int, residents: tuple[Resident, ...]) -> tuple[int, tuple[Resident, ...]]:
        """Free bytes beyond ``n_bytes``, and what is left in the store."""
        needed = n_bytes + SPARE_BYTES
        if free >= needed:
            return free - n_bytes, residents
        evictions = choose_evictions(residents, needed_bytes=needed, free_bytes=free, keep=frozenset(self._in_use))
        if evictions is None:
            raise PhoneStorageError(
                f"phone {self._device.transport} has no room for the files of this run",
                found=f"{free / 1e6:.0f} MB free below {self._root}",
                expected=f"{needed / 1e6:.0f} MB, {SPARE_BYTES / 1e6:.0f} MB of it to spare",
                next_step="free space on the phone (`adb shell df /data`); nothing was pushed",
            )
        what = "remove files not used lately"
        gone = dict.fromkeys(resident.sha256 for resident in evictions)
        folders = [self._store / sha256 for sha256 in gone]
        self._check(self._device.run(["rm", "-rf", *folders], timeout_s=60, what=what), what)
        left = tuple(resident for resident in residents if resident.sha256 not in gone)
        return free + sum(resident.n_bytes for resident in evictions) - n_bytes, left

    def _check(self, result: ShellResult, what: str) -> None:
        if result.exit_code != 0:
            raise command_fault(result, what=what, phone=self._device.transport)
