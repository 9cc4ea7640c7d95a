"""The canary: the toy graph of the ladder, the same work in every session. Its speed is the phone's, not the model's.

Held against a phone's own baseline by a gate (docs/gates.md), and against the other phones of its SoC in the report.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("smoke_run")


def test_speed_of_the_toy_graph(verdict):
    verdict("canary_tps")
