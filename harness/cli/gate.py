"""``snapgate gate``: judges a journal, with no phone."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from harness.cli.command import Subcommands, add_redaction, output_folder, redacted
from harness.measure.paired import SMALLEST_EFFECT
from harness.plugin.conclusion import write_all
from harness.record.vocabulary import EXIT_CODES
from harness.results.ab import judge_ab
from harness.results.documents import to_markdown, write_documents
from harness.results.gate import judge_journal, read_baseline, read_limits, read_session


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "gate",
        description="Judges one session of a journal by a limits file. Exit codes: 0 PASS, 10 FAIL, 11 INFRA, "
        "12 INVALID, 13 INCONCLUSIVE, 14 NOT_COVERED.",
    )
    parser.add_argument("--journal", type=Path, required=True, metavar="DIR", help="journal folder, or one file")
    parser.add_argument("--limits", type=Path, default=Path("suites/limits.toml"), metavar="FILE")
    parser.add_argument("--session", metavar="ID", help="which session (default: the newest)")
    parser.add_argument(
        "--baseline",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help='for limits with against = "baseline"; may be repeated (default: those that the session was given)',
    )
    parser.add_argument("--release", action="store_true", help="performance must pass too; synthetic data never does")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write report.html, report.json, report.md, verdict.json, junit.xml"
    )
    parser.add_argument(
        "--ab",
        action="store_true",
        help="judge the A/B comparisons of the journal (interleaved runs of a baseline and a candidate) by each other, "
        "not by limits; --out then gets verdict.json, verdict.md and junit.xml",
    )
    parser.add_argument(
        "--smallest-effect",
        type=float,
        metavar="PERCENT",
        help="with --ab: how much worse B has to be to matter (default: what the run was planned with, else "
        f"{100 * SMALLEST_EFFECT:g})",
    )
    add_redaction(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.ab:
        return _run_ab(arguments)
    limits = read_limits(arguments.limits)
    journal, notes = read_session(arguments.journal, arguments.session)
    if arguments.baseline:
        journal = dataclasses.replace(journal, baselines=tuple(read_baseline(path) for path in arguments.baseline))
    journal = redacted(journal, arguments)
    if arguments.out is not None:
        output_folder(arguments.out)
    verdict = judge_journal(journal, limits, release=arguments.release, notes=notes)
    print(to_markdown(verdict), end="")
    if arguments.out is not None:
        written = write_all(arguments.out, journal, verdict)
        write_documents(verdict, junit=arguments.out / "junit.xml")
        for path in (*written, arguments.out / "junit.xml"):
            print(f"wrote {path}")
    return EXIT_CODES[verdict.status]


def _run_ab(arguments: argparse.Namespace) -> int:
    journal, notes = read_session(arguments.journal, arguments.session)
    journal = redacted(journal, arguments)
    smallest = None if arguments.smallest_effect is None else arguments.smallest_effect / 100
    verdict = judge_ab(journal, smallest=smallest, release=arguments.release, notes=notes)
    print(to_markdown(verdict), end="")
    if arguments.out is not None:
        paths = [arguments.out / name for name in ("verdict.md", "verdict.json", "junit.xml")]
        write_documents(verdict, markdown=paths[0], json_file=paths[1], junit=paths[2])
        for path in paths:
            print(f"wrote {path}")
    return EXIT_CODES[verdict.status]
