"""``snapgate recompute``: the figures of a journal again, from its raw stamps."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from harness.cli.command import Subcommands, add_redaction, output_folder, redacted
from harness.plugin.conclusion import manifests_of
from harness.results.gate import read_session
from harness.results.summary import CHOICES, FORMATS, ROOFLINE, summary


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "recompute",
        description="Computes every figure of a journal again from its raw stamps. `snapgate metrics` says what each "
        "counts.",
    )
    parser.add_argument("--journal", type=Path, required=True, metavar="DIR", help="journal folder, or one file")
    parser.add_argument("--session", metavar="ID", help="which session (default: the newest)")
    parser.add_argument("--what", choices=CHOICES, default="measurements", help="default: measurements")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument(
        "--artifacts",
        type=Path,
        default=Path("artifacts"),
        metavar="DIR",
        help="folder of the artifacts, for --what roofline (default: artifacts)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")
    add_redaction(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    journal, notes = read_session(arguments.journal, arguments.session)
    journal = redacted(journal, arguments)
    for note in (*notes, *journal.damaged):
        print(note, file=sys.stderr)
    if arguments.out is not None:
        output_folder(arguments.out.parent)
    found = manifests_of(journal, arguments.artifacts) if arguments.what == ROOFLINE else ()
    manifests = {manifest.artifact_id: manifest for manifest in found}
    text = summary(journal, what=arguments.what, form=arguments.format, manifests=manifests)
    if arguments.out is None:
        print(text, end="")
        return 0
    temporary = arguments.out.with_name(f".{arguments.out.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(arguments.out)
    print(f"wrote {arguments.out}")
    return 0
