"""``snapgate store``: many sessions in one database."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.capabilities import CAPABILITIES
from harness.cli.command import Subcommands, printer
from harness.errors import HostError, UserError
from harness.results.gate import read_limits

DEFAULT_DB = "history.db"


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("store")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    add = actions.add_parser(
        "import",
        help="put the sessions of journals into the database",
        description="Puts every session of the journals into the database. Importing one again changes nothing; the "
        "database can be made again from the journals at any time.",
    )
    add.add_argument("--journal", type=Path, nargs="+", required=True, metavar="DIR", help="journal folders, or files")
    add_database(add)
    add.add_argument("--limits", type=Path, default=Path("suites/limits.toml"), metavar="FILE")
    add.add_argument("--rebuild", action="store_true", help="empty the database first")
    add.set_defaults(run=run_import)


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db",
        metavar="URL",
        default=DEFAULT_DB,
        help=f"a SQLite file, or postgresql://USER@HOST/NAME (default: {DEFAULT_DB})",
    )


def existing(url: str) -> str:
    """``url``; a SQLite file that does not exist is the user's error, not an empty history."""
    if "://" not in url and not Path(url).is_file():
        raise UserError(
            f"{url} does not exist", expected="a database", next_step="snapgate store import --journal DIR --db FILE"
        )
    return url


def need_history() -> None:
    """The Python packages of the extra ``history``, or a ``HostError`` that names it."""
    lack = CAPABILITIES["history"].check()
    if lack is not None:
        raise HostError("a database of runs cannot be kept here", found=lack.reason, next_step=lack.remedy)


def run_import(arguments: argparse.Namespace) -> int:
    need_history()
    from harness.results.store import clear, import_journals, open_store

    limits = read_limits(arguments.limits)
    with open_store(arguments.db) as engine:
        if arguments.rebuild:
            clear(engine)
        done = import_journals(engine, arguments.journal, limits, progress=printer("store"))
    print(f"{len(done.added)} sessions added, {len(done.replaced)} replaced, {len(done.unchanged)} unchanged")
    return 0
