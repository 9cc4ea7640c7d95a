"""Accuracy on task sets of the user's own (docs/suites.md), with what guessing scores beside each score."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("tasks_run")]


def test_score(verdict):
    verdict("task_score")


def test_score_of_fp32_on_the_same_items(verdict):
    verdict("task_score_fp32")


def test_chance(verdict):
    verdict("task_chance")
