"""``snapgate``: one command, a subcommand for each thing a person does."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import harness
from harness.errors import HostError, SnapGateError, UserError

SUMMARIES: Final = {
    "prepare": "make the artifact of a checkpoint for one SoC",
    "operators": "which nodes of an ONNX file the HTP takes",
    "lint": "find what is wrong with a model without running it",
    "devices": "which phones are attached, and which are usable",
    "virtual": "start, list and stop virtual phones",
    "runtime": "fetch and check Qualcomm's libraries for phones",
    "plan": "what the suites would run on which phone, and how long it takes",
    "gate": "judge a journal; the exit code is the verdict",
    "limits": "list the gates; try them on known-good and known-bad sessions",
    "baseline": "promote a session to a baseline; judge another against it",
    "recompute": "the figures of a journal again, with no phone",
    "metrics": "the definition of every metric, as Markdown",
    "report": "render the report of a journal again, compare two, show a history, or make a site",
    "verify": "recompute every number and verdict of a run, offline, and name what differs",
    "sign": "sign the manifest of a run (Ed25519)",
    "export": "raw samples of a journal as CSV or Parquet tables",
    "store": "many sessions in one database, for histories and the site",
    "doctor": "what this host can do, and what is missing for the rest",
}
_MODULES: Final = {"sign": "verify"}
"""Commands that share a module with another; each of the others has the module of its own name."""


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are errors of ours, with our exit code. Options are never guessed from a beginning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}", next_step=f"see `{self.prog} --help`")


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """Only the chosen command's module is imported: some need pandas, scipy or onnx, which take seconds."""
    parser = Parser(prog="snapgate", description="Tells a device lab whether an LLM may ship on a Snapdragon phone.")
    parser.add_argument("--version", action="version", version=f"snapgate {harness.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    if chosen in SUMMARIES:
        importlib.import_module(f"harness.cli.{_MODULES.get(chosen, chosen)}").add_command(commands)
        own = commands.choices[chosen]
        summary = SUMMARIES[chosen]
        own.description = own.description or f"{summary[0].upper()}{summary[1:]}."
    for name, summary in SUMMARIES.items():
        if name not in commands.choices:
            commands.add_parser(name, help=summary)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, a verdict's (10 to 14), or 20 user, 21 host, 22 model, 11 lab."""
    try:
        given = sys.argv[1:] if argv is None else list(argv)
        arguments = build_parser(given[0] if given else None).parse_args(given)
        code: int = arguments.run(arguments)
    except SnapGateError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    except KeyboardInterrupt:
        print("interrupted; nothing half-written was left behind", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except OSError as exc:  # whatever no command has put into words of its own
        print(f"error: {_in_words(exc)}", file=sys.stderr)
        return HostError.exit_code
    return code


def _in_words(exc: OSError) -> HostError:
    return HostError(
        "a file or folder cannot be used" if exc.filename is None else f"{exc.filename} cannot be used",
        found=exc.strerror or str(exc),
        expected="a path that this user may read and write, on a disk with free space",
        next_step="correct the path or its permissions, or free some space",
    )


if __name__ == "__main__":
    sys.exit(main())
