"""What is to go wrong next: a list the supervisor fills and the services draw from."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any

KINDS = (
    *("disconnect_push", "corrupt_push", "truncate_push", "no_space"),
    *("disconnect_pull", "corrupt_pull", "truncate_pull"),
    *("hang_shell", "no_exit", "crlf", "garbage_shell"),
)


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault of one kind.

    ``pattern`` is a shell pattern for the path pushed to, or the command line. ``after_bytes`` counts the bytes of that
    file: the point of the disconnect, of the failed write or of the cut, or the offset of the flipped byte. ``times``
    counts down.
    """

    kind: str
    pattern: str = "*"
    after_bytes: int = 0
    times: int = 1


class FaultList:
    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, request: dict[str, Any]) -> None:
        """Raises ValueError for a kind, name or value that no service would ever draw."""
        fault = Fault(**request)
        if fault.kind not in KINDS:
            raise ValueError(f"unknown fault {fault.kind!r}; one of {', '.join(KINDS)}")
        if fault.after_bytes < 0 or fault.times < 1:
            raise ValueError("after_bytes must be 0 or more, times 1 or more")
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()

    def take(self, kind: str, name: str) -> Fault | None:
        """The first fault of that kind whose pattern matches ``name``; one of its times is used up."""
        for fault in self._faults:
            if fault.kind == kind and fnmatch.fnmatchcase(name, fault.pattern):
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                return fault
        return None
