"""What is said of a file that did not arrive as it was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.arrival import Arrived, parse_description, parse_finish, wrong_pull, wrong_push
from harness.errors import HostError, TransferError
from harness.record.artifact import sha256_of

SHA = "ab" * 32


@pytest.mark.parametrize(
    ("text", "sha256", "n_bytes"),
    [
        (f"{SHA}  /f\n", SHA, None),
        (f"{SHA}  /f\n10\n", SHA, 10),
        (f"{SHA}  /f\n      10\n", SHA, 10),
        ("", "nothing", None),
    ],
)
def test_a_hash_on_the_phone_and_the_size_of_a_wrong_file_are_read(text: str, sha256: str, n_bytes: int | None) -> None:
    assert parse_finish(text) == Arrived(sha256=sha256, n_bytes=n_bytes)


def test_a_file_is_described_by_hash_and_size_and_noise_is_not_a_hash() -> None:
    assert parse_description(f"{SHA}  /f\n123\n", what="pull f", phone="P") == Arrived(sha256=SHA, n_bytes=123)
    for noise in ("", f"\x00\x1b[2J\n{SHA}  /f\n123\n", f"{SHA}  /f\n"):
        with pytest.raises(TransferError, match="pull f: what phone P says of the file is damaged"):
            parse_description(noise, what="pull f", phone="P")


def test_a_short_file_is_told_from_a_damaged_one_and_from_one_that_changed_here(tmp_path: Path) -> None:
    local = tmp_path / "f"
    local.write_bytes(b"12345")
    right = sha256_of(local)
    short = wrong_push(local, Arrived(sha256=SHA, n_bytes=3), expected=right, what="push f", phone="P")
    assert str(short).startswith("push f to phone P: cut short on the way; found: 3 of 5 bytes")
    damaged = wrong_push(local, Arrived(sha256=SHA, n_bytes=5), expected=right, what="push f", phone="P")
    assert str(damaged).startswith(f"push f to phone P: damaged on the way; found: sha256 {SHA}")
    # The store keeps no half file of a hash that can never come right; it tells by this.
    assert damaged.expected == short.expected == right
    assert isinstance(wrong_push(local, Arrived(sha256=right, n_bytes=5), expected=SHA, what="w", phone="P"), HostError)
    pulled = wrong_pull(Arrived(sha256=SHA, n_bytes=7), Arrived(sha256=right, n_bytes=9), what="pull f", phone="P")
    assert str(pulled).startswith("pull f from phone P: cut short on the way; found: 7 of 9 bytes")
