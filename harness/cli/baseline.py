"""``snapgate baseline``: promote a session to a baseline, and judge another one against it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from harness.cli.command import Subcommands
from harness.errors import UserError
from harness.record.codec import write_json
from harness.record.vocabulary import EXIT_CODES
from harness.results.baseline import MAX_AGE_DAYS, SLACK_PERCENT, judge_against, promote
from harness.results.documents import to_markdown, write_documents
from harness.results.gate import read_baseline, read_session


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("baseline")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=type(parser))
    new = actions.add_parser("promote", help="make a baseline of a session, with the reason")
    new.add_argument("--reason", required=True, metavar="TEXT", help="why it may be the measure of others; kept in it")
    new.add_argument("--replace", action="store_true", help="replace the baseline that is there")
    new.set_defaults(run=_promote)
    check = actions.add_parser(
        "gate",
        help="judge a session against a baseline; the exit code is the verdict",
        description="Exit codes: 0 PASS, 10 FAIL, 11 INFRA, 12 INVALID, 13 INCONCLUSIVE, 14 NOT_COVERED.",
    )
    check.add_argument("--slack", type=float, default=SLACK_PERCENT, metavar="PERCENT", help="default: %(default)g")
    check.add_argument(
        "--max-age", type=float, default=MAX_AGE_DAYS, metavar="DAYS", help="an older one decides nothing (default: 30)"
    )
    check.add_argument("--release", action="store_true", help="synthetic data never passes")
    check.add_argument("--out", type=Path, metavar="DIR", help="write verdict.json, verdict.md, junit.xml")
    check.set_defaults(run=_gate)
    for action in (new, check):
        action.add_argument("--journal", type=Path, required=True, metavar="DIR", help="journal folder, or one file")
        action.add_argument("--session", metavar="ID", help="which session (default: the newest)")
        action.add_argument(
            "--baseline", type=Path, default=Path("baseline.json"), metavar="FILE", help="default: baseline.json"
        )


def _promote(arguments: argparse.Namespace) -> int:
    path: Path = arguments.baseline
    if path.exists() and not arguments.replace:
        raise UserError(
            f"{path} is there already",
            found="a baseline that others may be judged by",
            expected="no file, or the option --replace",
            next_step="name another file with --baseline, or replace it on purpose",
        )
    journal, notes = read_session(arguments.journal, arguments.session)
    made = promote(journal, reason=arguments.reason, now=datetime.now(UTC))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, made)
    for note in notes:
        print(note)
    print(f"wrote {path}: {len(made.figures)} figures of {', '.join(made.session_ids)}")
    return 0


def _gate(arguments: argparse.Namespace) -> int:
    baseline = read_baseline(arguments.baseline)
    journal, notes = read_session(arguments.journal, arguments.session)
    verdict = judge_against(
        journal,
        baseline,
        now=datetime.now(UTC),
        slack_percent=arguments.slack,
        max_age_days=arguments.max_age,
        release=arguments.release,
        notes=notes,
    )
    print(to_markdown(verdict), end="")
    if arguments.out is not None:
        paths = [arguments.out / name for name in ("verdict.md", "verdict.json", "junit.xml")]
        write_documents(verdict, markdown=paths[0], json_file=paths[1], junit=paths[2])
        for path in paths:
            print(f"wrote {path}")
    return EXIT_CODES[verdict.status]
