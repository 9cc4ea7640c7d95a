"""Memory over rounds of load, dialogues and unload: slopes with their intervals."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("endurance_run")]


def test_the_runner_does_not_grow_over_rounds(verdict):
    verdict("rss_growth_per_round")


def test_the_runner_does_not_grow_over_dialogues(verdict):
    verdict("rss_growth_per_dialogue")


def test_the_phone_loses_no_memory(verdict):
    verdict("free_memory_loss_per_round")
