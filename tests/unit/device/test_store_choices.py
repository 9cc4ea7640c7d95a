"""What the store decides without a phone: which files must go, and what a listing says."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.store import Resident, StoredFile, choose_evictions, parse_residents
from harness.errors import HostError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def resident(sha: str, last_used: int, n_bytes: int) -> Resident:
    return Resident(last_used=last_used, n_bytes=n_bytes, sha256=sha, name="f")


def test_nothing_goes_while_there_is_room() -> None:
    assert choose_evictions([resident(A, 1, 100)], needed_bytes=50, free_bytes=50, keep=frozenset()) == ()


def test_the_longest_unused_goes_first_and_no_more_than_needed() -> None:
    old, middle, new = resident(A, 1, 100), resident(B, 2, 100), resident(C, 3, 100)
    assert choose_evictions([new, old, middle], needed_bytes=150, free_bytes=0, keep=frozenset()) == (old, middle)


def test_what_is_in_use_never_goes() -> None:
    old, new = resident(A, 1, 100), resident(B, 2, 100)
    assert choose_evictions([old, new], needed_bytes=100, free_bytes=0, keep=frozenset({A})) == (new,)


def test_when_not_even_everything_suffices_nothing_is_chosen() -> None:
    assert choose_evictions([resident(A, 1, 100)], needed_bytes=101, free_bytes=0, keep=frozenset()) is None
    assert choose_evictions([resident(A, 1, 100)], needed_bytes=50, free_bytes=0, keep=frozenset({A})) is None


def test_a_listing_is_read_and_foreign_lines_passed_over() -> None:
    text = f"1700000000 12 {A}/libQnnHtp.so\r\nstat: */*: No such file\n1700000001 3 short/x\n"
    assert parse_residents(text) == (Resident(last_used=1_700_000_000, n_bytes=12, sha256=A, name="libQnnHtp.so"),)


def test_a_file_that_is_not_there_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="nowhere does not exist"):
        StoredFile.of(tmp_path / "nowhere", "x")


@pytest.mark.parametrize("place", ["a b", "x;rm", "$(x)", ""])
def test_a_place_that_a_shell_would_read_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(ValueError, match="not a place"):
        StoredFile.of(tmp_path / "f", place)
