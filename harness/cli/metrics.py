"""``snapgate metrics``: what every figure counts, by which clock, in which unit."""

from __future__ import annotations

import argparse

from harness.cli.command import Subcommands
from harness.measure.definitions import metrics_markdown


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("metrics")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every command has this signature
    print(metrics_markdown(), end="")
    return 0
