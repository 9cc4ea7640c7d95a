"""Checkpoints by name from the Hugging Face hub, or from its cache on this host where the files are there already."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.errors import CheckpointError, HostError, first_line

_NAME: Final = re.compile(r"(?P<repository>[\w-][\w.-]*/[\w-][\w.-]*)(/(?P<file>[\w./-]+\.gguf))?")
_WANTED: Final = ("*.json", "*.jinja", "*.safetensors")
_UNWANTED: Final = ("*/*", "consolidated*")
"""Folders of other formats, and Mistral's second copy of the weights."""


def locate(checkpoint: str, *, progress: Callable[[str], None] = lambda _: None) -> Path:
    """A path as it is, or ``owner/name`` (a folder) or ``owner/name/FILE.gguf`` fetched from the hub.

    What exists on this host is a path, and so is anything in a folder that does: a typing error is no reason to ask the
    hub. Raises CheckpointError where the hub does not give the files.
    """
    path = Path(checkpoint)
    match = _NAME.fullmatch(checkpoint)
    if match is None or Path(path.parts[0]).exists():
        return path
    try:
        from huggingface_hub import hf_hub_download, snapshot_download
    except ImportError as exc:
        raise HostError(
            "fetching a checkpoint needs huggingface_hub, which is not installed",
            next_step="pip install 'snapgate[prepare]', or give a folder",
        ) from exc
    repository, file = match["repository"], match["file"]
    progress(f"{checkpoint} is no path here: asking the hub for it")
    try:
        if file is not None:
            return Path(hf_hub_download(repository, file))
        return Path(snapshot_download(repository, allow_patterns=list(_WANTED), ignore_patterns=list(_UNWANTED)))
    except Exception as exc:
        reason = first_line(exc)
        raise CheckpointError(
            f"checkpoint {checkpoint} is neither a path here nor to be had from the hub",
            found=f"{type(exc).__name__}: {reason}",
            expected="a folder, a GGUF file, or a hub name: owner/name, or owner/name/FILE.gguf",
            next_step="check the name, the network, and your access to a gated model (hf auth login)",
        ) from exc
