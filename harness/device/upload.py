"""One file into the store: whole, the rest of an interrupted push, or only the blocks that changed.

Names beside the file, in its folder: ``.NAME.part`` (what has arrived, kept when a push breaks), ``.NAME.tail.OFFSET``
(the next piece of an interrupted push), ``.NAME.patch`` and ``.NAME.new`` (changed blocks, and the file put together
from them), ``.NAME.blocks`` (hashes of its blocks, for the next version). Whatever the way, the file gets its name
only after the phone has hashed it as a whole; if a way that builds on older bytes gives another hash, the file is sent
whole once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.arrival import Arrived, wrong_push
from harness.device.blocks import block_hashes, changed_runs, spans_of
from harness.device.faults import command_fault
from harness.errors import HostError, InfraError, PhoneStorageError, TransferError

BLOCKS_FROM_BYTES: Final = 8 * 1024 * 1024
"""Smaller files are sent whole: asking which blocks changed would take longer."""
TAIL_BYTES: Final = 32 * 1024 * 1024
"""An interrupted push goes on in pieces of this size: so much room is needed beside the file, and no more."""
_WORTH_IT: Final = 0.6
"""Of a file of which more has changed than this, no blocks are picked."""

_ABSORB: Final = """
cd "$1" || exit 1
n=$(stat -c %s "$2" 2>/dev/null) || n=0
if [ -f "$3.$n" ]; then cat "$3.$n" >> "$2" || exit 1; fi
rm -f "$3".*
stat -c %s "$2"
"""
_ASSEMBLE: Final = """
cp "$1" "$2" && chmod 600 "$2" && truncate -s "$4" "$2" || exit 1
exec 3< "$3" || exit 1
while read -r seek count; do
  dd bs=16384 seek=$seek count=$count conv=notrunc status=none of="$2" <&3 || exit 1
done
rm -f "$3"
exit 0
"""
_WRITE: Final = 'cat > "$1.new" && mv -f "$1.new" "$1"'


class How(StrEnum):
    WHOLE = "whole"
    RESUMED = "resumed"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePush:
    """How one file got there. ``verify_s``: hashing on the phone; ``transfer_s``: the rest. ``fell_back``: why it was
    sent whole after another way had failed."""

    name: str
    how: How
    n_bytes: int
    bytes_sent: int
    transfer_s: float
    verify_s: float
    fell_back: str | None = None


class Upload:
    """One push of ``local`` to ``folder/name``; ``base``: another version of it in the store, with block hashes."""

    def __init__(
        self,
        device: AdbDevice,
        local: Path,
        target: PurePosixPath,
        *,
        sha256: str,
        n_bytes: int,
        mode: int,
        progress: Callable[[str], None],
    ) -> None:
        self._device, self._local, self._target = device, local, target
        self._sha256, self._n_bytes, self._mode = sha256, n_bytes, mode
        self._progress = progress
        self._what = f"push {target.name}"
        self._blocks: bytes | None = None
        self._sent = 0
        self._verify_s = 0.0

    def run(self, *, part_bytes: int, base: PurePosixPath | None, room_bytes: int) -> FilePush:
        """``part_bytes``: of an interrupted push, 0 for none. ``room_bytes``: free beyond the file itself.

        Raises ``TransferError`` when what arrived is not what was sent, ``PhoneStorageError`` when the phone is full,
        ``HostError`` when the file is not what was recorded of it.
        """
        began = time.monotonic()
        how, fell_back = How.WHOLE, None
        try:
            found: Arrived | None = None
            if base is not None and self._send_changes(base, part_bytes, room_bytes):
                how, found = How.CHANGES, self._finish(self._beside("new"))
            elif part_bytes:
                how = How.RESUMED
                if self._send_rest():
                    found = self._finish(self._beside("part"))
            if how is not How.WHOLE and (found is None or found.sha256 != self._sha256):
                fell_back = f"{how} gave sha256 {'of no whole file' if found is None else found.sha256}"
                self._remove("new", "part")
                how = How.WHOLE
            if how is How.WHOLE:
                self._sent += self._device.send(
                    self._local, self._beside("part"), what=self._what, progress=self._progress
                )
                found = self._finish(self._beside("part"))
                if found.sha256 != self._sha256:
                    raise wrong_push(
                        self._local, found, expected=self._sha256, what=self._what, phone=self._device.transport
                    )
        except (PhoneStorageError, TransferError, HostError) as exc:
            # A connection that broke leaves what arrived; what is wrong, or has no room, goes.
            if not isinstance(exc, TransferError) or exc.expected == self._sha256:
                with contextlib.suppress(InfraError, HostError):
                    self._remove("part", "new", "patch")
            raise
        self._keep_blocks()
        return FilePush(
            name=self._target.name,
            how=how,
            n_bytes=self._n_bytes,
            bytes_sent=self._sent,
            transfer_s=time.monotonic() - began - self._verify_s,
            verify_s=self._verify_s,
            fell_back=fell_back,
        )

    def _beside(self, kind: str) -> PurePosixPath:
        return self._target.with_name(f".{self._target.name}.{kind}")

    def _remove(self, *kinds: str) -> None:
        self._device.run(["rm", "-f", *(self._beside(kind) for kind in kinds)], timeout_s=30, what=self._what)

    def _finish(self, temporary: PurePosixPath) -> Arrived:
        began = time.monotonic()
        try:
            with ThreadPoolExecutor(max_workers=1) as worker:
                hashing = worker.submit(self._hash_blocks)
                found = self._device.finish(
                    temporary,
                    self._target,
                    mode=self._mode,
                    size=self._n_bytes,
                    sha256=self._sha256,
                    what=self._what,
                )
                hashing.result()
        finally:
            self._verify_s += time.monotonic() - began
        return found

    def _hash_blocks(self) -> bytes:
        if self._blocks is None:
            self._blocks = block_hashes(self._local) if self._n_bytes >= BLOCKS_FROM_BYTES else b""
        return self._blocks

    def _keep_blocks(self) -> None:
        """Without them the next version is sent whole; that is no fault."""
        if blocks := self._hash_blocks():
            with contextlib.suppress(InfraError):
                self._device.script(_WRITE, self._beside("blocks"), stdin=blocks, timeout_s=60, what=self._what)

    def _send_changes(self, base: PurePosixPath, part_bytes: int, room_bytes: int) -> bool:
        """Put the file together from ``base`` and its changed blocks. False: not worth it, or not possible here."""
        listed = self._device.run(["cat", base.with_name(f".{base.name}.blocks")], timeout_s=60, what=self._what)
        if listed.exit_code != 0 or listed.dropped_bytes:
            return False
        runs = changed_runs(self._hash_blocks(), listed.stdout)
        spans = spans_of(runs, self._n_bytes)
        changed = sum(n for _, n in spans)
        if changed > min(_WORTH_IT * self._n_bytes, room_bytes, self._n_bytes - part_bytes):
            return False
        self._progress(
            f"{self._what}: {changed / 1e6:.1f} of {self._n_bytes / 1e6:.0f} MB differ from the version on the phone"
        )
        patch = self._beside("patch")
        self._sent += self._device.send(self._local, patch, what=self._what, spans=spans, progress=self._progress)
        assembled = self._device.script(
            _ASSEMBLE,
            base,
            self._beside("new"),
            patch,
            str(self._n_bytes),
            stdin="".join(f"{first} {n}\n" for first, n in runs).encode(),
            timeout_s=120 + self._n_bytes / (8 << 20),
            what=self._what,
        )
        if assembled.exit_code == 0:
            return True
        self._remove("new", "patch")
        fault = command_fault(assembled, what=self._what, phone=self._device.transport)
        if isinstance(fault, PhoneStorageError):
            raise fault
        self._progress(f"{self._what}: blocks cannot be put together on this phone ({fault.found}); sending all of it")
        return False

    def _send_rest(self) -> bool:
        """Go on after what has arrived. False: it cannot be the beginning of this file."""
        offset = self._absorb()
        self._progress(f"{self._what}: going on after {offset / 1e6:.0f} of {self._n_bytes / 1e6:.0f} MB")
        while offset < self._n_bytes:
            n = min(TAIL_BYTES, self._n_bytes - offset)
            tail = self._beside(f"tail.{offset}")
            self._sent += self._device.send(self._local, tail, what=self._what, spans=[(offset, n)])
            arrived = self._absorb()
            if arrived != offset + n:
                return False
            offset = arrived
            self._progress(f"{self._what}: {offset / 1e6:.0f} of {self._n_bytes / 1e6:.0f} MB")
        return offset == self._n_bytes

    def _absorb(self) -> int:
        """Append a piece that arrived to the part; how long the part is now."""
        part, tail = self._beside("part").name, self._beside("tail").name
        result = self._device.script(_ABSORB, self._target.parent, part, tail, timeout_s=120, what=self._what)
        if result.exit_code != 0 or not result.text.strip().isdigit():
            raise command_fault(result, what=self._what, phone=self._device.transport)
        return int(result.text)
