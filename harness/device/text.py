"""Text that a phone sent is untrusted: cut to a length and cleared of control characters before anyone sees it."""

from __future__ import annotations

import unicodedata


def printable(text: str, limit: int = 200) -> str:
    """``text`` on one line, white space collapsed, no control characters, at most ``limit`` characters (``…``: cut)."""
    # What cannot be shown need not be looked at: a phone may well send megabytes.
    text = text[: 64 * limit]
    kept = "".join(" " if c in "\r\n\t" else c for c in text if c in "\r\n\t" or unicodedata.category(c)[0] != "C")
    line = " ".join(kept.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable_lines(data: bytes, limit: int = 4000) -> str:
    """The last ``limit`` characters of output, line breaks kept, control characters and undecodable bytes removed."""
    text = data[-16 * limit :].decode("utf-8", errors="replace").replace("\r\n", "\n")
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c)[0] != "C").strip("\n")
    return kept if len(kept) <= limit else "…" + kept[-limit:]
