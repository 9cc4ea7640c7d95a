"""Phones of one lab do not fight for the same CPUs."""

from __future__ import annotations

from harness.virtual.supervisor import share_cpus


def test_one_phone_has_all_cpus() -> None:
    assert share_cpus([0, 1, 2, 3], 1) == [{0, 1, 2, 3}]


def test_two_phones_on_two_cpus_have_one_each() -> None:
    assert share_cpus([4, 7], 2) == [{4}, {7}]


def test_cpus_are_shared_out_whole() -> None:
    assert share_cpus([0, 1, 2, 3, 4], 2) == [{0, 2, 4}, {1, 3}]


def test_more_phones_than_cpus_take_turns() -> None:
    assert share_cpus([0, 1], 3) == [{0}, {1}, {0}]
