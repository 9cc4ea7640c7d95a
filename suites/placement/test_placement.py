"""Placement: did the model run where it should have?"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("accuracy_run")


def test_no_node_is_left_to_the_cpu(verdict):
    verdict("cpu_nodes")


def test_each_graph_is_one_piece_on_the_htp(verdict):
    verdict("epcontext_nodes_per_graph")


def test_the_context_binary_is_for_this_htp_arch(verdict):
    verdict("dsp_arch_matches")
