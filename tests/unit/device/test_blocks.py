"""Which blocks changed, checked by hand on small files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness.device.blocks import BLOCK, block_hashes, changed_runs, spans_of

N_BLOCKS = 600


def written(folder: Path, name: str, data: bytes) -> bytes:
    (folder / name).write_bytes(data)
    return block_hashes(folder / name)


def hashes(*values: int) -> bytes:
    return np.array(values, dtype="<u8").tobytes()


def test_each_block_has_the_head_of_its_own_sha256(tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(BLOCK * N_BLOCKS + 5)
    found = written(tmp_path, "f", data)
    assert len(found) == 8 * (N_BLOCKS + 1)
    for index in (0, 255, 256, 599, 600):
        block = data[index * BLOCK : (index + 1) * BLOCK]
        assert found[8 * index : 8 * index + 8] == hashlib.sha256(block).digest()[:8]


def test_an_empty_file_has_no_blocks(tmp_path: Path) -> None:
    assert written(tmp_path, "f", b"") == b""


def test_a_byte_changed_on_either_side_of_an_edge_changes_two_blocks(tmp_path: Path) -> None:
    data = bytearray(BLOCK * 5)
    before = written(tmp_path, "a", bytes(data))
    data[2 * BLOCK - 1] = data[2 * BLOCK] = 1
    assert changed_runs(written(tmp_path, "b", bytes(data)), before) == ((1, 2),)


@pytest.mark.parametrize(
    ("new", "old", "runs"),
    [
        ((1, 2, 3), (1, 2, 3), ()),
        ((9, 2, 9), (1, 2, 3), ((0, 1), (2, 1))),
        ((1, 2, 3, 4), (1, 2), ((2, 2),)),
        ((1,), (1, 2, 3), ()),
        ((1, 2), (), ((0, 2),)),
        ((9, 1, 2), (1, 2, 3), ((0, 3),)),
    ],
    ids=["equal", "two", "longer", "shorter", "nothing_there", "shifted"],
)
def test_runs_of_what_differs(new: tuple[int, ...], old: tuple[int, ...], runs: tuple[tuple[int, int], ...]) -> None:
    assert changed_runs(hashes(*new), hashes(*old)) == runs


def test_too_many_runs_are_joined_over_the_smallest_gaps() -> None:
    new = hashes(9, 0, 9, 0, 0, 0, 9, 0, 0, 9)
    old = hashes(*[0] * 10)
    assert changed_runs(new, old, most=4) == ((0, 1), (2, 1), (6, 1), (9, 1))
    assert changed_runs(new, old, most=3) == ((0, 3), (6, 1), (9, 1))
    assert changed_runs(new, old, most=2) == ((0, 3), (6, 4))
    assert changed_runs(new, old, most=1) == ((0, 10),)


def test_the_last_span_ends_with_the_file() -> None:
    assert spans_of(((1, 2), (4, 1)), 4 * BLOCK + 7) == ((BLOCK, 2 * BLOCK), (4 * BLOCK, 7))
