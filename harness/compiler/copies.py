"""Files of finished stages, once more in an artifact, at little cost.

A second name for the same file would be cheapest, but onnx refuses external data with several hard links, and
symbolic links that leave the folder. So it is a clone where the file system shares blocks (btrfs, XFS), else a copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

COPY_LIMIT_BYTES: Final = 8 << 30
"""Above it a file gets a second name after all: the 27 GB of a 7B model's float weights are kept once."""
_FICLONE: Final = 0x40049409
"""ioctl of linux/fs.h."""


def give_own(source: Path, target: Path, *, limit_bytes: int = COPY_LIMIT_BYTES) -> bool:
    """Put ``source`` at ``target``, which must not exist. True: a file of its own; False: a hard link."""
    if _clone(source, target):
        return True
    if source.stat().st_size > limit_bytes:
        try:
            os.link(source, target)
        except OSError:
            pass  # another file system, or one without hard links
        else:
            return False
    shutil.copyfile(source, target)
    return True


def _clone(source: Path, target: Path) -> bool:
    with source.open("rb") as read, target.open("xb") as written:
        try:
            fcntl.ioctl(written.fileno(), _FICLONE, read.fileno())
        except OSError:
            target.unlink()
            return False
    return True
