"""``limits.toml``: limits by value or against a baseline, checked once when read.

::

    [[limit]]
    metric = "decode_snr_db"
    model = "tiny-llama"      # model, precision, kv, soc: "*" or absent matches anything
    precision = "w8a16"
    kv = "kv8"
    soc = "gen3"              # a part (SM8650) or a marker (gen3)
    minimum = 36.5            # minimum, maximum or both; a value equal to a limit passes
    reason = "measured 42.5 dB on ..."
    date = 2026-12-01
    source = "20261201T1722..." # the run or session that gave the figure, or "definition"
    slack = "6 dB"            # from that figure to the limit; "none" for a definition
    proof = { of = "...", passed_on = ["..."], failed_on = ["..."] }   # written by `snapgate limits prove`

    [[limit]]
    metric = "decode_tps"
    against = "baseline"      # of `snapgate baseline promote`, given by --baseline
    phone = "same"            # or "soc": any phone of the SoC
    slack_percent = 5.0       # how much worse is still no fault
    max_age_days = 30.0       # an older baseline decides nothing
    reason, date, source      # as above
"""

from __future__ import annotations

import datetime
import difflib
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from harness.errors import UserError
from harness.record.run import Cell
from harness.record.verdict import Against, GateProof, Limit
from harness.soc import BY_PART, KvPrecision, Precision, find_soc

ANY: Final = "*"
_MATCHED: Final = ("model", "precision", "kv", "soc")
_REQUIRED: Final = ("metric", "reason", "date", "source")
_BY_VALUE: Final = ("minimum", "maximum", "slack")
_BY_BASELINE: Final = ("slack_percent", "max_age_days", "phone")
_KEYS: Final = (*_REQUIRED, *_MATCHED, "against", *_BY_VALUE, *_BY_BASELINE, "proof")
_SIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "higher": ("minimum",),
    "lower": ("maximum",),
    "equal": ("minimum", "maximum"),
}
"""The bounds that a limit needs to be able to fail, by which way is better."""
_Refuse = Callable[..., NoReturn]
_HEADER: Final = re.compile(r"^\s*\[\[\s*limit\s*\]\]")


def load_limits(path: Path, *, metrics: Mapping[str, str], stored: bool = False) -> tuple[Limit, ...]:
    """All limits of the file, in its order. ``stored``: of a run that is over, which may be older than the keys
    ``source`` and ``slack``: what is not there is None.

    ``metrics``: every known metric and which way is better (``higher``, ``lower``, ``equal``). Raises ``UserError``
    naming file, line and limit for anything that is unknown, missing or could never fail.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        raise UserError(
            f"{path} cannot be read as TOML",
            found=str(exc) if not isinstance(exc, OSError) else exc.strerror,
            expected="a limits file such as suites/limits.toml",
            next_step="correct the file, or name another one with --limits",
        ) from exc
    unknown = sorted(set(data) - {"limit"})
    if unknown:
        raise UserError(
            f"{path}: unknown key",
            found=unknown[0],
            expected="only [[limit]] tables",
            next_step="take it out of the limits file",
        )
    entries = data.get("limit", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(
            f"{path}: limit is not a list of tables",
            found=repr(entries)[:80],
            expected="[[limit]] tables",
            next_step="write [[limit]], with two brackets",
        )
    lines = [number for number, line in enumerate(text.split("\n"), start=1) if _HEADER.match(line)]
    if len(lines) != len(entries):  # a header inside a multi-line string: better no line than a wrong one
        lines = [0] * len(entries)
    return tuple(
        _limit(entry, where=f"{path}:{line}" if line else f"{path}, limit {index}", metrics=metrics, stored=stored)
        for index, (entry, line) in enumerate(zip(entries, lines, strict=True), start=1)
    )


def _limit(entry: Mapping[str, Any], *, where: str, metrics: Mapping[str, str], stored: bool) -> Limit:
    name = entry.get("metric")
    if isinstance(name, str):
        where = f"{where} ({name})"

    def refuse(what: str, *, found: object, expected: str) -> NoReturn:
        raise UserError(f"{where}: {what}", found=repr(found), expected=expected, next_step="correct this limit")

    for key in entry:
        if key not in _KEYS:
            refuse("unknown key", found=key, expected=_suggest(key, _KEYS))
    for key in _REQUIRED:
        if key not in entry and not (stored and key == "source"):
            refuse(f"{key} is missing", found=sorted(entry), expected=f"{key} = ...")
    for key in ("metric", "reason", "source", "slack", *_MATCHED):
        if key in entry and (not isinstance(entry[key], str) or not entry[key].strip()):
            refuse(f"{key} is not a text", found=entry[key], expected="a non-empty string")
    if name not in metrics:
        refuse("unknown metric", found=name, expected=_suggest(str(name), metrics))
    for key, known in (("precision", Precision), ("kv", KvPrecision)):
        value = entry.get(key, ANY)
        if value != ANY and value not in list(known):
            refuse(f"unknown {key}", found=value, expected=", ".join((ANY, *known)))
    soc = entry.get("soc", ANY)
    if soc != ANY:
        try:
            find_soc(soc)
        except UserError as exc:
            raise UserError(
                f"{where}: {exc.what}", found=exc.found, expected=exc.expected, next_step="correct this limit"
            ) from exc
    against = entry.get("against", Against.VALUE)
    if against not in list(Against):
        refuse("unknown against", found=against, expected=", ".join(Against))
    foreign = _BY_BASELINE if against == Against.VALUE else _BY_VALUE
    for key in foreign:
        if key in entry:
            refuse(f"{key} means nothing for a limit against a {against}", found=key, expected=f"no {key}")
    if against == Against.VALUE:
        decides = _value(entry, metrics[str(name)], refuse, stored=stored)
    else:
        decides = _baseline(entry, refuse)
    return Limit(
        metric=str(name),
        **{key: entry.get(key, ANY) for key in _MATCHED},
        **decides,
        reason=entry["reason"],
        date=_date(entry["date"], refuse),
        source=entry.get("source"),
        proof=_proof(entry["proof"], refuse) if "proof" in entry else None,
    )


def _value(entry: Mapping[str, Any], better: str, refuse: _Refuse, *, stored: bool) -> dict[str, Any]:
    minimum, maximum = (_bound(entry[key], key, refuse) if key in entry else None for key in ("minimum", "maximum"))
    if minimum is None and maximum is None:
        refuse("no bound", found=sorted(entry), expected="minimum, maximum or both")
    if minimum is not None and maximum is not None and minimum > maximum:
        refuse("nothing can pass", found=f"minimum {minimum} > maximum {maximum}", expected="minimum <= maximum")
    for side in _SIDES[better]:
        if side not in entry:
            refuse(f"better is {better}, so it could hardly fail", found=f"no {side}", expected=f"a {side}")
    if "slack" not in entry and not stored:
        refuse("slack is missing", found=sorted(entry), expected='slack = ..., or "none" for a definition')
    return {"minimum": minimum, "maximum": maximum, "slack": entry.get("slack")}


def _baseline(entry: Mapping[str, Any], refuse: _Refuse) -> dict[str, Any]:
    for key in ("slack_percent", "max_age_days"):
        if key not in entry:
            refuse(f"{key} is missing", found=sorted(entry), expected=f"{key} = ...")
    slack, age = (_bound(entry[key], key, refuse) for key in ("slack_percent", "max_age_days"))
    if not 0 < slack < 100:
        refuse("slack_percent out of range", found=slack, expected="more than 0 and less than 100")
    if not age > 0:
        refuse("max_age_days out of range", found=age, expected="more than 0")
    phone = entry.get("phone", "same")
    if phone not in ("same", "soc"):
        refuse("unknown phone", found=phone, expected="same or soc")
    return {
        "against": Against.BASELINE,
        "slack_percent": slack,
        "max_age_days": age,
        "phone": phone,
        "slack": f"{slack:g} % worse",
    }


def _proof(value: object, refuse: _Refuse) -> GateProof:
    wanted = {"of": str, "passed_on": list, "failed_on": list}
    if not isinstance(value, dict) or set(value) != set(wanted):
        refuse("proof is not one", found=value, expected="what `snapgate limits prove --write` writes")
    texts = [value["of"], *value["passed_on"], *value["failed_on"]]
    if not all(isinstance(value[key], kind) for key, kind in wanted.items()) or not all(
        isinstance(text, str) for text in texts
    ):
        refuse("proof is not one", found=value, expected="what `snapgate limits prove --write` writes")
    return GateProof(
        of=value["of"], passed_on=tuple(map(str, value["passed_on"])), failed_on=tuple(map(str, value["failed_on"]))
    )


def _bound(value: object, key: str, refuse: _Refuse) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        refuse(f"{key} is not a number", found=value, expected="a finite number")
    return float(value)


def _date(value: object, refuse: _Refuse) -> str:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    try:
        return datetime.date.fromisoformat(value if isinstance(value, str) else "").isoformat()
    except ValueError:
        refuse("date is not a date", found=value, expected="2026-12-31")


def _suggest(word: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else "one of " + ", ".join(sorted(known))


def limit_for(limits: Iterable[Limit], metric: str, cell: Cell, against: Against = Against.VALUE) -> Limit | None:
    """The limit that judges ``metric`` of ``cell``: the one with the fewest ``*``; on a tie the later one."""
    best: Limit | None = None
    for limit in limits:
        if (
            limit.metric == metric
            and limit.against is against
            and matches(limit, cell)
            and (best is None or _weight(limit) >= _weight(best))
        ):
            best = limit
    return best


def provenance(limit: Limit) -> str:
    """Where a limit comes from, and what it has been tried on."""
    parts = [limit.date]
    parts += [f"source: {limit.source}"] if limit.source else []
    parts += [f"slack: {limit.slack}"] if limit.slack else []
    parts.append(f"gate untested: {limit.untested}" if limit.untested else "gate tested on good and bad data")
    return f"{limit.reason} ({'; '.join(parts)})"


def matches(limit: Limit, cell: Cell) -> bool:
    soc = BY_PART.get(cell.part)
    names = {cell.part.lower(), soc.marker if soc else ""}
    return (
        limit.model in (ANY, cell.model)
        and limit.precision in (ANY, str(cell.precision))
        and limit.kv in (ANY, str(cell.kv))
        and (limit.soc == ANY or limit.soc.lower() in names)
    )


def _weight(limit: Limit) -> int:
    return sum(getattr(limit, key) != ANY for key in _MATCHED)
