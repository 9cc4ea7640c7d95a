"""Accuracy: logits of every step against the fp32 reference on the host, and against what the graph itself allows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("accuracy_run")


def test_prefill_logits_are_near_fp32(verdict):
    verdict("prefill_snr_db")


def test_decode_logits_are_near_fp32(verdict):
    verdict("decode_snr_db")


def test_the_worst_decode_step_is_near_fp32(verdict):
    verdict("worst_decode_snr_db")


def test_the_relative_error_is_small(verdict):
    verdict("relative_l2")


def test_the_phone_is_as_near_to_fp32_as_the_graph_on_a_cpu(verdict):
    verdict("three_way_snr_gap_db")


def test_the_distribution_is_that_of_fp32(verdict):
    verdict("kl_nats_mean")
