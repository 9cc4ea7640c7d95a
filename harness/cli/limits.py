"""``snapgate limits``: the gates of a limits file, and whether each has shown that it can tell good from bad."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from harness.cli.command import Subcommands
from harness.errors import UserError
from harness.record.verdict import Against, Limit
from harness.results.gate import read_limits, read_session
from harness.results.proofs import try_limits, with_proofs


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("limits")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=type(parser))
    listing = actions.add_parser("list", help="every gate, and whether it is tested")
    listing.set_defaults(run=_list)
    prove = actions.add_parser(
        "prove",
        help="try every gate on sessions whose answer is known",
        description="A gate is tested when it passed a known-good session and failed a known-bad one. "
        "Exit code 20 when a gate fails a known-good session.",
    )
    prove.add_argument("--good", type=Path, action="append", default=[], metavar="DIR", help="journal known to be good")
    prove.add_argument("--bad", type=Path, action="append", default=[], metavar="DIR", help="journal known to be bad")
    prove.add_argument("--write", action="store_true", help="write the result into the limits file")
    prove.add_argument(
        "--add", action="store_true", help="keep beside it what earlier sessions proved of gates that are unchanged"
    )
    prove.set_defaults(run=_prove)
    for action in (listing, prove):
        action.add_argument("--limits", type=Path, default=Path("suites/limits.toml"), metavar="FILE")


def _list(arguments: argparse.Namespace) -> int:
    limits = read_limits(arguments.limits)
    for limit in limits:
        state = f"UNTESTED  {limit.untested}" if limit.untested else "tested"
        print(f"{_named(limit):72} {state}")
    print(f"{sum(limit.untested is not None for limit in limits)} of {len(limits)} gates are untested")
    return 0


def _prove(arguments: argparse.Namespace) -> int:
    if not arguments.good and not arguments.bad:
        raise UserError("nothing to try the gates on", expected="at least one --good or --bad journal")
    path: Path = arguments.limits
    limits = read_limits(path)
    good, bad = ([read_session(folder)[0] for folder in folders] for folders in (arguments.good, arguments.bad))
    trials = try_limits(limits, good, bad)
    wrong = [trial for trial in trials if trial.wrong]
    for trial in trials:
        passed, failed = len(trial.proof.passed_on), len(trial.proof.failed_on)
        print(f"{_named(trial.limit):72} passed {passed} of {len(good)} good, failed {failed} of {len(bad)} bad")
    if wrong:
        raise UserError(
            f"{len(wrong)} gates fail a session that is said to be good",
            found="; ".join(f"{_named(trial.limit)} on {', '.join(trial.wrong)}" for trial in wrong[:5]),
            expected="a good session to pass every gate that it is judged by",
            next_step="correct the limit, or what was taken for good",
        )
    if arguments.write:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(with_proofs(path.read_text(encoding="utf-8"), trials, add=arguments.add), encoding="utf-8")
        temporary.replace(path)
        read_limits(path)
        print(f"wrote {path}")
    return 0


def _named(limit: Limit) -> str:
    place = " ".join(name for name in (limit.model, limit.precision, limit.kv, limit.soc) if name != "*") or "any"
    if limit.against is Against.BASELINE:
        return f"{limit.metric} of {place}: {limit.slack_percent:g} % of the baseline"
    bounds = [f"≥ {limit.minimum:g}"] if limit.minimum is not None else []
    bounds += [f"≤ {limit.maximum:g}"] if limit.maximum is not None else []
    return f"{limit.metric} of {place}: {', '.join(bounds)}"
