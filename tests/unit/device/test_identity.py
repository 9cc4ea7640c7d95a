"""Properties of phones, in the form that ``getprop`` prints them, and the SoC read from them."""

from __future__ import annotations

import time

import pytest

from harness.device.identity import facts_from, parse_properties, read_soc, split_sections

PHONE = """\
[ro.boot.serialno]: [R5CX10ABCDE]
[ro.board.platform]: [pineapple]
[ro.build.fingerprint]: [maker/e1q/e1q:14/UP1A.231005.007/S921:user/release-keys]
[ro.build.version.release]: [14]
[ro.build.version.sdk]: [34]
[ro.product.cpu.abi]: [arm64-v8a]
[ro.product.model]: [SM-S921U]
[ro.product.marketname]: [Galaxy S24 [5G]]
[ro.serialno]: [R5CX10ABCDE]
[ro.soc.manufacturer]: [QTI]
[ro.soc.model]: [SM8650]
--snapgate boot_id
3fc1b1f2-5f0e-4c53-8c5a-0d2f0c3f8a11
--snapgate meminfo
MemTotal:        7591488 kB
--snapgate soc0
"""


def test_the_facts_of_a_phone_come_from_one_answer() -> None:
    facts, reason = facts_from(PHONE, "R5CX10ABCDE")
    assert reason is None
    assert (facts.serial, facts.part, facts.soc_source) == ("R5CX10ABCDE", "SM8650", "ro.soc.model")
    assert (facts.abi, facts.android_release, facts.sdk_level) == ("arm64-v8a", "14", 34)
    assert facts.ram_bytes == 7_773_683_712
    assert facts.boot_id == "3fc1b1f2-5f0e-4c53-8c5a-0d2f0c3f8a11"
    assert facts.virtual is False


def test_windows_line_ends_change_nothing() -> None:
    assert facts_from(PHONE.replace("\n", "\r\n"), "t") == facts_from(PHONE, "t")


def test_brackets_inside_a_value_are_kept() -> None:
    assert (
        parse_properties("[ro.product.marketname]: [Galaxy S24 [5G]]\n")["ro.product.marketname"] == "Galaxy S24 [5G]"
    )


def test_what_is_no_property_line_is_passed_over() -> None:
    assert parse_properties("getprop: not found\n[a]: [b]\ngarbage [x]: [y\n") == {"a": "b"}


def test_a_property_cannot_smuggle_control_characters_or_endless_text() -> None:
    value = parse_properties("[a]: [\x1b[31m" + "x" * 5000 + "]\n")["a"]
    assert value.startswith("[31mxxx")
    assert len(value) == 200


def test_the_virtual_mark_makes_a_phone_virtual() -> None:
    facts, _ = facts_from("[ro.snapgate.virtual]: [1]\n" + PHONE, "t")
    assert facts.virtual is True


def test_a_phone_without_a_serial_number_is_not_usable() -> None:
    text = "\n".join(line for line in PHONE.splitlines() if "serialno" not in line)
    assert facts_from(text, "t")[1] == "no serial number (ro.serialno is empty)"


def test_an_answer_without_properties_is_not_usable() -> None:
    assert facts_from("sh: getprop: not found\n", "t")[1] == "getprop gave no properties"


@pytest.mark.parametrize("model", ["SM8650", "SM8650-AC", "sm8650", "SM8650P", "SM8650_AB"])
def test_a_bin_suffix_belongs_to_the_same_part(model: str) -> None:
    assert read_soc({"ro.soc.model": model}).part == "SM8650"


def test_the_vendors_property_serves_where_the_standard_one_is_missing() -> None:
    reading = read_soc({"ro.vendor.qti.soc_model": "SM8550"})
    assert (reading.part, reading.source) == ("SM8550", "ro.vendor.qti.soc_model")


def test_the_kernels_node_serves_last() -> None:
    assert read_soc({}, "SM8450\n").source == "/sys/devices/soc0/machine"


def test_a_platform_name_alone_tells_no_part() -> None:
    reading = read_soc({"ro.board.platform": "taro", "ro.hardware": "qcom"})
    assert reading.part is None
    assert reading.reason is not None
    assert "platform taro alone does not tell the part" in reading.reason


def test_sources_that_name_different_parts_refute_each_other() -> None:
    reading = read_soc({"ro.soc.model": "SM8450", "ro.vendor.qti.soc_model": "SM8475"})
    assert reading.part is None
    assert reading.reason == (
        "the phone contradicts itself about its SoC: ro.soc.model says SM8450, ro.vendor.qti.soc_model says SM8475"
    )


def test_a_part_that_the_catalogue_does_not_know_is_named() -> None:
    reading = read_soc({"ro.soc.model": "SM6475"})
    assert reading.part is None
    assert reading.reason is not None
    assert reading.reason.startswith("SoC SM6475 is not in the catalogue (SM8350, ")


@pytest.mark.parametrize("model", ["Tensor G3", "MT6989", "SM86500", "XSM8650", "SM8650 or so"])
def test_what_is_no_part_number_is_not_taken_for_one(model: str) -> None:
    assert read_soc({"ro.soc.model": model}).part is None


def test_sections_are_split_at_their_marks() -> None:
    assert split_sections("a\n--snapgate one\nb\nc\n--snapgate two\n") == {"": "a", "one": "b\nc", "two": ""}


def test_a_value_of_several_lines_is_read_and_the_next_property_too() -> None:
    assert parse_properties("[a]: [one\ntwo]\n[b]: [x]\n") == {"a": "one two", "b": "x"}


def test_megabytes_of_properties_that_never_end_are_read_in_one_pass() -> None:
    began = time.process_time()
    found = parse_properties("[a]: [x\n" * 400_000 + "]\n[ro.serialno]: [S1]\n")
    assert time.process_time() - began < 20
    assert found["ro.serialno"] == "S1"
