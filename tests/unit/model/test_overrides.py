from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import UserError
from harness.model.checkpoint import Checkpoint

pytest.importorskip("onnx", reason="needs the prepare extra")
pytest.importorskip("safetensors", reason="needs the prepare extra")

import onnx

from harness.model.calibrate import Range
from harness.model.encodings_file import EncodingsFile, TensorEncoding, read_encodings, write_encodings
from harness.model.graph import build_graph
from harness.model.overrides import encodings_of, lay_over
from harness.model.quantize import Encoding, encoding_table, four_bit_weights, quantize_graph
from harness.model.recipes import SCHEMES
from harness.soc import Precision

B32 = SCHEMES[Precision.W4A16_B32]


@dataclass(frozen=True)
class Plain:
    model: Any
    table: dict[str, Encoding]
    weights: Any


@pytest.fixture(scope="module")
def plain(tiny_llama: Checkpoint) -> Plain:
    model = build_graph(tiny_llama, n_tokens=1, context_length=16)
    names = [value.name for value in model.graph.input] + [name for node in model.graph.node for name in node.output]
    table = encoding_table(dict.fromkeys(names, Range(low=-4.0, high=4.0)), 4, B32)
    return Plain(model=model, table=table, weights=four_bit_weights(model, B32))


def laid(plain: Plain, *activations: TensorEncoding, parameters: tuple[TensorEncoding, ...] = ()) -> Any:
    file = EncodingsFile(activations=activations, parameters=parameters)
    return lay_over(file, plain.model, plain.table, plain.weights, 4)


def sixteen(name: str, scale: float = 0.5, zero_point: int = 32768) -> TensorEncoding:
    return TensorEncoding(name=name, bits=16, scales=(scale,), zero_points=(zero_point,))


@pytest.mark.parametrize("layout", ["0.6.1", "1.0.0"])
def test_what_is_written_and_read_again_gives_the_same_graph(plain: Plain, tmp_path: Path, layout: str) -> None:
    def graph(table: Any, weights: Any, floats: Any) -> Any:
        return quantize_graph(plain.model, table, B32, weights, floats)

    first = graph(plain.table, plain.weights, ())
    file = encodings_of(plain.model, plain.table, (), [first])
    write_encodings(tmp_path / "e.json", file, layout)
    read = read_encodings(tmp_path / "e.json")
    if layout == "0.6.1":  # this layout has no place for blocks: activations only
        assert read.activations == file.activations
        return
    assert (read.activations, read.parameters) == (file.activations, tuple(file.parameters))
    again = lay_over(read, plain.model, plain.table, {}, 4)
    second = graph(again.table, again.weights, again.floats)

    def constants(model: Any) -> dict[str, Any]:
        return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    before, after = constants(first), constants(second)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name


def test_the_old_layout_keeps_one_encoding_a_channel(tmp_path: Path) -> None:
    weight = TensorEncoding(name="w", bits=8, scales=(0.5, 0.25), zero_points=(128, 128))
    write_encodings(tmp_path / "e.json", EncodingsFile(activations=(), parameters=(weight,)), "0.6.1")
    data = json.loads((tmp_path / "e.json").read_text())
    assert [entry["offset"] for entry in data["param_encodings"]["w"]] == [-128, -128]
    assert data["param_encodings"]["w"][0]["is_symmetric"] == "True"
    assert (data["param_encodings"]["w"][1]["min"], data["param_encodings"]["w"][1]["max"]) == (-32.0, 31.75)
    assert read_encodings(tmp_path / "e.json").parameters == (weight,)


def test_an_old_file_may_give_a_range_instead_of_a_scale(tmp_path: Path) -> None:
    entry = {"bitwidth": 16, "dtype": "int", "is_symmetric": "False", "min": -1.0, "max": 3.0}
    path = tmp_path / "e.json"
    path.write_text(json.dumps({"version": "0.6.1", "activation_encodings": {"x": [entry]}, "param_encodings": {}}))
    (found,) = read_encodings(path).activations
    assert found.scales == (4.0 / 65535,)
    assert found.zero_points == (16384,)


def test_a_pattern_reaches_every_tensor_it_fits(plain: Plain) -> None:
    found = laid(plain, sixteen("layer*_gate")).table
    assert {found[f"layer{n}_gate"] for n in range(4)} == {Encoding(scale=0.5, zero_point=32768)}
    assert found["layer0_up"] == plain.table["layer0_up"]


def test_a_later_entry_goes_over_an_earlier_one(plain: Plain) -> None:
    found = laid(plain, sixteen("layer*_gate"), sixteen("layer2_gate", 0.25)).table
    assert (found["layer1_gate"].scale, found["layer2_gate"].scale) == (0.5, 0.25)


def test_a_cache_keeps_one_encoding_whichever_of_its_tensors_is_named(plain: Plain) -> None:
    found = laid(plain, sixteen("layer1_all_keys")).table
    names = ("past_key_1_in", "layer1_key_rotated", "past_key_1_out", "layer1_all_keys")
    assert {found[name].scale for name in names} == {0.5}
    assert found["past_key_0_in"] == plain.table["past_key_0_in"]


def test_a_skipped_tensor_is_not_quantised(plain: Plain) -> None:
    result = laid(plain, TensorEncoding(name="layer*_masked_scores", bits=16, is_float=True))
    assert result.floats == tuple(f"layer{n}_masked_scores" for n in range(4))
    model = quantize_graph(plain.model, result.table, B32, result.weights, result.floats)
    readers = {name: node.op_type for node in model.graph.node for name in node.input}
    assert readers["layer2_masked_scores"] == "Softmax"
    assert readers["layer2_scores"] == "QuantizeLinear"


def test_a_weight_can_be_widened_to_eight_bits(plain: Plain) -> None:
    wide = laid(plain, parameters=(TensorEncoding(name="layer0_*_weight", bits=8),)).weights
    assert (wide["layer0_down_weight"].bits, wide["layer1_down_weight"].bits) == (8, 4)
    model = quantize_graph(plain.model, plain.table, B32, wide)
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kinds["layer0_down_weight_quantized"] == onnx.TensorProto.INT8
    assert kinds["layer1_down_weight_quantized"] == onnx.TensorProto.INT4


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (sixteen("layer9_gate"), "found: layer9_gate"),
        (TensorEncoding(name="logits", bits=8, scales=(1.0,), zero_points=(0,)), "found: 8 bits, 1 scales"),
        (TensorEncoding(name="logits", bits=16, is_float=True), "logits cannot be left in float"),
        (TensorEncoding(name="layer0_all_keys", bits=16, is_float=True), "layer0_all_keys cannot be left in float"),
        (sixteen("logits", 0.5, 70000), "offset out of range; found: -70000"),
    ],
)
def test_an_override_that_cannot_be_built_is_refused(plain: Plain, entry: TensorEncoding, message: str) -> None:
    with pytest.raises(UserError, match=message):
        laid(plain, entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (TensorEncoding(name="lm_head", bits=16), "found: 16 bits; expected: 4 or 8 bits"),
        (
            TensorEncoding(name="lm_head", bits=8, scales=(0.1,), zero_points=(127,)),
            "not symmetric; found: offset -127",
        ),
        (
            TensorEncoding(name="lm_head", bits=8, scales=(0.1, 0.2), zero_points=(128, 128)),
            "number of scales; found: 2",
        ),
        (TensorEncoding(name="no_such_weight", bits=8), "found: no_such_weight"),
    ],
)
def test_a_weight_override_that_cannot_be_built_is_refused(plain: Plain, entry: TensorEncoding, message: str) -> None:
    with pytest.raises(UserError, match=message):
        laid(plain, parameters=(entry,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as encodings"),
        ("{}", "is no encodings file"),
        ('{"activation_encodings": {"x": []}}', "activation_encodings: x has no encoding"),
        ('{"activation_encodings": {"x": [{"bitwidth": "w"}]}}', "x: bitwidth cannot be used; found: 'w'"),
        ('{"activation_encodings": [{"bw": 16}]}', "an encoding without a name"),
        ('{"activation_encodings": [{"name": "x", "bw": 16, "scale": [0]}]}', "x: scale cannot be used; found: 0"),
        (
            '{"activation_encodings": [{"name": "x", "bw": 8, "scale": [1], "offset": [1, 2]}]}',
            "1 scales and 2 offsets",
        ),
        ('{"param_encodings": {"x": [{"bitwidth": 8, "min": 1, "max": 2}]}}', "zero lies outside min and max"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_encodings(tmp_path / "e.json")
