"""Float weights of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.model.safetensors_files import SafetensorsFiles
from harness.model.weight_source import QuantizedTensor

FLOAT_DTYPES: Final = ("F16", "BF16", "F32")
"""Element types of weights, as safetensors names them. All are read as float32, exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatWeights:
    """A WeightSource: every tensor a float."""

    stored: SafetensorsFiles

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.stored.tensors.items()}

    @property
    def files(self) -> tuple[Path, ...]:
        return self.stored.files

    def origin(self, name: str) -> Path:
        return self.stored.tensors[name].path

    def unreadable(self, name: str) -> tuple[str, str] | None:
        dtype = self.stored.tensors[name].dtype
        return None if dtype in FLOAT_DTYPES else (dtype, " or ".join(FLOAT_DTYPES))

    def read(self, name: str) -> NDArray[np.float32]:
        return self.stored.read(name).astype(np.float32)

    def quantized(self, name: str) -> QuantizedTensor | None:  # noqa: ARG002
        return None
