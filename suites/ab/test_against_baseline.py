"""A/B (``--ab DIR``): the candidate is not slower than the baseline, on the same phone in the same session.

Each verdict is corrected for looks and metrics (``harness.measure.paired``); PASS means at most the smallest effect
worse, INCONCLUSIVE that the budget ended first.
"""

from __future__ import annotations

import pytest

from harness.results.ab import AB_METRICS

pytestmark = pytest.mark.usefixtures("ab_run")


@pytest.mark.parametrize("metric", AB_METRICS)
def test_the_candidate_is_no_worse_in(metric, verdict):
    verdict(metric)
