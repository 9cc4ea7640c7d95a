"""A sustained load that ends in a steady state, beside one that waits for a fixed time: phone time and error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from noise import SD, Array, ar1

from harness.measure.steadiness import SETTLED_GENERATIONS, Temperature, last_level, unsettled
from harness.plugin.suite_runs import PHONE

FIXED_S = 180.0
N_TOKENS = 300
TOKEN_S = 0.05
N_MEASURED = 5
"""Generations after the fixed wait"""
LEG = PHONE.sustained
LEGS = PHONE.legs
START_S = 3.0
"""Of each leg but the first; the phone is taken not to cool meanwhile"""
QUICK_S, SLOW_S = 30.0, 60.0
CORRELATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Phone:
    """A phone under load from cold. Time counts from the first token."""

    celsius: Array
    """Each second"""
    constant_s: float
    """Time constant of its heat"""
    slower: float
    """ln of how much longer a token takes in the end"""
    knee_s: float
    ramp_s: float
    noise: Array
    """ln, of each generation"""

    def generation_s(self, number: int, at: float) -> float:
        middle = at + N_TOKENS * TOKEN_S / 2
        shape = self.slower * float(np.clip((middle - self.knee_s) / self.ramp_s, 0.0, 1.0))
        return N_TOKENS * TOKEN_S * float(np.exp(shape + self.noise[number]))

    def temperature(self, until_s: float) -> Temperature:
        n = int(until_s) + 1
        return Temperature(
            sensor="skin", domain="skin", at_ns=np.arange(n, dtype=np.int64) * 10**9, celsius=self.celsius[:n]
        )


def phone(rng: np.random.Generator) -> Phone:
    """Heat rises by 10 to 30 °C with a time constant of 10 to 90 s, and slows the phone by 5 to 30 %, over 1 to 20 s,
    when 50 to 95 % of the rise is reached."""
    constant, rise, share = rng.uniform(10, 90), rng.uniform(10, 30), rng.uniform(0.5, 0.95)
    seconds = np.arange(1200.0)
    celsius = 30 + rise * (1 - np.exp(-seconds / constant)) + 0.1 * rng.standard_normal(len(seconds))
    return Phone(
        celsius=np.round(celsius, 1),
        constant_s=float(constant),
        slower=float(np.log1p(rng.uniform(0.05, 0.30))),
        knee_s=float(-constant * np.log(1 - share)),
        ramp_s=float(rng.uniform(1, 20)),
        noise=ar1(rng, (LEG * LEGS + N_MEASURED,), CORRELATION, SD),
    )


def fixed(one: Phone) -> tuple[float, float]:
    """Seconds of phone time, and ln of the measured time of a token over that of the steady state."""
    at, number = 0.0, 0
    while at < FIXED_S:
        at += one.generation_s(number, at)
        number += 1
    speeds = []
    for later in range(N_MEASURED):
        took = one.generation_s(number + later, at)
        speeds.append(N_TOKENS / took)
        at += took
    return at, _error(one, speeds)


def detected(one: Phone) -> tuple[float, float]:
    """As ``fixed``, by the rule of the thermal suite."""
    at, speeds = 0.0, list[float]()
    for number in range(LEG * LEGS):
        at += START_S if number and number % LEG == 0 else 0.0
        took = one.generation_s(number, at)
        speeds.append(N_TOKENS / took)
        at += took
        if len(speeds) % LEG == 0 and unsettled(speeds, one.temperature(at)) is None:
            break
    level = last_level(speeds)
    return at, _error(one, level if len(level) >= SETTLED_GENERATIONS else speeds[-N_MEASURED:])


def _error(one: Phone, speeds: Sequence[float]) -> float:
    return float(np.log(1 / (TOKEN_S * np.exp(one.slower))) - np.log(np.median(speeds)))


def compared(rng: np.random.Generator, n: int) -> list[tuple[str, str, Array, Array]]:
    """Phones, rule, phone times (s) and errors of ``n`` phones: all of them, and those that warm quickly or slowly."""
    phones = [phone(rng) for _ in range(n)]
    constants = np.array([one.constant_s for one in phones])
    rules: dict[str, Callable[[Phone], tuple[float, float]]] = {
        "until a steady state": detected,
        f"fixed wait of {FIXED_S:.0f} s": fixed,
    }
    measured = {name: np.array([rule(one) for one in phones]).T for name, rule in rules.items()}
    groups = {
        "all": constants > 0,
        f"time constant below {QUICK_S:.0f} s": constants < QUICK_S,
        f"{QUICK_S:.0f} to {SLOW_S:.0f} s": (constants >= QUICK_S) & (constants < SLOW_S),
        f"above {SLOW_S:.0f} s": constants >= SLOW_S,
    }
    return [
        (group, name, times[chosen], errors[chosen])
        for group, chosen in groups.items()
        for name, (times, errors) in measured.items()
    ]
