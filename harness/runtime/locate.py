"""Where a run takes the phone's libraries from."""

from __future__ import annotations

import os
from pathlib import Path

from harness.runtime.check import minor_of
from harness.runtime.fetch import installed
from harness.runtime.required import QNN_ANDROID_VARIABLE, find_file, required_files, sdk_root


def library_folder(htp_arch: int, *, compiled_by: str | None = None) -> Path | None:
    """The folder that SNAPGATE_QNN_ANDROID names; else what was fetched; else the SDK of the environment; else None.

    Of fetched sets: the newest that has this HTP arch. With ``compiled_by``, the build id of an artifact's compiler, a
    set of the same minor version goes before.
    """
    named = os.environ.get(QNN_ANDROID_VARIABLE)
    if named:
        return Path(named)
    wanted = required_files(htp_arch)
    whole = [entry for entry in installed() if all(find_file(entry.folder, file) for file in wanted)]
    alike = [entry for entry in whole if compiled_by and minor_of(entry.version) == minor_of(compiled_by)]
    chosen = (alike or whole)[:1]
    return chosen[0].folder if chosen else sdk_root()
