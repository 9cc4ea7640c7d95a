"""Pseudonyms for phones: serials, fingerprints, transports and boot ids, the same ones everywhere.

A pseudonym is an HMAC-SHA-256 of the value under a key of this lab: equal values get equal pseudonyms in every report
and export made with the same key, and without the key nobody can try serials until one fits. Every text of the journal
is searched, so a serial inside an error message is replaced too. Values that no record names cannot be found.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from harness.errors import HostError, UserError
from harness.journal import Journal
from harness.record.codec import from_json, to_json
from harness.record.run import DeviceFacts

_KEY_BYTES: Final = 32
_ALWAYS: Final = frozenset({"", "unknown", "none"})
_KINDS: Final = {"serial": "phone", "fingerprint": "build", "transport": "adb", "boot_id": "boot"}


def redaction_key(path: Path | None = None) -> bytes:
    """The lab's key, from ``path`` or ``~/.config/snapgate/redact.key``; made, for its owner only, if absent."""
    if path is None:
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        path = home / "snapgate" / "redact.key"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(secrets.token_hex(_KEY_BYTES) + "\n")
        text = path.read_text(encoding="ascii").strip()
        key = bytes.fromhex(text)
    except OSError as exc:
        raise HostError(f"the redaction key {path} cannot be read or made", found=str(exc)) from exc
    except ValueError as exc:
        raise UserError(f"{path} is not a redaction key", expected=f"{2 * _KEY_BYTES} hex digits") from exc
    if len(key) != _KEY_BYTES:
        raise UserError(
            f"{path} is not a redaction key",
            found=f"{2 * len(key)} hex digits",
            expected=f"{2 * _KEY_BYTES} hex digits",
        )
    return key


def redact(journal: Journal, key: bytes) -> Journal:
    """The journal with every identifying value replaced by its pseudonym, in whatever text it stands."""
    names = pseudonyms(journal, key)
    if not names:
        return journal
    longest_first = sorted(names, key=lambda value: (-len(value), value))
    pattern = re.compile("(?<![0-9A-Za-z])(?:" + "|".join(re.escape(v) for v in longest_first) + ")(?![0-9A-Za-z])")

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda match: names[match.group(0)], value)
        if isinstance(value, dict):
            return {replaced(name): replaced(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [replaced(item) for item in value]
        return value

    changed = {}
    for part in fields(Journal):
        entries = getattr(journal, part.name)
        if part.name == "damaged":
            changed[part.name] = tuple(replaced(entry) for entry in entries)
        else:
            changed[part.name] = tuple(
                from_json(_kept(to_json(entry), replaced), type(entry), name="redacted journal") for entry in entries
            )
    return Journal(**changed)


def pseudonyms(journal: Journal, key: bytes) -> dict[str, str]:
    """Value to pseudonym, for every identifying value that a record names."""
    found: dict[str, str] = {}

    def name(value: str, kind: str) -> None:
        if value.strip().lower() not in _ALWAYS and value not in found:
            found[value] = pseudonym(value, kind, key)

    for run in journal.runs:
        for field_name, kind in _KINDS.items():
            name(_field(run.device, field_name), kind)
    for session in journal.sessions:
        for phone in session.phones:
            name(phone.split(" ")[0], "phone")
    for comparison in journal.comparisons:
        name(comparison.serial, "phone")
    for baseline in journal.baselines:
        for figure in baseline.figures:
            name(figure.serial, "phone")
            for build in figure.identity.get("android_build", "").split(", "):
                name(build, "build")
    return found


def pseudonym(value: str, kind: str, key: bytes) -> str:
    digest = hmac.new(key, f"{kind}\0{value}".encode(), hashlib.sha256).hexdigest()
    return f"{kind}-{digest[:10]}"


def serial_renamer(key: bytes) -> Callable[[str], str]:
    """A serial to the pseudonym that it has in a redacted journal, for pages that are made of a store."""
    return lambda serial: serial if serial.strip().lower() in _ALWAYS else pseudonym(serial, "phone", key)


def _field(device: DeviceFacts, name: str) -> str:
    value: str = getattr(device, name)
    return value


def _kept(entry: dict[str, Any], replaced: Any) -> dict[str, Any]:
    """Replaces in all of an entry but its ids, by which entries find each other, and its cell."""
    same = ("run_id", "session_id", "reference_id", "cell", "source", "status")
    return {name: value if name in same else replaced(value) for name, value in entry.items()}
