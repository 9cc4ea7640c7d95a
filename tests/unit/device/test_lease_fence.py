"""The fence: when somebody else's still stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.lease import Fence, default_state_dir, fence_holds, parse_fence

FENCE = Fence(holder="nightly", lock="lab1:/state/x.lock", nonce="n", boot_id="boot-1", valid_until_uptime_s=1000.0)
TEXT = (
    '{"holder": "nightly", "lock": "lab1:/state/x.lock", "nonce": "n", "boot_id": "boot-1",'
    ' "valid_until_uptime_s": 1000}'
)


def test_another_hosts_fence_stands_until_it_lapses() -> None:
    assert fence_holds(FENCE, boot_id="boot-1", uptime_s=999.9, own_lock="lab2:/state/x.lock")
    assert not fence_holds(FENCE, boot_id="boot-1", uptime_s=1000.0, own_lock="lab2:/state/x.lock")


def test_a_reboot_voids_a_fence() -> None:
    assert not fence_holds(FENCE, boot_id="boot-2", uptime_s=5.0, own_lock="lab2:/state/x.lock")


def test_whoever_holds_the_lock_behind_a_fence_knows_that_its_writer_is_dead() -> None:
    assert not fence_holds(FENCE, boot_id="boot-1", uptime_s=5.0, own_lock="lab1:/state/x.lock")


def test_no_fence_holds_nobody_back() -> None:
    assert not fence_holds(None, boot_id="boot-1", uptime_s=5.0, own_lock="lab1:/state/x.lock")


def test_a_fence_is_read_back_as_written() -> None:
    assert parse_fence(TEXT) == FENCE


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"holder": "x"}', TEXT.replace("1000", '"soon"'), TEXT.replace("1000", "null")]
)
def test_a_damaged_fence_is_none(text: str) -> None:
    assert parse_fence(text) is None


def test_a_holders_name_cannot_smuggle_control_characters() -> None:
    fence = parse_fence(TEXT.replace("nightly", "\\u001b[2Jx\\n"))
    assert fence is not None
    assert fence.holder == "[2Jx"


def test_the_state_folder_is_named_by_the_variable_first_and_xdg_second() -> None:
    assert default_state_dir({"SNAPGATE_STATE_DIR": "/s", "XDG_STATE_HOME": "/x"}) == Path("/s")
    assert default_state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/snapgate")
    assert default_state_dir({}) == Path.home() / ".local" / "state" / "snapgate"


@pytest.mark.parametrize("until", ["1e300", "1e999", "NaN"])
def test_a_fence_that_claims_the_phone_for_ever_holds_nobody_back(until: str) -> None:
    fence = parse_fence(TEXT.replace("1000", until))
    assert not fence_holds(fence, boot_id="boot-1", uptime_s=5.0, own_lock="lab2:/state/x.lock")


def test_a_fence_nested_without_end_is_none() -> None:
    assert parse_fence("[" * 2000) is None
