"""What an artifact gives away of how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.errors import UserError
from harness.model.encodings_file import read_encodings, write_encodings
from harness.record.artifact import Artifact
from harness.soc import Precision

ENCODINGS_NAME: Final = "encodings.json"
"""In an artifact of a quantised precision: the encoding of every activation and weight, 1.0.0 layout."""


def export_encodings(artifact: Artifact, path: Path, layout: str) -> None:
    """Write the encodings of an artifact to a file of the user's."""
    if artifact.manifest.recipe.precision is Precision.FP16:
        raise UserError(
            "an fp16 artifact has no encodings", found=str(artifact.folder), next_step="leave --write-encodings out"
        )
    write_encodings(path, read_encodings(artifact.path(ENCODINGS_NAME)), layout)
