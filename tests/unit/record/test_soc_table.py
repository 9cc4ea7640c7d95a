"""The SoC catalogue and the precision floors."""

from __future__ import annotations

import pickle

import pytest

from harness.errors import PhoneLostError, UserError
from harness.soc import BY_MARKER, BY_PART, PRECISION_FLOORS, SOCS, Precision, check_precision, find_soc


@pytest.mark.parametrize("name", ["gen3", "GEN3", "SM8650", "sm8650"])
def test_a_soc_is_found_by_marker_or_part_in_any_case(name):
    assert find_soc(name).marketing_name == "Snapdragon 8 Gen 3"
    assert (find_soc(name).soc_number, find_soc(name).htp_arch) == (57, 75)


@pytest.mark.parametrize("name", ["", "gen4", "SM9999"])
def test_an_unknown_soc_is_refused_with_the_list(name):
    with pytest.raises(UserError, match=r"gen3 \(SM8650\)"):
        find_soc(name)


def test_parts_markers_and_numbers_are_unique():
    assert len(BY_PART) == len(BY_MARKER) == len(SOCS) == len({soc.soc_number for soc in SOCS})


def test_the_markers_of_the_test_plan_exist():
    assert {"gen1", "gen1p", "gen2", "gen3", "elite", "elite5"} <= set(BY_MARKER)


def test_fp16_is_refused_below_v73_and_w8a16_runs_everywhere():
    for soc in SOCS:
        check_precision(Precision.W8A16, soc)
    check_precision(Precision.FP16, find_soc("gen2"))
    with pytest.raises(UserError, match=r"fp16 does not run on Snapdragon 8 Gen 1.*v69.*v73"):
        check_precision(Precision.FP16, find_soc("gen1"))


@pytest.mark.parametrize(
    ("precision", "refused"),
    [
        ("fp16", {"sd888", "gen1", "gen1p"}),
        ("w8a16", set()),
        ("w8a16-fp16attn", {"sd888", "gen1", "gen1p"}),
        ("w8a8", set()),
        ("w4a16", set()),
        ("w4a16-b32", {"sd888"}),
    ],
)
def test_which_precision_each_soc_refuses(precision, refused):
    found = set()
    for soc in SOCS:
        try:
            check_precision(Precision(precision), soc)
        except UserError:
            found.add(soc.marker)
    assert found == refused


def test_every_precision_has_a_floor_with_its_source():
    assert set(PRECISION_FLOORS) == set(Precision)
    assert all(floor.source for floor in PRECISION_FLOORS.values())


def test_a_refusal_names_what_the_soc_does_run():
    with pytest.raises(UserError, match=r"next step: choose w8a16, w8a8, w4a16, or a newer SoC"):
        check_precision(Precision.W4A16_B32, find_soc("sd888"))


def test_an_error_names_thing_found_expected_and_next_step_and_survives_a_process_boundary():
    error = PhoneLostError("the phone went away", found="offline", expected="device", next_step="replug it")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is PhoneLostError
    assert str(again) == "the phone went away; found: offline; expected: device; next step: replug it"
    assert again.transient is True
