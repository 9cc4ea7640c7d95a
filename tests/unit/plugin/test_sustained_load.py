"""How long a sustained load goes on."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.plugin import suite_runs
from harness.plugin.suites import Bench, run_suite
from harness.record.run import SensorSeries


@pytest.fixture(scope="module")
def make():
    file = Path(__file__).resolve().parents[2] / "data" / "make_journals.py"
    spec = importlib.util.spec_from_file_location("make_journals", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Phone(Bench):
    """Runs nothing: the speed of each leg is given, and so is the temperature."""

    def tokens(self, n):
        return tuple(range(n))


def a_phone(make, legs_ms, celsius):
    asked = []

    def run(_artifact, workload, serial, _cell):
        number = len(asked)
        asked.append((workload.name, serial, workload.prompts[0].repetitions, workload.options.pace_tps))
        start, n = 10**9 * (1 + 100 * number), workload.prompts[0].repetitions
        gap = legs_ms[min(number, len(legs_ms) - 1)]
        made = []
        for repetition in range(n):
            g = make.generation(make.random.Random(1), repetition=repetition, start_ns=start, gap_ms=gap)
            made.append(g)
            start = g.end_ns
        at = tuple(10**9 * (1 + 100 * number + 10 * i) for i in range(10))
        values = tuple(celsius(t / 1e9) for t in at)
        heat = SensorSeries(name="npu", domain="npu", unit="celsius", state="ok", monotonic_ns=at, values=values)
        record = make.run_record(f"r{number}", make.runner_log(f"r{number}", made))
        return dataclasses.replace(record, workload=workload.name, sensors=(heat,))

    recipe = SimpleNamespace(context_length=512)
    phone = Phone(
        case=None, virtual=False, model=None, catalogue=None, results=None, artifacts=None,
        artifact=lambda: SimpleNamespace(manifest=SimpleNamespace(recipe=recipe)),
        once=lambda _name, made: made(), run=run, append=lambda _: None, say=lambda _: None,
    )  # fmt: skip
    return phone, asked


@pytest.mark.parametrize(
    ("legs_ms", "celsius", "n_legs"),
    [
        ((500.0,), lambda _: 40.0, 2),
        ((500.0, 600.0), lambda s: min(30.0 + s / 10, 50.0), 3),
        ((500.0,), lambda s: 30.0 + s / 10, 14),
    ],
)
def test_it_ends_in_a_steady_state_or_at_the_bound(make, legs_ms, celsius, n_legs):
    """A leg every 100 s. A phone that warms by 0.1 °C a second up to 50 °C is within 1 °C of it from 190 s on, so that
    only the third leg sees it stay there for 60 s; one that never stops warming goes on for all 14."""
    phone, asked = a_phone(make, legs_ms, celsius)
    run_suite(phone, "sustained")
    names = [name for name, *_ in asked]
    assert names == ["sustained"] * n_legs + ["cooldown", "paced"]
    assert asked[0][1] is None
    assert {serial for _, serial, *_ in asked[1:]} == {"SYNTHETIC-1"}
    rest = suite_runs.cooldown(range(8), suite_runs.PHONE)
    assert [prompt.pause_s for prompt in rest.prompts] == [300.0]
    assert rest.stall_s > 300  # a phone at rest says nothing
    assert asked[-1][2] == n_legs * suite_runs.PHONE.sustained
    assert asked[-1][3] == pytest.approx(0.7 * 1000 / legs_ms[-1], rel=0.01)
