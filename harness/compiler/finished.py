"""Which artifact a preparation came to, by the hash of all that decides it: asked before anything is parsed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from harness.compiler.recipe import Plan
from harness.errors import SnapGateError
from harness.record.artifact import Artifact, load_artifact
from harness.record.codec import read_json, write_json

INDEX_NAME: Final = ".prepared.json"
_READ: Final = ("*.json", "*.jinja", "*.safetensors", "*.gguf", "*.model")
"""Files of a checkpoint folder that may decide what is built; more than are read."""

HashOf = Callable[[Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    folder: str
    artifact_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    artifacts: dict[str, Entry] = field(default_factory=dict)
    """By key."""


def preparation_key(
    checkpoint: Path,
    plan: Plan,
    *,
    texts: Mapping[str, Path | None],
    tools: Mapping[str, str],
    hash_of: HashOf,
) -> str | None:
    """None where a file is missing or cannot be read: whoever reads it next says so better.

    ``texts``: what each text is for, and where it lies.
    """
    try:
        folder = checkpoint.is_dir()
        files = sorted({path for glob in _READ for path in checkpoint.glob(glob)}) if folder else [checkpoint]
        decided_by = {
            "names": [checkpoint.absolute().name, checkpoint.resolve().name],
            "files": {path.name: hash_of(path) for path in files if path.is_file() or not folder},
            "texts": {use: None if path is None else hash_of(path) for use, path in texts.items()},
            "plan": asdict(plan) | {"overrides": None if plan.overrides is None else hash_of(plan.overrides)},
            "tools": dict(tools),
        }
    except OSError:
        return None
    return hashlib.sha256(json.dumps(decided_by, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def find_finished(out: Path, key: str | None, hash_of: HashOf) -> Artifact | None:
    """The artifact, if it is still there and every file still has its sha256."""
    entry = _read(out).artifacts.get(key or "")
    if entry is None or Path(entry.folder).name != entry.folder:
        return None
    with suppress(SnapGateError):
        artifact = load_artifact(out / entry.folder, hash_of=hash_of)
        if artifact.manifest.artifact_id == entry.artifact_id:
            return artifact
    return None


def note_finished(out: Path, key: str | None, artifact: Artifact) -> None:
    """Entries whose artifact was replaced or removed go."""
    if key is None:
        return
    name, found = artifact.folder.name, _read(out).artifacts
    kept = {k: entry for k, entry in found.items() if entry.folder != name and (out / entry.folder).is_dir()}
    kept |= {k: entry for k, entry in found.items() if entry.artifact_id == artifact.manifest.artifact_id}
    kept[key] = Entry(folder=name, artifact_id=artifact.manifest.artifact_id)
    with suppress(OSError):
        write_json(out / INDEX_NAME, Index(artifacts=kept))


def _read(out: Path) -> Index:
    with suppress(SnapGateError):
        return read_json(out / INDEX_NAME, Index)
    return Index()
