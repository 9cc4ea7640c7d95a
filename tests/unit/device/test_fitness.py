"""Waiting for a phone, refusing it, going on with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.device.conditions import conditions_from
from harness.device.fitness import Demand, Policy, goes_by, meet, refuse_unfit
from harness.errors import InfraError
from harness.record.run import Conditions


class Phone:
    """Its conditions over time, on a clock that only sleeping moves."""

    def __init__(self, *violations: tuple[str, ...]) -> None:
        self.answers = [replace(conditions_from(""), violations=found) for found in violations]
        self.now = 0.0
        self.said: list[str] = []

    def read(self) -> Conditions:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def meet(self, demand: Demand) -> Conditions:
        return meet(demand, self.read, phone="P1", say=self.said.append, sleep=self.sleep, clock=lambda: self.now)


def test_heat_is_waited_for_until_it_is_gone() -> None:
    phone = Phone(("thermal status 2",), ("cooling by 4.0 °C a minute",), ())
    met = phone.meet(Demand(policy=Policy.WAIT, longest_s=100))
    assert (met.violations, met.policy, met.waited_s) == ((), "wait", 20.0)
    assert phone.said[0] == "waiting for phone P1, at most 100 s more: thermal status 2"


def test_a_wait_ends_at_its_bound_with_what_is_still_violated() -> None:
    phone = Phone(("battery 45.0 °C > 40 °C",))
    met = phone.meet(Demand(policy=Policy.WAIT, longest_s=25))
    assert (met.violations, met.waited_s) == (("battery 45.0 °C > 40 °C",), 25.0)


def test_what_no_wait_mends_is_not_waited_for() -> None:
    phone = Phone(("thermal status 2", "charging"))
    assert phone.meet(Demand(policy=Policy.WAIT)).waited_s == 0.0
    assert not goes_by("battery 12 % < 20 %")


def test_to_proceed_is_to_read_once_and_to_keep_the_violations() -> None:
    phone = Phone(("thermal status 2",), ())
    assert phone.meet(Demand()).violations == ("thermal status 2",)


def test_to_refuse_names_every_violation_and_lets_a_fit_phone_pass() -> None:
    demand = Demand(policy=Policy.REFUSE)
    with pytest.raises(InfraError, match="P1 is not fit to be measured; found: charging; screen is on"):
        refuse_unfit(demand, Phone(("charging", "screen is on")).meet(demand), phone="P1")
    refuse_unfit(demand, Phone(()).meet(demand), phone="P1")
