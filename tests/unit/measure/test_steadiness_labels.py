"""Cold, warming, steady, throttled: by speed and temperature together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from harness.measure.steadiness import Condition, Temperature, leading_temperature, steadiness, unsettled
from harness.record.run import SensorSeries

MS = 1_000_000


def stamps(*levels, start_ns=5_000 * MS):
    """(gaps, ms) parts, with 1 % of noise from a fixed seed."""
    rng = np.random.default_rng(9)
    gaps = np.concatenate([ms * MS * (1 + 0.01 * rng.standard_normal(n)) for n, ms in levels]).astype(np.int64)
    return tuple(int(at) for at in start_ns + np.r_[0, np.cumsum(gaps)])


def heat(token_ns, times_s, celsius):
    """One reading a second along the given line; time counts from the first token."""
    seconds = np.arange(0.0, (token_ns[-1] - token_ns[0]) / 1e9)
    return Temperature(
        sensor="skin0",
        domain="skin",
        at_ns=(token_ns[0] + seconds * 1e9).astype(np.int64),
        celsius=np.round(np.interp(seconds, times_s, celsius), 1),
    )


def conditions(found):
    return [str(window.condition) for window in found.windows]


def test_a_flat_generation_without_a_temperature_is_steady():
    found = steadiness(stamps((300, 20.0)))
    assert conditions(found) == ["steady"]
    assert found.steady_tps == pytest.approx(50.0, rel=0.005)
    assert found.peak_tps == found.steady_tps
    assert found.tokens_to_throttle is None


def test_a_slow_start_is_cold():
    found = steadiness(stamps((100, 40.0), (400, 20.0)))
    assert conditions(found) == ["cold", "steady"]
    assert found.windows[1].first == pytest.approx(100, abs=3)
    assert found.tokens_to_throttle is None


def test_a_slow_down_with_heat_is_throttling():
    """500 gaps of 20 ms, then 500 of 40 ms: the first slow gap follows the 501st token, 10 s after the first."""
    tokens = stamps((500, 20.0), (500, 40.0))
    found = steadiness(tokens, heat(tokens, [0, 10, 30], [30.0, 40.0, 40.0]))
    assert conditions(found)[-1] == "throttled"
    assert found.tokens_to_throttle == pytest.approx(501, abs=5)
    assert found.seconds_to_throttle == pytest.approx(10.0, rel=0.02)
    assert found.peak_tps == pytest.approx(50.0, rel=0.01)


def test_a_slow_down_without_heat_is_not_blamed_on_heat():
    tokens = stamps((500, 20.0), (500, 40.0))
    found = steadiness(tokens, heat(tokens, [0, 30], [30.0, 31.0]))
    assert conditions(found)[-1] == "slowed"
    assert found.tokens_to_throttle is None
    assert found.seconds_to_throttle is None


def test_full_speed_is_warming_until_the_temperature_settles():
    """4000 gaps of 50 ms are 200 s; the temperature rises for 100 s and is within 1 °C of its end from 90 s on."""
    tokens = stamps((4000, 50.0))
    found = steadiness(tokens, heat(tokens, [0, 100, 200], [30.0, 40.0, 40.0]))
    assert conditions(found) == ["warming", "steady"]
    assert found.windows[1].first == pytest.approx(1800, abs=40)
    assert found.steady_tps == pytest.approx(20.0, rel=0.005)


def test_a_temperature_that_still_rises_is_no_steady_state():
    tokens = stamps((400, 50.0))
    found = steadiness(tokens, heat(tokens, [0, 20], [30.0, 40.0]))
    assert conditions(found) == ["warming"]
    assert found.steady_tps is None
    assert "skin0 had not settled" in found.unsteady


def test_a_speed_that_falls_until_the_end_is_no_steady_state():
    tokens = stamps((1000, 20.0), *((10, 20.0 + 0.2 * i) for i in range(1, 101)))
    found = steadiness(tokens)
    assert found.steady_tps is None
    assert "before the end" in found.unsteady


def test_a_return_to_full_speed_is_steady_again():
    found = steadiness(stamps((500, 20.0), (500, 40.0), (500, 20.0)))
    assert conditions(found) == ["steady", "throttled", "steady"]
    assert found.tokens_to_throttle == pytest.approx(501, abs=5)


def test_windows_cover_every_gap_once():
    found = steadiness(stamps((200, 30.0), (500, 20.0), (50, 25.0), (500, 40.0)))
    edges = [(window.first, window.end) for window in found.windows]
    assert edges[0][0] == 0
    assert edges[-1][1] == 1250
    assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize("tokens", [stamps((100, 20.0)), (1,) * 300, ()])
def test_too_few_gaps_or_a_stopped_clock_give_nothing(tokens):
    assert steadiness(tokens) is None


def series(name, values, *, domain="skin", unit="celsius", state="ok"):
    return SensorSeries(
        name=name, domain=domain, unit=unit, state=state, values=tuple(values),
        monotonic_ns=tuple(range(0, len(values) * 1000 * MS, 1000 * MS)),
    )  # fmt: skip


def test_the_sensor_that_rose_most_leads_and_sentinels_are_left_out():
    found = leading_temperature(
        [
            series("hot", [60.0, 61.0, 61.0, 61.0]),
            series("rising", [30.0, None, -273.0, 35.0, 36.0]),
            series("stuck", [0.0, 50.0, 90.0], state="suspect"),
            series("clock", [1e9, 2e9, 3e9], unit="hz"),
        ],
        0,
        10_000 * MS,
    )
    assert found.sensor == "rising"
    assert found.celsius.tolist() == [30.0, 35.0, 36.0]


def test_readings_outside_the_generation_do_not_count():
    assert leading_temperature([series("late", [30.0, 40.0, 50.0, 60.0])], 0, 1_500 * MS) is None


def test_every_condition_has_its_word():
    assert [str(c) for c in Condition] == ["cold", "warming", "steady", "throttled", "slowed"]


def readings(celsius, every_s=10.0):
    at = (np.arange(len(celsius)) * every_s * 1e9).astype(np.int64)
    return Temperature(sensor="npu", domain="npu", at_ns=at, celsius=np.array(celsius, dtype=np.float64))


FLAT = readings([30.0, 38.0, 40.0, *[40.5] * 8])
"""Within 1 °C of its end from 20 s to 100 s"""


def test_a_sustained_load_ends_at_five_generations_of_one_speed_and_settled_heat():
    assert unsettled([20.0, 20.0, 15.0, 15.1, 14.9, 15.0], FLAT) == "4 generations of one speed, 5 are needed"
    assert unsettled([20.0, 20.0, 15.0, 15.1, 14.9, 15.0, 15.05], FLAT) is None


def test_a_load_that_still_warms_up_or_slows_down_goes_on():
    warming = readings([30.0 + i for i in range(11)])
    assert "has not settled for 60 s" in unsettled([20.0] * 9, warming)
    assert "drifts by -1.5 %" in unsettled([20.0, 20.0, 19.9, 19.7, 19.7], FLAT)


def test_without_a_temperature_twice_as_many_generations_are_needed():
    assert unsettled([20.0] * 9, None) == "9 generations of one speed, 10 are needed"
    assert unsettled([20.0] * 10, None) is None
