"""``snapgate report``: renders a journal again."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.command import Subcommands, add_redaction, redacted
from harness.plugin.conclusion import manifests_of, write_all
from harness.results.gate import judge_journal, read_limits, read_session


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("report", help="render the report of a journal again")
    parser.add_argument("--journal", type=Path, default=Path("out/journal"), metavar="DIR")
    parser.add_argument("--limits", type=Path, default=Path("suites/limits.toml"), metavar="FILE")
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), metavar="DIR")
    parser.add_argument("--session", metavar="ID", help="which session (default: the newest)")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR")
    add_redaction(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    journal, notes = read_session(arguments.journal, arguments.session)
    journal = redacted(journal, arguments)
    verdict = judge_journal(journal, read_limits(arguments.limits), notes=notes)
    arguments.out.mkdir(parents=True, exist_ok=True)
    manifests = manifests_of(journal, arguments.artifacts)
    for path in write_all(arguments.out, journal, verdict, manifests):
        print(f"wrote {path}")
    return 0
