from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from harness.compiler.remembered import SETTLED_S, RememberedHashes, cache_file
from harness.record.artifact import sha256_of

OLD = time.time() + 3600
"""For a file that is written now, an hour later."""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"a" * 100)
    return path


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "hashes.json"


def hashes(memory: Path, now: float = OLD, smallest_bytes: int = 0) -> RememberedHashes:
    return RememberedHashes(file=memory, smallest_bytes=smallest_bytes, now=lambda: now)


def lie(memory: Path, digest: str) -> None:
    """Put another hash into the memory, to see whether it is asked."""
    data = json.loads(memory.read_text())
    for kept in data["files"].values():
        kept[-1] = digest
    memory.write_text(json.dumps(data))


LIE = "0" * 64


def test_an_unchanged_file_is_not_read_again(weights: Path, memory: Path) -> None:
    assert hashes(memory).sha256_of(weights) == sha256_of(weights)
    lie(memory, LIE)
    assert hashes(memory).sha256_of(weights) == LIE


def test_a_changed_file_is_read_again_even_with_its_old_size_and_mtime(weights: Path, memory: Path) -> None:
    hashes(memory).sha256_of(weights)
    lie(memory, LIE)
    status = weights.stat()
    time.sleep(0.02)
    weights.write_bytes(b"b" * 100)
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert weights.stat().st_mtime_ns == status.st_mtime_ns
    assert hashes(memory).sha256_of(weights) == sha256_of(weights)


def test_another_file_under_the_same_name_is_read(weights: Path, memory: Path) -> None:
    hashes(memory).sha256_of(weights)
    lie(memory, LIE)
    other = weights.with_name("other")
    other.write_bytes(b"c" * 100)
    other.replace(weights)
    assert hashes(memory).sha256_of(weights) == sha256_of(weights)


def test_a_file_written_just_before_is_not_remembered(weights: Path, memory: Path) -> None:
    written = weights.stat().st_ctime
    assert hashes(memory, now=written + SETTLED_S - 0.1).sha256_of(weights) == sha256_of(weights)
    assert not memory.exists()
    hashes(memory, now=written + SETTLED_S + 0.1).sha256_of(weights)
    assert memory.exists()


def test_settling_waits_until_new_files_can_be_remembered(weights: Path, memory: Path) -> None:
    RememberedHashes(file=memory, smallest_bytes=0).settle([weights])
    assert list(json.loads(memory.read_text())["files"]) == [str(weights.resolve())]


def test_small_files_are_hashed_each_time(weights: Path, memory: Path) -> None:
    hashes(memory, smallest_bytes=101).sha256_of(weights)
    assert not memory.exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1, "files": {"a": 3}}', '{"format": 2, "files": {}}'])
def test_a_damaged_memory_costs_a_hashing_and_no_error(weights: Path, memory: Path, text: str) -> None:
    memory.parent.mkdir()
    memory.write_text(text)
    assert hashes(memory).sha256_of(weights) == sha256_of(weights)


def test_a_memory_that_others_may_write_is_not_trusted(weights: Path, memory: Path) -> None:
    hashes(memory).sha256_of(weights)
    assert memory.stat().st_mode & 0o777 == 0o600
    lie(memory, LIE)
    memory.chmod(0o622)
    assert hashes(memory).sha256_of(weights) == sha256_of(weights)


def test_files_that_are_gone_are_forgotten(weights: Path, memory: Path, tmp_path: Path) -> None:
    other = tmp_path / "gone"
    other.write_bytes(b"d")
    for path in (other, weights):
        hashes(memory).sha256_of(path)
    other.unlink()
    (tmp_path / "new").write_bytes(b"e")
    hashes(memory).sha256_of(tmp_path / "new")
    assert {Path(name).name for name in json.loads(memory.read_text())["files"]} == {"model.safetensors", "new"}


def test_a_memory_that_cannot_be_written_costs_nothing(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert hashes(tmp_path / "file" / "hashes.json").sha256_of(weights) == sha256_of(weights)


def test_the_memory_lies_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "snapgate" / "hashes.json"
