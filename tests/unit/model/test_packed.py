from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import CheckpointError
from harness.model.architecture import Role
from harness.model.checkpoint import Checkpoint, load_checkpoint
from harness.model.weight_source import QuantizedTensor

pytest.importorskip("safetensors", reason="needs the prepare extra")

NAME = "model.layers.0.self_attn.q_proj"
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}


def words(numbers: list[int]) -> int:
    """Eight numbers of four bits, the first lowest, as the int32 with these bits."""
    value = sum(number << (4 * at) for at, number in enumerate(numbers))
    return value - (1 << 32) if value >= 1 << 31 else value


def pack_gptq(values: np.ndarray, zeros: np.ndarray, *, stored_less: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(outputs, inputs) and (outputs, groups) to qweight (inputs / 8, outputs) and qzeros (groups, outputs / 8)."""
    qweight = [[words([int(v) for v in row[at : at + 8]]) for row in values] for at in range(0, values.shape[1], 8)]
    less = zeros.astype(int).T - stored_less
    qzeros = [[words(list(group[at : at + 8])) for at in range(0, len(group), 8)] for group in less]
    return np.array(qweight, np.int32), np.array(qzeros, np.int32)


def pack_awq(values: np.ndarray, zeros: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """To qweight (inputs, outputs / 8) and qzeros (groups, outputs / 8): outputs 0 2 4 6 1 3 5 7 from the lowest."""

    def pack(matrix: np.ndarray) -> np.ndarray:
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return np.array(
            [[words([int(row[at + o]) for o in order]) for at in range(0, len(row), 8)] for row in matrix], np.int32
        )

    return pack(values.T), pack(zeros.T)


@pytest.fixture
def packed(make_checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A random model whose first query matrix is packed: 32 outputs, 32 inputs, one group (or as ``values`` has it)."""
    from safetensors.numpy import load_file, save_file

    def make(parts: dict[str, np.ndarray], options: dict[str, Any], **config: Any) -> Path:
        shutil.rmtree(tmp_path / "random-model", ignore_errors=True)
        folder = make_checkpoint(quantization_config=options, **config)
        tensors = load_file(folder / "model.safetensors")
        del tensors[f"{NAME}.weight"]
        tensors |= {f"{NAME}.{part}": values for part, values in parts.items()}
        save_file(tensors, folder / "model.safetensors")
        return folder

    return make


def grid(n_groups: int = 1, zero: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """values (32, 32), zero points (32, groups) and float16 scales (32, groups), random but for ``zero``."""
    random = np.random.default_rng(4)
    values = random.integers(0, 16, (32, 32), dtype=np.uint8)
    zeros = random.integers(1, 15, (32, n_groups), dtype=np.uint8)
    if zero is not None:
        zeros[:] = zero
    return values, zeros, random.uniform(0.001, 0.1, (32, n_groups)).astype(np.float16)


def real(values: np.ndarray, zeros: np.ndarray, scales: np.ndarray, groups: list[int]) -> np.ndarray:
    result = np.empty(values.shape, np.float64)
    for output in range(values.shape[0]):
        for at, group in enumerate(groups):
            result[output, at] = float(scales[output, group]) * (int(values[output, at]) - int(zeros[output, group]))
    return result


def query(checkpoint: Checkpoint) -> QuantizedTensor:
    tensor = checkpoint.quantized(Role.QUERY, 0)
    assert tensor is not None
    return tensor


def test_words_hold_eight_numbers_lowest_first() -> None:
    assert words([1, 2, 3, 4, 5, 6, 7, 0]) == 0x07654321
    assert words([15, 0, 0, 0, 0, 0, 0, 15]) == -268435441  # 0xF000000F


@pytest.mark.parametrize(("form", "less"), [("gptq", 1), ("gptq_v2", 0)])
def test_integers_of_gptq_are_kept_and_their_floats_exact(packed: Callable[..., Path], form: str, less: int) -> None:
    values, zeros, scales = grid()
    qweight, qzeros = pack_gptq(values, zeros, stored_less=less)
    assert qweight.shape == (4, 32)
    assert qzeros.shape == (1, 4)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}
    parts["g_idx"] = np.zeros(32, np.int32)
    checkpoint = load_checkpoint(packed(parts, {**GPTQ, "checkpoint_format": form}))
    tensor = query(checkpoint)
    assert np.array_equal(tensor.values, values)
    assert np.array_equal(tensor.zero_points, zeros)
    assert np.array_equal(checkpoint.weight(Role.QUERY, 0), real(values, zeros, scales, [0] * 32))


def test_integers_of_awq_are_kept_and_their_floats_exact(packed: Callable[..., Path]) -> None:
    values, zeros, scales = grid()
    qweight, qzeros = pack_awq(values, zeros)
    assert qweight.shape == (32, 4)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}
    checkpoint = load_checkpoint(packed(parts, AWQ))
    assert np.array_equal(query(checkpoint).values, values)
    assert np.array_equal(query(checkpoint).zero_points, zeros)
    assert np.array_equal(checkpoint.weight(Role.QUERY, 0), real(values, zeros, scales, [0] * 32))


def test_awq_takes_its_outputs_from_a_word_in_its_own_order() -> None:
    qweight, _ = pack_awq(np.arange(8, dtype=np.uint8)[:, None], np.zeros((8, 1), np.uint8))
    assert int(qweight[0, 0]) == 0x75316420


def test_a_matrix_that_is_not_packed_stays_a_float(packed: Callable[..., Path]) -> None:
    values, zeros, scales = grid()
    qweight, qzeros = pack_gptq(values, zeros)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}
    checkpoint = load_checkpoint(packed(parts, GPTQ))
    assert checkpoint.quantized(Role.KEY, 0) is None
    assert checkpoint.weight(Role.KEY, 0).shape == (16, 32)


def wide(packed: Callable[..., Path], size: int, groups: list[int], zero: int = 8) -> Checkpoint:
    """The down matrix widened to 128 inputs: group sizes of 32, 64 and 128, and any order of groups."""
    from safetensors.numpy import load_file, save_file

    n_groups = max(groups) + 1
    random = np.random.default_rng(6)
    values = random.integers(0, 16, (32, 128), dtype=np.uint8)
    scales = random.uniform(0.001, 0.1, (32, n_groups)).astype(np.float16)
    zeros = np.full((32, n_groups), zero, np.uint8)
    qweight, qzeros = pack_gptq(values, zeros)
    name = "model.layers.0.mlp.down_proj"
    first_values, first_zeros, first_scales = grid(zero=8)
    first = pack_gptq(first_values, first_zeros)
    first_parts = {"qweight": first[0], "qzeros": first[1], "scales": np.ascontiguousarray(first_scales.T)}
    folder = packed(first_parts, {**GPTQ, "group_size": size}, intermediate_size=128)
    tensors = load_file(folder / "model.safetensors")
    for layer in range(2):
        for part in ("gate", "up"):
            tensors[f"model.layers.{layer}.mlp.{part}_proj.weight"] = np.zeros((128, 32), np.float32)
    tensors["model.layers.1.mlp.down_proj.weight"] = np.zeros((32, 128), np.float32)
    del tensors[f"{name}.weight"]
    tensors |= {f"{name}.qweight": qweight, f"{name}.qzeros": qzeros, f"{name}.scales": np.ascontiguousarray(scales.T)}
    tensors[f"{name}.g_idx"] = np.array(groups, np.int32)
    save_file(tensors, folder / "model.safetensors")
    checkpoint = load_checkpoint(folder)
    assert np.array_equal(checkpoint.weight(Role.DOWN, 0), real(values, zeros, scales, groups))
    return checkpoint


@pytest.mark.parametrize("size", [32, 64, 128])
def test_symmetric_groups_are_held_by_blocks_of_32(packed: Callable[..., Path], size: int) -> None:
    checkpoint = wide(packed, size, [at // size for at in range(128)])
    tensor = checkpoint.quantized(Role.DOWN, 0)
    assert tensor is not None
    assert tensor.why_not_blocks(32) is None
    assert checkpoint.notes == ("2 of 2 four-bit weights lie on a grid that blocks of 32 hold",)


def test_groups_in_act_order_are_read_exactly_and_said_not_to_fit(packed: Callable[..., Path]) -> None:
    (note,) = wide(packed, 32, [at % 4 for at in range(128)]).notes
    assert note.startswith("1 of 2 four-bit weights")
    assert "1 do not: groups that are not runs of 32 successive inputs (act-order)" in note


def test_asymmetric_zero_points_are_read_exactly_and_said_not_to_fit(packed: Callable[..., Path]) -> None:
    (note,) = wide(packed, 64, [at // 64 for at in range(128)], zero=5).notes
    assert "1 do not: zero points other than 8, which the HTP ignores" in note


def test_the_options_may_lie_in_a_file_of_their_own(packed: Callable[..., Path]) -> None:
    values, zeros, scales = grid()
    qweight, qzeros = pack_gptq(values, zeros)
    folder = packed({"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}, GPTQ)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "quantize_config.json").write_text('{"bits": 4, "group_size": 32, "desc_act": false}')
    checkpoint = load_checkpoint(folder)
    assert np.array_equal(query(checkpoint).values, values)
    assert "quantize_config.json" in checkpoint.sha256


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**GPTQ, "bits": 8}, r"bits cannot be used; found: 8; expected: 4"),
        ({**GPTQ, "group_size": 16}, r"group_size cannot be used; found: 16; expected: 32, 64, 128, -1"),
        ({**GPTQ, "checkpoint_format": "marlin"}, r"checkpoint_format cannot be used; found: 'marlin'"),
        ({**AWQ, "version": "gemv"}, r"version cannot be used; found: 'gemv'"),
        ({"quant_method": "bitsandbytes"}, r"quant_method cannot be used; found: 'bitsandbytes'; expected: 'gptq'"),
        ({**GPTQ, "group_size": 64, "quant_method": "awq"}, r"parts of model.layers.0.self_attn.q_proj do not fit"),
    ],
)
def test_a_packing_that_is_not_read_is_refused_by_name(
    packed: Callable[..., Path], options: dict[str, Any], message: str
) -> None:
    values, zeros, scales = grid()
    qweight, qzeros = pack_gptq(values, zeros)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(packed(parts, options))


def test_a_zero_point_that_writers_disagree_about_is_refused(packed: Callable[..., Path]) -> None:
    values, zeros, scales = grid()
    zeros[3] = 16
    qweight, qzeros = pack_gptq(values, zeros)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}
    with pytest.raises(CheckpointError, match=r"q_proj.qzeros of .* either 0 or 16"):
        load_checkpoint(packed(parts, GPTQ))


def test_a_group_that_is_not_there_is_refused(packed: Callable[..., Path]) -> None:
    values, zeros, scales = grid()
    qweight, qzeros = pack_gptq(values, zeros)
    parts = {"qweight": qweight, "qzeros": qzeros, "scales": np.ascontiguousarray(scales.T)}
    parts["g_idx"] = np.full(32, 1, np.int32)
    with pytest.raises(CheckpointError, match=r"g_idx of .* names a group that is not there; found: 1 to 1"):
        load_checkpoint(packed(parts, GPTQ))


def test_a_missing_part_is_refused(packed: Callable[..., Path]) -> None:
    values, zeros, scales = grid()
    qweight, _ = pack_gptq(values, zeros)
    with pytest.raises(CheckpointError, match=r"parts of .*q_proj do not fit each other; found: qweight \(4, 32\), sc"):
        load_checkpoint(packed({"qweight": qweight, "scales": np.ascontiguousarray(scales.T)}, GPTQ))


@pytest.mark.parametrize("size", [32, 64, 128])
def test_a_grid_that_fits_becomes_blocks_without_rounding(packed: Callable[..., Path], size: int) -> None:
    held_grids = pytest.importorskip("harness.model.held").HeldGrids
    checkpoint = wide(packed, size, [at // size for at in range(128)])
    grid = held_grids(checkpoint, 32)["layer0_down_weight"]
    assert grid.steps.shape == (128, 32)
    assert grid.scales.shape == (4, 32)
    assert (grid.steps.min(), grid.steps.max()) == (-8, 7)
    real = grid.steps * np.repeat(grid.scales, 32, axis=0)
    assert np.array_equal(real, checkpoint.weight(Role.DOWN, 0).T)


def test_what_is_folded_into_the_query_is_folded_into_its_scales(packed: Callable[..., Path]) -> None:
    held_grids = pytest.importorskip("harness.model.held").HeldGrids
    graph = pytest.importorskip("harness.model.graph")
    from onnx import numpy_helper

    checkpoint = wide(packed, 32, [at // 32 for at in range(128)])
    model = graph.build_graph(checkpoint, n_tokens=1, context_length=8)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    grids = held_grids(checkpoint, 32)
    assert sorted(grids) == ["layer0_down_weight", "layer0_query_weight"]
    for name, grid in grids.items():
        assert grid.steps * np.repeat(grid.scales, 32, axis=0) == pytest.approx(weights[name], rel=1e-6)


def test_a_grid_that_does_not_fit_is_left_out(packed: Callable[..., Path]) -> None:
    held_grids = pytest.importorskip("harness.model.held").HeldGrids
    assert "layer0_down_weight" not in held_grids(wide(packed, 32, [at % 4 for at in range(128)]), 32)


def test_one_scale_a_column_holds_only_one_group(packed: Callable[..., Path]) -> None:
    held_grids = pytest.importorskip("harness.model.held").HeldGrids
    assert list(held_grids(wide(packed, 64, [at // 64 for at in range(128)]), None)) == ["layer0_query_weight"]
    assert len(held_grids(wide(packed, 128, [0] * 128), None)) == 2
