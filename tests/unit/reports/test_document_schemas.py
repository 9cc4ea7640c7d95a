"""report.json and verdict.json are what their published schemas say."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

import harness.results
import reports
from harness.journal import Journal
from harness.record.verdict import Limit, RunVerdict, Verdict
from harness.results.derive import derive
from harness.results.documents import VERDICT_SCHEMA, verdict_json
from harness.results.gate import judge_journal
from reports.render import render_json
from reports.views import REPORT_SCHEMA

REPORT = json.loads((Path(reports.__file__).parent / "schema" / "report.schema.json").read_text())
VERDICT = json.loads((Path(harness.results.__file__).parent / "schema" / "verdict.schema.json").read_text())
NAMES = ["two_cells", "passing", "synthetic", "hostile", "nothing"]


def documents(journals, name):
    journal = Journal() if name == "nothing" else getattr(journals, name)()
    verdict = judge_journal(journal, journals.LIMITS)
    return json.loads(render_json(journal, verdict, derive(journal))), json.loads(json.dumps(verdict_json(verdict)))


@pytest.mark.parametrize("name", NAMES)
def test_every_document_satisfies_its_schema(journals, name):
    report, verdict = documents(journals, name)
    jsonschema.Draft202012Validator(REPORT).validate(report)
    jsonschema.Draft202012Validator(VERDICT).validate(verdict)


def test_the_schemas_are_of_the_versions_that_are_written():
    assert REPORT["properties"]["schema"]["const"] == REPORT_SCHEMA
    assert VERDICT["properties"]["schema"]["const"] == VERDICT_SCHEMA
    for schema in (REPORT, VERDICT):
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_verdict_schema_requires_every_field_of_the_records():
    definitions = VERDICT["$defs"]
    for kind, schema in ((Verdict, definitions["verdict"]), (Limit, definitions["limit"]), (RunVerdict, VERDICT)):
        assert {field.name for field in dataclasses.fields(kind)} <= set(schema["required"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict", "status"), "FINE"),
        (("verdict", "exit_code"), 1),
        (("verdicts", 0, "value"), "12"),
        (("measurements", 0, "source"), "guess"),
        (("runs", 0, "files_sha256"), None),
    ],
)
def test_a_wrong_document_is_refused(journals, path, value):
    report = copy.deepcopy(documents(journals, "passing")[0])
    place = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(REPORT).validate(report)
