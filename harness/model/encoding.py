"""Real numbers to the integers of a graph's tensors and back: real = scale * (q - zero_point)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.record.artifact import TensorSpec
from harness.record.vocabulary import DType

NUMPY_DTYPES: Mapping[DType, np.dtype[Any]] = MappingProxyType(
    {
        DType.INT32: np.dtype(np.int32),
        DType.FLOAT16: np.dtype(np.float16),
        DType.FLOAT32: np.dtype(np.float32),
        DType.UFIXED8: np.dtype(np.uint8),
        DType.UFIXED16: np.dtype(np.uint16),
        DType.SFIXED8: np.dtype(np.int8),
        DType.SFIXED16: np.dtype(np.int16),
    }
)


def encode(values: NDArray[np.float32], spec: TensorSpec) -> NDArray[Any]:
    """``values`` as the tensor's elements.

    Quantised: divide in float32, round half to even, add the zero point, saturate: what ONNX QuantizeLinear defines.
    """
    dtype = NUMPY_DTYPES[spec.dtype]
    if spec.scale is None or spec.zero_point is None:
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    steps = np.rint(values.astype(np.float32) / np.float32(spec.scale)) + spec.zero_point
    elements: NDArray[Any] = np.clip(steps, limits.min, limits.max).astype(dtype)
    return elements


def decode(elements: NDArray[Any], spec: TensorSpec) -> NDArray[np.float32]:
    """The real numbers, as float32."""
    if spec.scale is None or spec.zero_point is None:
        return elements.astype(np.float32)
    centred = elements.astype(np.int32) - np.int32(spec.zero_point)
    return centred.astype(np.float32) * np.float32(spec.scale)


def zero_element(spec: TensorSpec) -> int:
    """The element that stands for 0.0: what empty cache slots hold."""
    return spec.zero_point if spec.zero_point is not None else 0
