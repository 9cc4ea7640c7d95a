"""Weights of ONNX graphs, kept outside the models: one data file beside the graphs, each tensor written once.

A model is then a few hundred kilobytes whatever its size, graphs of several AR-N and KV precisions share the file, and
no more than one tensor is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data

INLINE_BELOW_BYTES: Final = 1024
ALIGNMENT_BYTES: Final = 4096
"""A page, so that a runtime may map each tensor."""

Array = NDArray[Any]


def tensor_of(name: str, values: Array, bits: int | None = None) -> TensorProto:
    """``values`` as an initialiser; of 4 ``bits``, int8 values become INT4, two a byte, the first in the low half."""
    if bits != 4:
        return numpy_helper.from_array(np.asarray(values, order="C"), name)
    nibbles = values.reshape(-1).astype(np.uint8) & 0xF
    if len(nibbles) % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    packed = (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8)
    return helper.make_tensor(name, TensorProto.INT4, values.shape, packed.tobytes(), raw=True)


class TensorStore:
    """Makes initialisers: small ones whole, large ones as references into ``path``. Without a path, all whole.

    A name stands for one content: asked for again, what was written is referred to and nothing is computed.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._stream = None if path is None else path.open("wb")
        self._known: dict[str, TensorProto] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            self._stream.close()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def initializer(self, name: str, values: Callable[[], Array], bits: int | None = None) -> TensorProto:
        """The initialiser ``name``; ``values`` is called unless it is known."""
        known = self._known.get(name)
        if known is None:
            known = self._written(tensor_of(name, values(), bits))
            if self._stream is not None:  # without a file, the models hold the contents themselves
                self._known[name] = known
        copy = TensorProto()
        copy.CopyFrom(known)
        return copy

    def _written(self, tensor: TensorProto) -> TensorProto:
        contents = tensor.raw_data
        if self._stream is None or self._path is None or len(contents) < INLINE_BELOW_BYTES:
            return tensor
        self._stream.write(bytes(-self._stream.tell() % ALIGNMENT_BYTES))
        offset = self._stream.tell()
        self._stream.write(contents)
        set_external_data(tensor, self._path.name, offset=offset, length=len(contents))
        tensor.ClearField("raw_data")
        return tensor


class LazyStore:
    """Makes initialisers whose large contents stay where they come from and are computed when they are asked for.

    For a graph that is only read and never saved or run: ``array_of`` takes the store in the place of a folder.
    """

    def __init__(self) -> None:
        self._known: dict[str, TensorProto] = {}
        self._values: dict[str, Callable[[], Array]] = {}

    def initializer(self, name: str, values: Callable[[], Array], bits: int | None = None) -> TensorProto:
        if name not in self._known:
            contents = values()
            if contents.nbytes < INLINE_BELOW_BYTES:
                self._known[name] = tensor_of(name, contents, bits)
            else:
                code = helper.np_dtype_to_tensor_dtype(contents.dtype)
                self._known[name] = TensorProto(name=name, data_type=code, dims=contents.shape)
                self._known[name].data_location = TensorProto.EXTERNAL
                self._values[name] = values
        copy = TensorProto()
        copy.CopyFrom(self._known[name])
        return copy

    def read(self, name: str) -> Array:
        return self._values[name]()


class Store(Protocol):
    """Where the initialisers of a graph come from."""

    def initializer(self, name: str, values: Callable[[], Array], bits: int | None = None) -> TensorProto: ...


Contents = Path | LazyStore
"""What holds the initialisers of a graph that lie outside it: the folder of its data file, or a store."""


def save_graph(path: Path, model: onnx.ModelProto) -> None:
    path.write_bytes(model.SerializeToString(deterministic=True))


def load_graph(path: Path) -> onnx.ModelProto:
    """The graph alone; its large initialisers stay in the data file beside it."""
    return onnx.load(path, load_external_data=False)


def array_of(tensor: TensorProto, folder: Contents | None) -> Array:
    """The values of an initialiser; mapped, not read, where they lie in a data file of ``folder``."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return numpy_helper.to_array(tensor)
    if folder is None:
        raise ValueError(f"{tensor.name} lies in a data file, and no folder was given")
    if isinstance(folder, LazyStore):
        return folder.read(tensor.name)
    if tensor.data_type == TensorProto.INT4:
        return numpy_helper.to_array(tensor, base_dir=str(folder))
    info = ExternalDataInfo(tensor)
    return np.memmap(
        folder / info.location,
        dtype=helper.tensor_dtype_to_np_dtype(tensor.data_type).newbyteorder("<"),
        mode="r",
        offset=info.offset or 0,
        shape=tuple(tensor.dims),
    )
