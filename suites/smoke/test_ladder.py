"""Smoke: a ladder. It stops at the first rung that fails, whose test says why; above it nothing is measured."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("smoke_run")


def test_1_the_libraries_load(verdict):
    verdict("smoke_libraries")


def test_2_the_device_opens(verdict):
    verdict("smoke_device")


def test_3_a_toy_graph_gives_the_right_tokens(verdict):
    verdict("smoke_toy_graph")


def test_4_one_shard_loads(verdict):
    verdict("smoke_shard")


def test_5_one_token_is_generated(verdict):
    verdict("smoke_token")
