from __future__ import annotations

import numpy as np

from harness.model.encoding import decode, encode, zero_element
from harness.record.artifact import TensorSpec
from harness.record.vocabulary import DType

BYTE = TensorSpec(name="b", dtype=DType.UFIXED8, shape=(1,), scale=0.5, zero_point=128)


def test_values_are_divided_by_the_scale_and_moved_to_the_zero_point() -> None:
    assert encode(np.array([0.0, 1.0, -1.0], np.float32), BYTE).tolist() == [128, 130, 126]


def test_halves_round_to_even() -> None:
    assert encode(np.array([0.25, 0.75, -0.25], np.float32), BYTE).tolist() == [128, 130, 128]


def test_values_outside_the_range_saturate() -> None:
    assert encode(np.array([1000.0, -1000.0], np.float32), BYTE).tolist() == [255, 0]


def test_elements_become_real_numbers_again() -> None:
    assert decode(np.array([128, 130, 0, 255], np.uint8), BYTE).tolist() == [0.0, 1.0, -64.0, 63.5]


def test_sixteen_bit_elements_do_not_wrap_when_they_are_centred() -> None:
    word = TensorSpec(name="w", dtype=DType.UFIXED16, shape=(1,), scale=1.0, zero_point=40000)
    assert decode(np.array([0, 65535], np.uint16), word).tolist() == [-40000.0, 25535.0]


def test_a_float_tensor_is_only_cast() -> None:
    half = TensorSpec(name="h", dtype=DType.FLOAT16, shape=(1,))
    assert encode(np.array([1.0 / 3.0], np.float32), half).dtype == np.float16
    assert zero_element(half) == 0


def test_zero_is_the_zero_point_of_a_quantised_tensor() -> None:
    assert zero_element(BYTE) == 128
