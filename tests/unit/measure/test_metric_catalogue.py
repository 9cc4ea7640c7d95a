"""The catalogue is complete: every metric says what it counts."""

from __future__ import annotations

from harness.measure.metrics import HEADLINE, METRICS
from harness.record.vocabulary import Family


def test_every_metric_is_defined_under_its_own_name():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert len(metric.definition) >= 40, name
        assert metric.definition.endswith("."), name
        assert metric.unit, name


def test_speed_is_sampled_and_so_are_slopes_and_energy():
    everywhere = [metric for metric in METRICS.values() if not metric.optional]
    assert {metric.family for metric in everywhere if metric.sampled} == {Family.PERFORMANCE}
    assert all(metric.sampled for metric in everywhere if metric.family is Family.PERFORMANCE)
    others = {m.name for m in METRICS.values() if m.sampled and m.family is not Family.PERFORMANCE}
    assert others == {
        "energy_per_token_mj",
        "idle_mw",
        "rss_growth_per_round",
        "rss_growth_per_dialogue",
        "free_memory_loss_per_round",
    }


def test_units_are_suffixes_of_the_names():
    unit_of = {
        "_ms": "ms",
        "_tps": "tokens/s",
        "_bytes": "bytes",
        "_celsius": "celsius",
        "_db": "dB",
        "_percent": "percent",
    }
    for name, metric in METRICS.items():
        for suffix, unit in unit_of.items():
            if name.endswith(suffix):
                assert metric.unit == unit, name


def test_the_headline_of_a_family_belongs_to_it():
    for family, name in HEADLINE.items():
        assert METRICS[name].family is family
    assert {metric.family for metric in METRICS.values()} == set(HEADLINE)
