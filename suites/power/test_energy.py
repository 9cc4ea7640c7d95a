"""Power: energy per token beyond that of the idle phone, from the battery's own sensors; or why there is no figure."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("sustained_run")]


def test_energy_per_token(verdict):
    verdict("energy_per_token_mj")


def test_idle_power(verdict):
    verdict("idle_mw")


def test_return_to_idle(verdict):
    verdict("return_to_idle_s")
