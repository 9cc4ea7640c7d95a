"""Records to JSON and back, to the bit, and nothing half read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

from harness.errors import UserError
from harness.record.codec import from_json, read_json, to_json, write_json
from harness.record.vocabulary import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    count: int
    size: float
    label: str
    flag: bool
    source: Source
    maybe: int | None = None
    pair: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    path: PurePosixPath | None = None


def data(**changes):
    return {"count": 3, "size": 1.5, "label": "a", "flag": True, "source": "phone", **changes}


def test_a_record_survives_json_to_the_bit():
    thing = Thing(
        count=2**53 + 1, size=0.1 + 0.2, label="ü\n", flag=False, source=Source.VIRTUAL, maybe=0, pair=(1e-300, -0.0),
        names=("x", "y"), path=PurePosixPath("/data/local/tmp"),
    )  # fmt: skip
    back = from_json(json.loads(json.dumps(to_json(thing))), Thing, name="t")
    assert back == thing
    assert math.copysign(1.0, back.pair[1]) == -1.0


def test_none_and_zero_are_told_apart():
    assert from_json(data(maybe=None), Thing, name="t").maybe is None
    assert from_json(data(maybe=0), Thing, name="t").maybe == 0


def test_an_integer_is_a_float_but_not_the_other_way():
    assert from_json(data(size=2), Thing, name="t").size == 2.0


@pytest.mark.parametrize(
    "changes",
    [
        {"count": "3"},
        {"count": True},
        {"count": 3.0},
        {"count": 2**63},
        {"maybe": -(2**63) - 1},
        {"size": 10**400},
        {"size": "1.5"},
        {"size": True},
        {"label": 5},
        {"flag": 1},
        {"source": "moon"},
        {"maybe": "0"},
        {"pair": [1.0]},
        {"names": [1]},
        {"unheard_of": 1},
    ],
)
def test_a_value_of_the_wrong_kind_or_name_is_refused_by_name(changes):
    with pytest.raises(UserError, match="line 7 is not a valid Thing") as caught:
        from_json(data(**changes), Thing, name="line 7")
    assert next(iter(changes)) in str(caught.value) or "unheard_of" in str(caught.value)


def test_a_missing_field_is_refused():
    broken = data()
    del broken["label"]
    with pytest.raises(UserError, match="label"):
        from_json(broken, Thing, name="t")


@pytest.mark.parametrize("value", [None, 5, "text", [], [1]])
def test_something_that_is_no_object_is_refused(value):
    with pytest.raises(UserError):
        from_json(value, Thing, name="t")


def test_writing_leaves_no_temporary_file_and_reading_gives_it_back(tmp_path):
    thing = from_json(data(), Thing, name="t")
    write_json(tmp_path / "t.json", thing)
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
    assert read_json(tmp_path / "t.json", Thing) == thing


def test_a_nan_is_not_written_and_the_old_file_stays(tmp_path):
    good = from_json(data(), Thing, name="t")
    write_json(tmp_path / "t.json", good)
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "t.json", from_json(data(size=math.nan), Thing, name="t"))
    assert read_json(tmp_path / "t.json", Thing) == good


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path):
    with pytest.raises(UserError, match=r"t\.json does not exist"):
        read_json(tmp_path / "t.json", Thing)
    (tmp_path / "t.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match=r"t\.json cannot be read as JSON"):
        read_json(tmp_path / "t.json", Thing)
