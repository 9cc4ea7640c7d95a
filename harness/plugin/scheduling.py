"""xdist: all tests of one case go to one worker, so that each run is made once and each worker holds its own phone.

xdist's own ``loadgroup`` marks groups by renaming test items, which pytest 9.2 no longer lets it do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class CaseScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Groups tests by the case whose id stands in the test's brackets; a test without a case is a group of its own."""

    def __init__(self, config: pytest.Config, log: Any, case_ids: Sequence[str]) -> None:
        super().__init__(config, log)
        self._case_ids = sorted(case_ids, key=len, reverse=True)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self._case_ids)


def scope_of(nodeid: str, case_ids: Sequence[str]) -> str:
    """The first of ``case_ids`` (longest first) that the brackets of ``nodeid`` begin with or hold, else ``nodeid``."""
    _, bracket, inside = nodeid.partition("[")
    parameters = inside.removesuffix("]")
    for case_id in case_ids:
        if bracket and (
            parameters == case_id
            or parameters.startswith(f"{case_id}-")
            or parameters.endswith(f"-{case_id}")
            or f"-{case_id}-" in parameters
        ):
            return case_id
    return nodeid
