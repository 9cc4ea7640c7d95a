"""The weights of a Hugging Face folder: one safetensors file or several, tensors read one at a time.

safetensors (the ``prepare`` extra) is imported only when a file is opened. A file is mapped, never read whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from numpy.typing import NDArray

from harness.errors import CheckpointError, HostError

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_PICKLES: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    path: Path
    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it: F32, F16, BF16, I32, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetensorsFiles:
    """Where every tensor of a folder lies. ``files`` holds each file that was read, the index included."""

    files: tuple[Path, ...]
    tensors: Mapping[str, StoredTensor]

    def read(self, name: str) -> NDArray[Any]:
        """One tensor in its own element type (bfloat16 as ml_dtypes has it)."""
        with _open(self.tensors[name].path) as weights:
            values: NDArray[Any] = weights.get_tensor(name)
        return values


def find_safetensors(folder: Path) -> SafetensorsFiles:
    """``model.safetensors``, else the shards of the index, else the folder's only safetensors file."""
    single, index = folder / WEIGHTS, folder / INDEX
    others = sorted(folder.glob("*.safetensors"))
    if not single.is_file() and index.is_file():
        shards = _read_index(index)
        return SafetensorsFiles(files=(index, *sorted(set(shards.values()))), tensors=_shard_tensors(index, shards))
    path = single if single.is_file() or len(others) != 1 else others[0]
    if not path.is_file():
        raise _no_weights(folder, others)
    return SafetensorsFiles(files=(path,), tensors=_tensors_of(path))


def _no_weights(folder: Path, others: list[Path]) -> CheckpointError:
    pickles = [name for name in _PICKLES if (folder / name).is_file()]
    found = f"{len(others)} other safetensors files" if others else pickles[0] if pickles else "no weights"
    return CheckpointError(
        f"{folder / WEIGHTS} is missing",
        found=found,
        expected=f"{WEIGHTS}, or {INDEX} with its shards",
        next_step="a pickle can run code and is not read: fetch or convert to safetensors"
        if pickles
        else "fetch the checkpoint again, or check the path",
    )


def _read_index(index: Path) -> dict[str, Path]:
    """Tensor name to shard, from an index whose shards are all there and beside it."""
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = {str(name): str(file) for name, file in names.items()}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as exc:
        raise CheckpointError(
            f"{index} is damaged",
            found=f"{type(exc).__name__}: {exc}",
            expected="a JSON object with weight_map: tensor name to file name",
            next_step="fetch the checkpoint again",
        ) from exc
    for file in sorted(set(shards.values())):
        if PurePosixPath(file).name != file:
            raise CheckpointError(
                f"{index} names a file outside its folder", found=file, expected="file names without a folder"
            )
        if not (index.parent / file).is_file():
            raise CheckpointError(
                f"shard {file} of {index.parent} is missing",
                found=f"{len(set(shards.values()))} shards in {INDEX}",
                expected="every shard beside the index",
                next_step="fetch the missing file",
            )
    return {name: index.parent / file for name, file in shards.items()}


def _shard_tensors(index: Path, shards: Mapping[str, Path]) -> dict[str, StoredTensor]:
    present = {path: _tensors_of(path) for path in sorted(set(shards.values()))}
    for name, path in shards.items():
        if name not in present[path]:
            raise CheckpointError(
                f"tensor {name} is missing from {path}",
                found=f"{len(present[path])} other tensors",
                expected=f"the tensor, as {index.name} says",
                next_step="fetch index and shards of the same upload",
            )
    return {name: present[path][name] for name, path in shards.items()}


def _tensors_of(path: Path) -> dict[str, StoredTensor]:
    with _open(path) as weights:
        slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118
        return {
            name: StoredTensor(path=path, shape=tuple(tensor.get_shape()), dtype=tensor.get_dtype())
            for name, tensor in slices.items()
        }


def _open(path: Path) -> Any:
    """The safetensors file, memory-mapped: a context manager with ``keys``, ``get_slice`` and ``get_tensor``."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as exc:
        raise HostError(
            "reading a checkpoint needs safetensors, which is not installed",
            next_step="pip install 'snapgate[prepare]'",
        ) from exc
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as exc:
        raise CheckpointError(
            f"{path} is damaged",
            found=f"{exc} ({path.stat().st_size} bytes)",
            expected="a complete safetensors file",
            next_step="fetch the checkpoint again",
        ) from exc
