"""Whether a phone is fit to be measured, and what is done when it is not: wait, refuse, or go on and say so.

Whoever goes on outside the conditions gets a record whose violations make every gated figure of speed, heat and power
INVALID; that is decided where figures are judged, not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from harness.errors import UnfitError
from harness.record.run import Conditions

EVERY_S: Final = 10.0
_PASSING: Final = ("thermal status ", "booted ", "warming ", "cooling ", "other programs ")
"""How violations begin that go by themselves. A cap on a clock may be heat too, but it is not known to be."""


class Policy(StrEnum):
    WAIT = "wait"
    """Until the conditions are met, within a bound; beyond it, proceed."""
    REFUSE = "refuse"
    PROCEED = "proceed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """``longest_s``: the bound of a wait. ``window_s``: over so long load and trend are taken."""

    policy: Policy = Policy.PROCEED
    longest_s: float = 600.0
    window_s: int = 1


PROCEED: Final = Demand()
WAIT: Final = Demand(policy=Policy.WAIT, window_s=5)


def goes_by(violation: str) -> bool:
    """Whether waiting can mend it: heat, load of others, a fresh boot. Not a battery that is low, nor a charger."""
    return violation.startswith(_PASSING) or (violation.startswith("battery ") and "°C" in violation)


def meet(
    demand: Demand,
    read: Callable[[], Conditions],
    *,
    phone: str,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Conditions:
    """The conditions that the run would start under; ``refuse_unfit`` then says whether it may.

    A wait ends when nothing is violated, when what is left is nothing that a wait mends, or at its bound.
    """
    began = clock()
    while True:
        conditions = read()
        waited = clock() - began
        passing = [text for text in conditions.violations if goes_by(text)]
        stuck = len(passing) < len(conditions.violations)
        if demand.policy is not Policy.WAIT or not passing or stuck or waited >= demand.longest_s:
            return replace(conditions, policy=str(demand.policy), waited_s=round(waited, 1))
        left = demand.longest_s - waited
        say(f"waiting for phone {phone}, at most {left:.0f} s more: {'; '.join(passing)}")
        sleep(min(EVERY_S, left))


def refuse_unfit(demand: Demand, conditions: Conditions, *, phone: str) -> None:
    """Raise ``UnfitError`` when the policy is to refuse and a condition is violated."""
    if demand.policy is Policy.REFUSE and conditions.violations:
        raise UnfitError(
            f"phone {phone} is not fit to be measured",
            found="; ".join(conditions.violations),
            expected="none of these",
            next_step="mend them, or choose --conditions wait or proceed",
        )
