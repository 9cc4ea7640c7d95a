"""How text and numbers look in every report. Text of a phone is made harmless here and nowhere else.

A number is never formatted in a template: views ask this module for its text, and ``None`` is refused there, so that
"not measured" can never turn into 0 or an empty cell.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

MAX_TEXT: Final = 2000
"""Characters of one text that are shown; a longer one ends in an ellipsis and its length."""

NOT_MEASURED: Final = "not measured"

_KEPT_FORMAT_CHARACTERS: Final = frozenset("\u200c\u200d")
"""Joiners inside emoji and some scripts. They cannot reorder or hide text."""

_DECIMALS: Mapping[str, int] = MappingProxyType(
    {
        "ms": 1,
        "s": 2,
        "tok/s": 2,
        "dB": 1,
        "°C": 1,
        "%": 2,
        "nats": 4,
        "MiB": 1,
        "GiB": 2,
        "mW": 0,
        "mJ": 1,
        "count": 0,
        "tokens": 0,
        "logits": 3,
        "ratio": 5,
        "fraction": 4,
        "yes or no": 0,
        "ppl": 3,
        "": 4,
    }
)

_UNIT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "celsius": "°C",
        "degC": "°C",
        "C": "°C",
        "tps": "tok/s",
        "tokens/s": "tok/s",
        "db": "dB",
        "percent": "%",
        "perplexity": "ppl",
        "yes=1": "yes or no",
    }
)


def clean(text: str) -> str:
    """Text of unknown origin as it may be shown: ``harmless``, and cut to ``MAX_TEXT`` characters."""
    return harmless(text) if len(text) <= MAX_TEXT else f"{harmless(text[:MAX_TEXT])}… ({len(text)} characters)"


def harmless(text: str) -> str:
    """One line with no control, bidi or invisible character left.

    What is taken out is shown by its code point (``<U+202E>``), so that an attempt to deceive is seen, not hidden.
    Markup is not touched here: autoescape (HTML), ``script_json`` and ``markdown_text`` see to that.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = []
    for character in text:
        if character in "\n\r\t":
            shown.append(" ")
            continue
        category = unicodedata.category(character)
        hidden_format = category == "Cf" and character not in _KEPT_FORMAT_CHARACTERS
        if hidden_format or category in ("Cc", "Cs", "Co", "Zl", "Zp"):
            shown.append(f"<U+{ord(character):04X}>")
        else:
            shown.append(character)
    return "".join(shown)


def clean_tree(value: Any) -> Any:
    """``clean`` for every string of nested dicts and sequences, keys included; what is not finite becomes None."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): clean_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_tree(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def markdown_text(text: str) -> str:
    """``text`` cleaned, with every character that Markdown or its embedded HTML gives a meaning escaped."""
    escaped = []
    for character in clean(text):
        if character in "<>&":
            escaped.append({"<": "&lt;", ">": "&gt;", "&": "&amp;"}[character])
        elif character in "\\`*_[]|~#!@":
            escaped.append(f"&#{ord(character)};")
        else:
            escaped.append(character)
    return "".join(escaped).replace("://", "&#58;//")


def unit_name(unit: str) -> str:
    return "MiB" if unit == "bytes" else _UNIT_NAMES.get(unit, unit)


def number(value: float, unit: str = "", *, decimals: int | None = None) -> str:
    """``value`` with the decimals usual for ``unit``; what would vanish keeps two significant digits; never an exponent
    between 0.0001 and 10 million. From 10 000 on grouped by thin spaces; with a real minus sign."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    places = _DECIMALS.get(unit, 3) if decimals is None else decimals
    if decimals is None and value != 0 and abs(value) < 10.0**-places:
        if abs(value) < 1e-4:
            return f"{value:.1e}".replace("-", "−")
        places = 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{places}f}".replace(",", "\u202f" if abs(value) >= 9999.5 else "")
    if text.startswith("-"):
        text = "−" + text[1:] if float(text.replace("\u202f", "")) != 0 else text[1:]
    return text


def signed(value: float, unit: str = "", *, decimals: int | None = None) -> str:
    """As ``number``, with a plus sign for what is above zero."""
    text = number(value, unit, decimals=decimals)
    return "+" + text if value > 0 else text


def short_hash(digest: str) -> str:
    return clean(digest[:12])


def counted(n: int, one: str, many: str | None = None) -> str:
    """``1 run``, ``2 runs``."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def listing(items: Iterable[str], *, limit: int = 5) -> str:
    """Comma-separated; what is beyond ``limit`` is counted, not shown."""
    all_items = list(items)
    shown = ", ".join(all_items[:limit])
    return shown if len(all_items) <= limit else f"{shown} and {len(all_items) - limit} more"


def moment(stamp: str) -> str:
    """An ISO 8601 UTC stamp to the second, easier to read; any other text as it is."""
    matched = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", stamp)
    return f"{matched[1]} {matched[2]} UTC" if matched else clean(stamp)
