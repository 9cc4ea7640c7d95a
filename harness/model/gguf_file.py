"""The container of a GGUF file (versions 2 and 3, little-endian): metadata, and where each tensor lies.

Layout: magic, version, numbers of tensors and of metadata entries; the entries; one descriptor a tensor; padding; data.
The file is mapped: only what is asked for is read. Numbers of bytes a tensor type takes come from the ``gguf`` package.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import CheckpointError, HostError

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
_SCALARS: Final[Mapping[int, str]] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_FLOAT, _STRING, _ARRAY = 6, 8, 9
_DEFAULT_ALIGNMENT: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    shape: tuple[int, ...]
    """As NumPy has it, the last index fastest: (out_features, in_features) for a matrix."""
    type_number: int
    offset: int
    """Bytes from the start of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    path: Path
    metadata: dict[str, Any]
    """Numbers, texts, and lists of them."""
    tensors: Mapping[str, GgufTensor]

    def type_name(self, name: str) -> str:
        gguf, number = import_gguf(), self.tensors[name].type_number
        known: dict[int, str] = {int(kind): kind.name for kind in gguf.GGMLQuantizationType}
        return known.get(number, f"type {number}")

    def readable(self, name: str) -> bool:
        """Whether the ``gguf`` package turns the tensor's type into floats."""
        return self.tensors[name].type_number in _readable_types()

    def read(self, name: str) -> NDArray[np.float32]:
        """One tensor, dequantised by the ``gguf`` package. It must be readable."""
        gguf, tensor = import_gguf(), self.tensors[name]
        kind = gguf.GGMLQuantizationType(tensor.type_number)
        data = np.memmap(self.path, np.uint8, "r", offset=tensor.offset, shape=(tensor_bytes(tensor),))
        rows = np.asarray(data).reshape(*tensor.shape[:-1], -1)
        values: NDArray[np.float32] = np.asarray(gguf.quants.dequantize(rows, kind), np.float32).reshape(tensor.shape)
        return values


def import_gguf() -> Any:
    try:
        import gguf
    except ImportError as exc:
        raise HostError(
            "reading a GGUF file needs gguf, which is not installed", next_step="pip install 'snapgate[prepare]'"
        ) from exc
    return gguf


@functools.cache
def _readable_types() -> frozenset[int]:
    gguf = import_gguf()
    kinds = gguf.GGMLQuantizationType
    readable = {int(kinds.F32), int(kinds.F16)}
    for kind in kinds:
        _, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        try:
            gguf.quants.dequantize(np.zeros((1, n_bytes), np.uint8), kind)
        except NotImplementedError:
            continue
        readable.add(int(kind))
    return frozenset(readable)


def tensor_bytes(tensor: GgufTensor) -> int:
    """Bytes of the tensor's data. Its type must be known to the ``gguf`` package."""
    gguf = import_gguf()
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(tensor.type_number)]
    return int(np.prod(tensor.shape)) // int(per_block) * int(block_bytes)


def open_gguf(path: Path) -> GgufFile:
    """Read everything but the tensors' data. Raises CheckpointError for a file that is damaged or cut short."""
    with path.open("rb") as stream:
        reader = _Reader(stream=stream, path=path, n_bytes=path.stat().st_size)
        if stream.read(4) != MAGIC:
            raise reader.damaged("another kind of file", f"{MAGIC.decode()} in front")
        version = reader.number("I")
        if version not in VERSIONS:
            raise reader.damaged(f"version {version}", "version 2 or 3, little-endian")
        n_tensors, n_entries = reader.number("Q"), reader.number("Q")
        metadata: dict[str, Any] = {}
        for _ in range(n_entries):
            key = reader.text()
            metadata[key] = reader.value(reader.number("I"))
        descriptors = [reader.descriptor() for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise reader.damaged(f"general.alignment {alignment!r}", "a positive whole number")
        start = -(-stream.tell() // alignment) * alignment
    tensors = {
        name: GgufTensor(shape=shape, type_number=kind, offset=start + at) for name, shape, kind, at in descriptors
    }
    known = {int(kind) for kind in import_gguf().GGMLQuantizationType}
    for name, tensor in tensors.items():
        if tensor.type_number in known and tensor.offset + tensor_bytes(tensor) > reader.n_bytes:
            raise reader.damaged(f"{reader.n_bytes} bytes, too few for tensor {name}", "a complete file")
    return GgufFile(path=path, metadata=metadata, tensors=tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    stream: Any
    path: Path
    n_bytes: int

    def damaged(self, found: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} is damaged or no GGUF file",
            found=found,
            expected=expected,
            next_step="fetch the checkpoint again",
        )

    def bytes(self, n_bytes: int) -> bytes:
        if n_bytes > self.n_bytes:
            raise self.damaged(f"a piece of {n_bytes} bytes in a file of {self.n_bytes}", "a piece inside the file")
        data: bytes = self.stream.read(n_bytes)
        if len(data) != n_bytes:
            raise self.damaged(f"it ends after {self.n_bytes} bytes", "a complete file")
        return data

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.bytes(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        raw = self.bytes(self.number("Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise self.damaged(str(exc), "UTF-8") from exc

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array(self.number("I"), self.number("Q"))
        if kind not in _SCALARS:
            raise self.damaged(f"a metadata value of type {kind}", f"one of {sorted((*_SCALARS, _STRING, _ARRAY))}")
        return _plain(self.number(_SCALARS[kind]), kind)

    def _array(self, kind: int, length: int) -> list[Any]:
        if kind not in _SCALARS:
            if length > self.n_bytes:
                raise self.damaged(f"an array of {length} in a file of {self.n_bytes} bytes", "a shorter array")
            return [self.value(kind) for _ in range(length)]
        code = _SCALARS[kind]
        raw = self.bytes(length * struct.calcsize(f"<{code}"))
        return [_plain(number, kind) for number in struct.unpack(f"<{length}{code}", raw)]

    def descriptor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        n_dimensions = self.number("I")
        if n_dimensions > 4:
            raise self.damaged(f"tensor {name} with {n_dimensions} dimensions", "at most 4")
        shape = tuple(self.number("Q") for _ in range(n_dimensions))
        return name, shape[::-1], self.number("I"), self.number("Q")


def _plain(number: Any, kind: int) -> Any:
    """A 32-bit float becomes the shortest decimal that is stored so: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number))) if kind == _FLOAT else number
