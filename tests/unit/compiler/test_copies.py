from __future__ import annotations

from pathlib import Path

import pytest

from harness.compiler.copies import give_own


def test_a_file_of_a_stage_is_a_file_of_its_own_in_the_artifact(tmp_path: Path) -> None:
    (tmp_path / "stage").write_bytes(b"weights")
    assert give_own(tmp_path / "stage", tmp_path / "artifact")
    assert (tmp_path / "artifact").read_bytes() == b"weights"
    assert (tmp_path / "artifact").stat().st_nlink == 1
    (tmp_path / "artifact").write_bytes(b"changed")
    assert (tmp_path / "stage").read_bytes() == b"weights"


def test_above_the_limit_it_is_kept_once_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.compiler.copies._clone", lambda *_: False)
    (tmp_path / "stage").write_bytes(b"weights")
    assert not give_own(tmp_path / "stage", tmp_path / "artifact", limit_bytes=6)
    assert (tmp_path / "artifact").samefile(tmp_path / "stage")


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "stage").write_bytes(b"new")
    (tmp_path / "artifact").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        give_own(tmp_path / "stage", tmp_path / "artifact")
    assert (tmp_path / "artifact").read_bytes() == b"old"
