"""Which cases a run has, and which worker gets a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.plugin.case import Case, cases
from harness.plugin.options import PhoneChoice, Settings, Spread
from harness.plugin.phones import NO_PHONES, PhoneList, markers_asked_for
from harness.plugin.scheduling import scope_of
from harness.plugin.share import Share
from harness.record.run import Cell, DeviceFacts
from harness.record.vocabulary import Family
from harness.soc import KvPrecision, Precision

GEN3 = Cell(model="tiny", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")


def phone(serial: str, part: str) -> DeviceFacts:
    return DeviceFacts(
        transport=f"usb:{serial}",
        serial=serial,
        fingerprint="f",
        model="m",
        part=part,
        soc_source="ro.soc.model",
        abi="arm64-v8a",
        android_release="15",
        sdk_level=35,
        ram_bytes=None,
        boot_id="b",
        virtual=False,
    )


def phones(*found: DeviceFacts) -> PhoneList:
    return PhoneList(adb_host="127.0.0.1", adb_port=1, phones=found, unusable=(), notes=(), lease_dir=None)


def settings(spread: Spread, *, release: bool = False) -> Settings:
    here = Path()
    return Settings(
        phones=PhoneChoice.AUTO,
        require_device=False,
        spread=spread,
        release=release,
        adb_host="127.0.0.1",
        adb_port=1,
        results=here,
        artifacts=here,
        models=here,
        limits=here,
        journal=None,
    )


TWO_GEN3 = phones(phone("A", "SM8650"), phone("B", "SM8650"), phone("C", "SM8550"))


def test_spread_any_runs_a_cell_once_on_no_phone_in_particular() -> None:
    assert list(cases([GEN3], settings(Spread.ANY), TWO_GEN3)) == [Case(cell=GEN3, serial=None)]


def test_spread_each_runs_a_cell_on_every_phone_of_its_soc() -> None:
    assert [case.serial for case in cases([GEN3], settings(Spread.EACH), TWO_GEN3)] == ["A", "B"]


def test_a_cell_without_a_phone_stays_so_that_it_can_be_named() -> None:
    assert [case.serial for case in cases([GEN3], settings(Spread.EACH), NO_PHONES)] == [None]


def test_a_case_is_named_by_the_marker_of_its_soc() -> None:
    assert Case(cell=GEN3, serial="A").id == "tiny-w8a16-kv8-gen3-A"


def test_virtual_phones_are_started_for_the_socs_that_the_expression_names() -> None:
    assert markers_asked_for("gen3 and not slow", ["gen2", "gen3", "elite"]) == ("gen3",)
    assert markers_asked_for("gen2 or elite", ["gen2"]) == ("gen2", "elite")


def test_an_expression_without_a_soc_asks_for_those_of_the_catalogue() -> None:
    assert markers_asked_for("", ["gen3", "gen2", "gen3"]) == ("gen3", "gen2")


@pytest.mark.parametrize(
    "nodeid",
    [
        "suites/a.py::t[tiny-w8a16-kv8-gen3]",
        "suites/a.py::t[tiny-w8a16-kv8-gen3-skin]",
        "suites/a.py::t[skin-tiny-w8a16-kv8-gen3]",
    ],
)
def test_all_tests_of_a_case_are_one_group(nodeid: str) -> None:
    assert scope_of(nodeid, ["tiny-w8a16-kv8-gen3"]) == "tiny-w8a16-kv8-gen3"


def test_a_case_whose_name_begins_another_ones_does_not_swallow_it() -> None:
    ids = ["tiny-w8a16-kv8-gen3-AB", "tiny-w8a16-kv8-gen3-A"]
    assert scope_of("t.py::t[tiny-w8a16-kv8-gen3-AB]", ids) == "tiny-w8a16-kv8-gen3-AB"
    assert scope_of("t.py::t[tiny-w8a16-kv8-gen3-A-skin]", ids) == "tiny-w8a16-kv8-gen3-A"


def test_a_test_without_a_case_is_a_group_of_its_own() -> None:
    assert scope_of("t.py::t[other]", ["tiny-w8a16-kv8-gen3"]) == "t.py::t[other]"


def test_workers_get_the_same_list_that_the_controller_made() -> None:
    share = Share(session_id="s", phones=TWO_GEN3)
    assert Share.from_json(share.to_json()) == share


def test_a_release_requires_performance_too() -> None:
    assert settings(Spread.ANY).required == {Family.ACCURACY, Family.PLACEMENT}
    assert settings(Spread.ANY, release=True).required == {Family.ACCURACY, Family.PLACEMENT, Family.PERFORMANCE}
