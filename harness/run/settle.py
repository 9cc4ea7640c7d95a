"""Waits until a phone is fit for a speed figure, as far as waiting can make it so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from harness.device.fitness import goes_by
from harness.record.run import Conditions

_EVERY_S: Final = 10.0


def settle(
    read: Callable[[], Conditions],
    *,
    longest_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda _: None,
) -> Conditions:
    """The conditions at the end of the wait. What no wait mends (charging, little memory) is not waited for."""
    deadline = clock() + longest_s
    while True:
        conditions = read()
        passing = [text for text in conditions.violations if goes_by(text)]
        if not passing or len(passing) < len(conditions.violations) or clock() >= deadline:
            return conditions
        say(f"waiting for the phone to settle: {'; '.join(passing)}")
        sleep(_EVERY_S)
