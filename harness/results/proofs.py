"""Gates tried on sessions whose answer is known: a limit that has never failed on bad data guards nothing.

A limit is *proved* when it passed at least one session known to be good and failed at least one known to be bad. What
it was tried on is written into its entry of limits.toml, with the fingerprint of the limit as it was then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.errors import UserError
from harness.journal import Journal
from harness.record.verdict import GateProof, Limit
from harness.record.vocabulary import Family, Status
from harness.results.gate import judge_journal
from harness.results.integrity import session_ids

_HEADER: Final = re.compile(r"^\s*\[\[\s*limit\s*\]\]")
_PROOF: Final = re.compile(r"^\s*proof\s*=\s*\{.*\}\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one limit did on all sessions. ``wrong``: known-good sessions that it failed."""

    limit: Limit
    proof: GateProof
    wrong: tuple[str, ...]


def try_limits(limits: Sequence[Limit], good: Iterable[Journal], bad: Iterable[Journal]) -> tuple[Trial, ...]:
    """Every limit on every session, in the order of ``limits``. A verdict that is neither PASS nor FAIL proves nothing.

    Each limit is tried alone, so that a more specific one of the same metric does not stand before it.
    """
    good, bad = tuple(good), tuple(bad)
    trials = []
    for limit in limits:
        plain = replace(limit, proof=None)
        on_good = [(_name(journal), _statuses(plain, journal)) for journal in good]
        on_bad = [(_name(journal), _statuses(plain, journal)) for journal in bad]
        trials.append(
            Trial(
                limit=limit,
                proof=GateProof(
                    of=limit.fingerprint,
                    passed_on=tuple(name for name, found in on_good if found == {Status.PASS}),
                    failed_on=tuple(name for name, found in on_bad if Status.FAIL in found),
                ),
                wrong=tuple(name for name, found in on_good if Status.FAIL in found),
            )
        )
    return tuple(trials)


def _statuses(limit: Limit, journal: Journal) -> set[Status]:
    judged = judge_journal(journal, [limit], required=frozenset({Family.ACCURACY}))
    return {v.status for v in judged.verdicts if v.limit == limit and v.value is not None}


def _name(journal: Journal) -> str:
    names = session_ids(journal)
    if len(names) != 1:
        raise UserError("a limit is tried on one session at a time", found=", ".join(names) or "no session")
    return names[0]


def joined(trial: Trial) -> GateProof:
    """What the limit did on these sessions and, as its entry says, on earlier ones, if it is still the same limit."""
    before = trial.limit.proof
    if before is None or before.of != trial.limit.fingerprint:
        return trial.proof
    return GateProof(
        of=trial.proof.of,
        passed_on=tuple(dict.fromkeys((*before.passed_on, *trial.proof.passed_on))),
        failed_on=tuple(dict.fromkeys((*before.failed_on, *trial.proof.failed_on))),
    )


def with_proofs(text: str, trials: Sequence[Trial], *, add: bool = False) -> str:
    """The text of a limits file with the ``proof`` of every limit; comments and order stay. Tried on nothing: none.

    ``add``: what earlier sessions proved of an unchanged limit stays too.
    """
    lines = text.removesuffix("\n").split("\n")  # not splitlines: a reason may hold U+2028 or U+0085
    starts = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    if len(starts) != len(trials):
        raise UserError(
            "the limits file cannot be written to",
            found=f"{len(starts)} headers, {len(trials)} limits",
            expected="each [[limit]] on a line of its own, none inside a text",
        )
    out = lines[: starts[0]] if starts else lines
    for start, end, trial in zip(starts, [*starts[1:], len(lines)], trials, strict=True):
        block = [line for line in lines[start:end] if not _PROOF.match(line)]
        last = max(i for i, line in enumerate(block) if line.strip() and not line.lstrip().startswith("#"))
        out += [*block[: last + 1], *_written(joined(trial) if add else trial.proof), *block[last + 1 :]]
    return "\n".join(out) + "\n"


def _written(proof: GateProof) -> list[str]:
    if not proof.passed_on and not proof.failed_on:
        return []
    passed, failed = (json.dumps(list(names)) for names in (proof.passed_on, proof.failed_on))
    return [f'proof = {{ of = "{proof.of}", passed_on = {passed}, failed_on = {failed} }}']
