"""Where the library lies that composes all graphs of a process in one context (device_runtime/compose)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from harness.compiler.libraries import library_folder
from harness.errors import HostError

BACKEND_VARIABLE: Final = "SNAPGATE_QNN_BACKEND"
"""What the library is told the real backend by."""
_NAME: Final = "libsnapgate-one-context.so"
_ROOT: Final = Path(__file__).resolve().parents[2]


def built_library() -> Path:
    """Built for this host by ``make runner``. SNAPGATE_BUILD names another build folder."""
    path = Path(os.environ.get("SNAPGATE_BUILD", _ROOT / "build")) / "host" / "compose" / _NAME
    if not path.is_file():
        raise HostError(
            "several graphs with weights of their own in one context need a library that is not built",
            found=f"no {path}",
            next_step="make runner; or choose --contexts separate or shared",
        )
    return path


def put_backend(folder: Path) -> tuple[str, dict[str, str]]:
    """The library beside onnxruntime-qnn's others in ``folder``: its path in it, and what it must be told."""
    qnn = library_folder()
    (folder / _NAME).symlink_to(built_library().resolve())
    (folder / "libQnnSystem.so").symlink_to(qnn / "libQnnSystem.so")
    return _NAME, {BACKEND_VARIABLE: str(qnn / "libQnnHtp.so")}
