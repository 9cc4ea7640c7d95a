"""ONNX models on disk whose large initialisers share one data file, each distinct content once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

INLINE_BELOW_BYTES: Final = 1024
ALIGNMENT_BYTES: Final = 4096
"""A page, so that a runtime may map each tensor."""


def save_models(folder: Path, models: Mapping[str, onnx.ModelProto], data_file: str) -> None:
    """Write ``models`` (file name to model) into ``folder``, their weights into ``folder / data_file``.

    The models are left without their large initialisers: load them again to go on working with them.
    """
    offsets: dict[str, int] = {}
    with (folder / data_file).open("wb") as data:
        for name, model in models.items():
            for tensor in model.graph.initializer:
                if not tensor.HasField("raw_data"):
                    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
                contents = tensor.raw_data
                if len(contents) < INLINE_BELOW_BYTES:
                    continue
                digest = hashlib.sha256(contents).hexdigest()
                if digest not in offsets:
                    data.write(bytes(-data.tell() % ALIGNMENT_BYTES))
                    offsets[digest] = data.tell()
                    data.write(contents)
                set_external_data(tensor, data_file, offset=offsets[digest], length=len(contents))
                tensor.ClearField("raw_data")
            (folder / name).write_bytes(model.SerializeToString(deterministic=True))
