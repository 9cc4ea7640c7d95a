"""Two transports of one phone are one phone."""

from __future__ import annotations

from harness.pool.local import PhoneInfo, without_duplicates
from harness.record.codec import from_json, to_json
from harness.record.run import DeviceFacts


def info(transport: str, serial: str, *, usable: bool = True) -> PhoneInfo:
    facts = DeviceFacts(
        transport=transport,
        serial=serial,
        fingerprint="f",
        model="m",
        part="SM8650",
        soc_source="ro.soc.model",
        abi="arm64-v8a",
        android_release="14",
        sdk_level=34,
        ram_bytes=None,
        boot_id="b",
        virtual=False,
    )
    return PhoneInfo(
        transport=transport, state="device", facts=facts, usable=usable, reason=None if usable else "why not"
    )


def test_usb_is_taken_before_the_network() -> None:
    kept = without_duplicates([info("10.0.0.2:5555", "S1"), info("S1", "S1")])
    assert [phone.transport for phone in kept] == ["S1"]


def test_a_usable_transport_is_taken_before_an_unusable_one() -> None:
    kept = without_duplicates([info("S1", "S1", usable=False), info("10.0.0.2:5555", "S1")])
    assert [phone.transport for phone in kept] == ["10.0.0.2:5555"]


def test_phones_that_cannot_be_asked_are_all_listed() -> None:
    silent = [PhoneInfo(transport=t, state="offline", facts=None, usable=False, reason="offline") for t in ("b", "a")]
    kept = without_duplicates([*silent, info("S1", "S1")])
    assert [phone.transport for phone in kept] == ["a", "b", "S1"]


def test_the_list_survives_json() -> None:
    phone = info("S1", "S1")
    assert from_json(to_json(phone), PhoneInfo, name="phone") == phone
