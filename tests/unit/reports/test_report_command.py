"""``snapgate report`` on a results folder whose artifacts are gone."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from harness.cli.main import main
from harness.journal import JournalWriter
from harness.record.codec import write_json
from harness.results.integrity import ARTIFACTS_NAME, ArtifactManifests


@pytest.fixture
def results(journals, tmp_path):
    """A run of ``thorough``, with the copies of the artifacts' manifests that a session leaves."""
    manifest = dataclasses.replace(journals.thorough_manifest(), accuracy=journals.manifest().accuracy)
    journal = journals.thorough()
    folder = tmp_path / "results"
    writer = JournalWriter(folder / "journal" / "s1.jsonl")
    writer.append(journal.sessions[0])
    writer.append(dataclasses.replace(journal.runs[0], artifact_id=manifest.artifact_id))
    writer.close()
    write_json(folder / ARTIFACTS_NAME, ArtifactManifests(artifacts=(manifest, journals.manifest())))
    return folder


def render(results, tmp_path) -> str:
    command = ["report", "--journal", str(results / "journal"), "--artifacts", str(tmp_path / "gone")]
    assert main([*command, "--out", str(tmp_path / "again")]) == 0
    return (tmp_path / "again" / "report.html").read_text()


def test_the_layers_are_shown_from_the_copies_beside_the_journal(results, tmp_path) -> None:
    page = render(results, tmp_path)
    assert page.count('<figure class="chart" id="layers-') == 1
    data = json.loads(re.findall(r'id="snapgate-data">(.*?)</script>', page, re.DOTALL)[0])
    assert data["charts"]["layers-0"]["panels"][0]["series"][0]["y"] == [45, 44.25]


def test_without_the_copies_the_page_says_why_there_are_none(results, tmp_path) -> None:
    (results / ARTIFACTS_NAME).unlink()
    page = render(results, tmp_path)
    assert "Signal-to-noise ratio per layer: not measured: <bdi>no manifest of an artifact that ran is at hand" in page
