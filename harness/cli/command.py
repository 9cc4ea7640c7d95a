"""What every subcommand needs of argparse."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from harness.journal import Journal
from harness.results.redact import redact, redaction_key

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def printer(prefix: str) -> Callable[[str], None]:
    """A progress function that prints each line with the seconds since it was made."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{prefix} {time.monotonic() - started:5.1f}s] {text}", flush=True)

    return say


def add_redaction(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--redact", action="store_true", help="pseudonyms for serials, fingerprints, transports and boot ids"
    )
    parser.add_argument(
        "--redact-key",
        type=Path,
        metavar="FILE",
        help="the lab's key for pseudonyms (default: ~/.config/snapgate/redact.key, made at first use)",
    )


def redacted(journal: Journal, arguments: argparse.Namespace) -> Journal:
    """The journal as the options of ``add_redaction`` ask for it."""
    if not arguments.redact:
        return journal
    return redact(journal, redaction_key(arguments.redact_key))
