"""Folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.errors import HostError, UserError

_LOCK_NAME: Final = ".prepare.lock"
_PREFIX: Final = ".preparing-"


@contextmanager
def staging_folder(out: Path, progress: Callable[[str], None]) -> Iterator[Path]:
    """A scratch folder inside ``out``, gone at the end unless published. One process at a time works in ``out``."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / _LOCK_NAME)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress(f"waiting for another process that prepares into {out}")
            lock.acquire()
    except OSError as exc:
        raise UserError(
            f"{out} cannot be written", found=str(exc), expected="a writable folder", next_step="choose another --out"
        ) from exc
    try:
        for leftover in out.glob(f"{_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=out))
        try:
            yield folder
        except OSError as exc:
            raise HostError(
                f"writing below {out} failed", found=str(exc), next_step="free some space, or choose another --out"
            ) from exc
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release()


def publish(folder: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``; an older ``target`` goes. At no moment is a mixture of both there."""
    folder.chmod(0o755)
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=target.parent)) / "old"
        target.rename(old)
        folder.rename(target)
        shutil.rmtree(old.parent)
    else:
        folder.rename(target)
