"""What the controller tells its workers, as plain JSON: the session and the phones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.plugin.phones import PhoneList


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    session_id: str
    phones: PhoneList
    part: int = 0
    """How often the session was resumed; each part writes journal files of its own."""
    live: str | None = None
    """Address of the controller's screen; None: there is none, write plain lines."""

    def journal_name(self, worker: str | None = None) -> str:
        """File name of a process; None: the controller."""
        part = f"part{self.part + 1}" if self.part else None
        return "-".join(name for name in (self.session_id, worker, part) if name is not None) + ".jsonl"

    def to_json(self) -> dict[str, Any]:
        return {"session_id": self.session_id, "phones": self.phones.to_json(), "live": self.live, "part": self.part}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Share:
        return cls(
            session_id=data["session_id"],
            phones=PhoneList.from_json(data["phones"]),
            live=data["live"],
            part=data["part"],
        )
