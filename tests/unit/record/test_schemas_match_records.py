"""The JSON schemas shared with device_runtime say exactly what the dataclasses say."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from pathlib import Path, PurePosixPath

import jsonschema
import pytest

import harness.record
from harness.record import job, runner
from harness.record.job import Job

FOLDER = Path(harness.record.__file__).parent / "schema"
SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", PurePosixPath: "string"}


def read(name):
    return json.loads((FOLDER / name).read_text())


def reachable(*roots):
    """The dataclasses a record is made of, by name."""
    found = {}
    pending = list(roots)
    while pending:
        kind = pending.pop()
        if dataclasses.is_dataclass(kind) and kind.__name__ not in found:
            found[kind.__name__] = kind
            pending.extend(typing.get_type_hints(kind).values())
        pending.extend(typing.get_args(kind))
    return found


def check_type(hint, schema, where):
    """The schema allows the type of the field and no other JSON type."""
    if isinstance(hint, types.UnionType):
        inner = next(part for part in typing.get_args(hint) if part is not type(None))
        if "anyOf" in schema:
            assert schema["anyOf"][1] == {"type": "null"}, where
            check_type(inner, schema["anyOf"][0], where)
        else:
            assert schema["type"] == [SCALARS[inner], "null"], where
    elif typing.get_origin(hint) is tuple:
        assert schema["type"] == "array", where
        check_type(typing.get_args(hint)[0], schema["items"], where)
    elif dataclasses.is_dataclass(hint):
        assert schema == {"$ref": f"#/$defs/{hint.__name__}"}, where
    elif issubclass(hint, enum.Enum):
        assert schema == {"type": "string", "enum": [word.value for word in hint]}, where
    else:
        assert schema["type"] == SCALARS[hint], where


def check_same_fields(kind, schema, *, tag=None):
    where = kind.__name__
    fields = {field.name: field for field in dataclasses.fields(kind)}
    properties = dict(schema["properties"])
    if tag is not None:
        assert properties.pop("type") == {"const": tag}, where
    assert list(properties) == list(fields), where
    assert schema["additionalProperties"] is False, where
    needed = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    assert schema["required"] == ([] if tag is None else ["type"]) + needed, where
    for name, hint in typing.get_type_hints(kind).items():
        check_type(hint, properties[name], f"{where}.{name}")


def test_the_job_schema_has_the_fields_of_the_job_and_no_others():
    schema = read("job.schema.json")
    kinds = reachable(Job)
    assert sorted(schema["$defs"]) == sorted(kinds)
    for name, kind in kinds.items():
        check_same_fields(kind, schema["$defs"][name])


def test_the_record_schema_has_the_fields_of_the_records_and_no_others():
    schema = read("runner_record.schema.json")
    tags = {kind.__name__: tag for tag, kind in runner._KINDS.items()}
    kinds = reachable(*runner._KINDS.values())
    assert sorted(schema["$defs"]) == sorted(kinds)
    assert [entry["$ref"] for entry in schema["oneOf"]] == [f"#/$defs/{name}" for name in tags]
    for name, kind in kinds.items():
        check_same_fields(kind, schema["$defs"][name], tag=tags.get(name))


@pytest.mark.parametrize("name", ["job.schema.json", "runner_record.schema.json"])
def test_the_schemas_are_valid_json_schema_2020_12(name):
    schema = read(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_schema_names_are_those_of_the_code():
    assert read("job.schema.json")["$defs"]["Job"]["properties"]["schema"]["const"] == job.JOB_SCHEMA
