"""``snapgate``: one command, a subcommand for each thing a person does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import harness
from harness.cli import (
    baseline,
    devices,
    doctor,
    export,
    gate,
    limits,
    lint,
    metrics,
    operators,
    plan,
    prepare,
    recompute,
    report,
    runtime,
    store,
    verify,
    virtual,
)
from harness.errors import HostError, SnapGateError, UserError


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are errors of ours, with our exit code. Options are never guessed from a beginning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}", next_step=f"see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="snapgate", description="Tells a device lab whether an LLM may ship on a Snapdragon phone.")
    parser.add_argument("--version", action="version", version=f"snapgate {harness.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    modules = (
        prepare,
        operators,
        lint,
        devices,
        virtual,
        runtime,
        plan,
        gate,
        limits,
        baseline,
        recompute,
        metrics,
        report,
        verify,
        export,
        store,
        doctor,
    )
    for module in modules:
        module.add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, a verdict's (10 to 14), or 20 user, 21 host, 22 model, 11 lab."""
    try:
        arguments = build_parser().parse_args(argv)
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
