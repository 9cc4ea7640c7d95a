"""Endurance: load, talk, unload, again and again. Nothing grows, drifts or changes its answer."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("endurance_run")]


def test_number_of_rounds(verdict):
    verdict("endurance_rounds")


def test_no_answer_changes(verdict):
    verdict("changed_answers")


def test_speed_does_not_drift(verdict):
    verdict("slowdown_per_round")


def test_loading_does_not_drift(verdict):
    verdict("load_slowdown_per_round")
