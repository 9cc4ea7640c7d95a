"""Whether a file arrived as it was sent: size and sha256 as the phone has them, and what it means when they differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.device.text import printable
from harness.errors import HostError, InfraError, TransferError
from harness.record.artifact import sha256_of

FINISH: Final = """
h=$(sha256sum "$1") || exit 1
echo "$h"
case "$h" in "$2 "*) chmod "$3" "$1" && mv -f "$1" "$4";; *) wc -c < "$1";; esac
"""
"""Give a file its name and mode if its hash is right; else say how long it is."""
DESCRIBE: Final = 'sha256sum "$1" && wc -c < "$1"'
_DESCRIBED: Final = re.compile(r"\\?([0-9a-f]{64}) [^\n]*\n\s*(\d{1,15})\s*\Z")
_NEXT_STEP: Final = "check cable and hub; try again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """``n_bytes`` None: not asked, or not told."""

    sha256: str
    n_bytes: int | None


def parse_finish(text: str) -> Arrived:
    """The answer to ``FINISH``."""
    counted = text.rstrip().rpartition("\n")[2].strip()
    return Arrived(
        sha256=printable(text.partition(" ")[0], 64) or "nothing",
        n_bytes=int(counted) if counted.isdecimal() and len(counted) < 16 else None,
    )


def parse_description(text: str, *, what: str, phone: str) -> Arrived:
    """The answer to ``DESCRIBE``. Raises ``TransferError`` when it is damaged."""
    found = _DESCRIBED.match(text)
    if found is None:
        raise TransferError(
            f"{what}: what phone {phone} says of the file is damaged",
            found=printable(text, 120) or "nothing",
            expected="a sha256 and a size",
            next_step=_NEXT_STEP,
        )
    return Arrived(sha256=found[1], n_bytes=int(found[2]))


def wrong_push(local: Path, found: Arrived, *, expected: str, what: str, phone: str) -> InfraError | HostError:
    """Why a file arrived as ``found``: cut short or damaged on the way, or it is not what was recorded of it."""
    here = sha256_of(local)
    if here != expected:
        return HostError(
            f"{what}: {local} is not what was recorded of it, or changed while it was read",
            found=here,
            expected=expected,
            next_step="make the file again",
        )
    sent = Arrived(sha256=expected, n_bytes=local.stat().st_size)
    return _wrong(f"{what} to phone {phone}", found, sent)


def wrong_pull(found: Arrived, there: Arrived, *, what: str, phone: str) -> TransferError:
    return _wrong(f"{what} from phone {phone}", found, there)


def _wrong(what: str, found: Arrived, sent: Arrived) -> TransferError:
    """``expected`` of the error is the hash of what was sent."""
    short = found.n_bytes is not None and sent.n_bytes is not None and found.n_bytes < sent.n_bytes
    return TransferError(
        f"{what}: {'cut short' if short else 'damaged'} on the way",
        found=f"{found.n_bytes} of {sent.n_bytes} bytes" if short else f"sha256 {found.sha256}",
        expected=sent.sha256,
        next_step=_NEXT_STEP,
    )
