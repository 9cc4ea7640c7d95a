"""Reads a context binary's metadata through libQnnSystem.so, by ctypes. Only for the worker process.

Offsets are for LP64 and a 144-byte tensor structure; the QAIRT generation is checked before anything is read.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.compiler.messages import BinaryFacts, BinaryGraph
from harness.errors import CompileError, HostError
from harness.record.artifact import TensorSpec
from harness.record.vocabulary import DType

_TENSOR_BYTES: Final = 144
_GRAPH_BYTES: Final = 88
_BINARY_INFO_V3: Final = 3
_SYSTEM_TABLE: Final = 32
_CREATE, _GET_METADATA, _FREE = 0, 2, 3
_DEFINED: Final = 1
_SCALE_OFFSET: Final = 0

_DTYPES: Mapping[int, DType] = MappingProxyType(
    {
        0x032: DType.INT32,
        0x216: DType.FLOAT16,
        0x232: DType.FLOAT32,
        0x308: DType.SFIXED8,
        0x316: DType.SFIXED16,
        0x408: DType.UFIXED8,
        0x416: DType.UFIXED16,
    }
)


def read_binary(binary: Path, system_library: Path) -> BinaryFacts:
    """Raises CompileError for a binary the library does not take, HostError for a library we do not know."""
    try:
        library = ctypes.CDLL(str(system_library))
        get_providers = library.QnnSystemInterface_getProviders
    except (OSError, AttributeError) as exc:
        raise HostError(
            f"{system_library} cannot be used", found=str(exc), expected="libQnnSystem.so of QAIRT"
        ) from exc
    get_providers.restype = ctypes.c_uint64
    providers, n_providers = ctypes.c_void_p(), ctypes.c_uint32()
    code = get_providers(ctypes.byref(providers), ctypes.byref(n_providers))
    if code or not n_providers.value or not providers.value:
        raise HostError(f"{system_library} offers no interface", found=f"code {code & 0xFFFF}")
    provider = _pointer(providers.value)

    def function(slot: int, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_uint64, *arguments)(_pointer(provider + _SYSTEM_TABLE + 8 * slot))

    handle = ctypes.c_void_p()
    code = function(_CREATE, ctypes.c_void_p)(ctypes.byref(handle))
    if code:
        raise HostError(f"{system_library} gives no context", found=f"code {code & 0xFFFF}")
    contents = binary.read_bytes()
    buffer = ctypes.create_string_buffer(contents, len(contents))
    info = ctypes.c_void_p()
    get_metadata = function(_GET_METADATA, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
    code = get_metadata(handle, ctypes.addressof(buffer), len(contents), ctypes.byref(info))
    try:
        if code or not info.value:
            raise CompileError(
                f"{binary} is not a readable context binary",
                found=f"QNN code {code & 0xFFFF}, {len(contents)} bytes",
                next_step="compile it again",
            )
        return _facts(info.value)
    finally:
        function(_FREE, ctypes.c_void_p)(handle)


def _facts(info: int) -> BinaryFacts:
    version = _u32(info)
    if version != _BINARY_INFO_V3:
        raise HostError(
            "the context binary's metadata has another layout",
            found=f"version {version}",
            expected=str(_BINARY_INFO_V3),
        )
    body = info + 8
    metadata = _pointer(body + 120)
    n_graphs, graphs = _u32(body + 88), _pointer(body + 96)
    return BinaryFacts(
        build_id=_text(body + 8),
        core_api=_version(body + 16),
        backend_api=_version(body + 28),
        blob_version=_version(body + 48),
        soc_number=_u32(body + 128),
        htp_arch=_u32(metadata + 4),
        graphs=tuple(_graph(graphs + index * _GRAPH_BYTES) for index in range(n_graphs)),
    )


def _graph(at: int) -> BinaryGraph:
    body = at + 8
    return BinaryGraph(
        name=_text(body),
        inputs=_tensors(_pointer(body + 16), _u32(body + 8)),
        outputs=_tensors(_pointer(body + 32), _u32(body + 24)),
    )


def _tensors(at: int, count: int) -> tuple[TensorSpec, ...]:
    return tuple(_tensor(at + index * _TENSOR_BYTES) for index in range(count))


def _tensor(at: int) -> TensorSpec:
    body = at + 8
    name = _text(body + 8)
    code = _u32(body + 24)
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise CompileError(f"graph tensor {name} has an unsupported element type", found=f"QNN data type {code:#x}")
    rank, dimensions = _u32(body + 72), _pointer(body + 80)
    shape = tuple(_u32(dimensions + 4 * axis) for axis in range(rank))
    quantisation = body + 32
    if _u32(quantisation) != _DEFINED:
        return TensorSpec(name=name, dtype=dtype, shape=shape)
    if _u32(quantisation + 4) != _SCALE_OFFSET:
        raise CompileError(
            f"graph tensor {name} is not quantised per tensor", found=f"encoding {_u32(quantisation + 4)}"
        )
    scale, offset = struct.unpack("<fi", ctypes.string_at(quantisation + 8, 8))
    return TensorSpec(name=name, dtype=dtype, shape=shape, scale=scale, zero_point=-offset)


def _u32(at: int) -> int:
    return ctypes.c_uint32.from_address(at).value


def _pointer(at: int) -> int:
    return ctypes.c_uint64.from_address(at).value


def _text(at: int) -> str:
    pointer = _pointer(at)
    return ctypes.string_at(pointer).decode(errors="replace") if pointer else ""


def _version(at: int) -> str:
    return ".".join(str(_u32(at + 4 * part)) for part in range(3))
