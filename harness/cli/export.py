"""``snapgate export``: the raw samples of a journal as tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.cli.command import Subcommands, add_redaction, printer, redacted
from harness.results.export import INDEX_NAME, TableFormat, export
from harness.results.gate import read_session


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "export",
        description="Writes runs, generations, tokens, sensors, phases, positions, windows, measurements and the "
        "samples behind them, one tidy table a file, and index.json that describes them.",
    )
    parser.add_argument("--journal", type=Path, required=True, metavar="DIR", help="journal folder, or one file")
    parser.add_argument("--session", metavar="ID", help="which session (default: the newest)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--format", choices=[str(f) for f in TableFormat], default="csv", help="default: csv")
    add_redaction(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    journal, notes = read_session(arguments.journal, arguments.session)
    for note in (*notes, *journal.damaged):
        print(note, file=sys.stderr)
    export(redacted(journal, arguments), arguments.out, TableFormat(arguments.format), progress=printer("export"))
    print(f"wrote {arguments.out / INDEX_NAME}")
    return 0
