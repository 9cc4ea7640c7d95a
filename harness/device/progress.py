"""How far a transfer is, with rate and time left."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Says how far a push is, at most once a second, and only when it takes longer than two seconds."""

    def __init__(self, what: str, size: int, say: Callable[[str], None]) -> None:
        self._what, self._size, self._say = what, size, say
        self._done = 0
        self._start = time.monotonic()
        self._next = self._start + 2

    def add(self, n: int) -> None:
        self._done += n
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 1
        rate = self._done / max(now - self._start, 1e-3)
        left = (self._size - self._done) / max(rate, 1.0)
        self._say(
            f"{self._what}: {self._done / 1e6:.0f} of {self._size / 1e6:.0f} MB, "
            f"{rate / 1e6:.0f} MB/s, {left:.0f} s left"
        )
