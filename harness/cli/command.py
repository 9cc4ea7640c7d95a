"""What every subcommand needs of argparse."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from harness.errors import UserError
from harness.journal import Journal
from harness.results.redact import redact, redaction_key

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def printer(prefix: str) -> Callable[[str], None]:
    """A progress function that prints each line with the seconds since it was made."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{prefix} {time.monotonic() - started:5.1f}s] {text}", flush=True)

    return say


def output_folder(path: Path) -> Path:
    """The folder of an ``--out`` option, made if absent: called before any work is done or a verdict is printed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        found = None if os.access(path, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as exc:
        found = exc.strerror or str(exc)
    if found is not None:
        raise UserError(
            f"{path} cannot be written",
            found=found,
            expected="a folder that this user may write to",
            next_step="choose another --out",
        )
    return path


def port(text: str) -> int:
    """A TCP port, for ``type=``. A default given as text goes through it too, so a bad one is named like any other."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, which is 1 to 65535")
    return int(text)


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
