"""Phones that are not used again in a run, and why: the first cause, as all processes of the run see it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Final

from harness.device.text import printable
from harness.errors import DeadlineError, InfraError, PhoneLostError, PhoneStorageError, TransferError
from harness.record.run import RunRecord
from harness.record.vocabulary import Status

_KINDS: Final = frozenset(
    kind.__name__ for kind in (PhoneLostError, PhoneStorageError, TransferError, DeadlineError, InfraError)
)
"""Errors that are a phone's. A full disk of this host, a lost lease or a phone that is merely too hot are not."""
_KEPT_S: Final = 7 * 24 * 3600.0


def cause_of(record: RunRecord) -> str | None:
    """Why the phone of ``record`` is not to be used again; None: it may be.

    A transient fault was tried once more before its record was written, so one that is still there has stayed.
    """
    error = record.error
    if error is None or error.status is not Status.INFRA or error.kind not in _KINDS:
        return None
    tries = f", in {record.attempts} tries" if record.attempts > 1 else ""
    return f"{error.kind} in run {record.run_id}{tries}: {error.message}"


class Quarantine:
    """``state_dir/quarantine/<session>/<serial>`` holds the first cause; whoever comes second does not replace it."""

    def __init__(self, state_dir: Path, session_id: str) -> None:
        parent = state_dir / "quarantine"
        self._folder = parent / _name(session_id)
        with contextlib.suppress(OSError):
            for old in parent.iterdir():
                if time.time() - old.stat().st_mtime > _KEPT_S:
                    shutil.rmtree(old, ignore_errors=True)

    def add(self, serial: str, cause: str) -> str:
        """Returns the first cause, which is ``cause`` unless somebody was earlier."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _name(serial)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        draft.write_text(printable(cause, 2000), encoding="utf-8")
        try:
            os.link(draft, path)  # fails where it exists, and is whole where it does not
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_text(encoding="utf-8")

    def cause(self, serial: str) -> str | None:
        try:
            return (self._folder / _name(serial)).read_text(encoding="utf-8")
        except OSError:
            return None


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".") or "_"
