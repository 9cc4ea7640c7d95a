"""``snapgate plan``: what the suites would run where, and how long it takes. Nothing is run, no phone is leased."""

from __future__ import annotations

import argparse

from harness.cli.command import Subcommands
from harness.plugin.plan import plan

_OPTIONS = (
    "-m", "-k", "--phones", "--spread", "--results", "--artifacts", "--models", "--precision", "--ab", "--resume",
)  # fmt: skip


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "plan",
        description="Times: medians of earlier runs in the results folder, or unknown. Options as of `pytest suites`.",
    )
    parser.add_argument("suites", nargs="*", metavar="PATH", help="suites, folders or files (default: suites)")
    for name in _OPTIONS:
        parser.add_argument(name, metavar="VALUE", dest=name)
    parser.add_argument("--thorough", action="store_true", help="with the long suites")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    flags = ["--thorough"] if arguments.thorough else []
    return plan([*(arguments.suites or ["suites"]), *flags], {name: getattr(arguments, name) for name in _OPTIONS})
