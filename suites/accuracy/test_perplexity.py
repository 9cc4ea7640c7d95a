"""Accuracy: perplexity on held-out text: fp32, the compiled graph on the host, and the phone, on the same windows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("accuracy_run")


def test_perplexity_is_that_of_fp32(verdict):
    verdict("perplexity_over_fp32_percent")


def test_perplexity_is_that_of_the_graph_on_a_cpu(verdict):
    verdict("perplexity_over_graph_percent")
