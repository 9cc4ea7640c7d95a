"""``snapgate report``: renders a journal again, or a page over many: a comparison, a history, a site."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

from harness.cli.command import Subcommands, add_redaction, printer, redacted
from harness.cli.store import add_database, existing, need_history
from harness.journal import Journal
from harness.plugin.conclusion import manifests_of, write_all
from harness.record.artifact import ArtifactManifest
from harness.record.codec import read_json
from harness.results.compare import narrowed
from harness.results.derive import derive
from harness.results.gate import judge_journal, read_limits, read_session
from harness.results.integrity import ARTIFACTS_NAME, ArtifactManifests
from harness.results.redact import redaction_key, serial_renamer


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("report")
    parser.add_argument("--journal", type=Path, default=Path("out/journal"), metavar="DIR")
    parser.add_argument("--limits", type=Path, default=Path("suites/limits.toml"), metavar="FILE")
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), metavar="DIR")
    parser.add_argument("--session", metavar="ID", help="which session (default: the newest)")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar="DIR", help="two journals side by side: OUT/comparison.html"
    )
    parser.add_argument(
        "--cells", nargs=2, metavar="CELL", help="with --compare: a cell of the first, one of the second"
    )
    parser.add_argument("--serials", nargs=2, metavar="SERIAL", help="with --compare: a phone of each side")
    parser.add_argument(
        "--artifact-ids", nargs=2, metavar="ID", help="with --compare: an artifact of each side, by the start of its id"
    )
    parser.add_argument("--runtimes", nargs=2, metavar="NAME", help="with --compare: a runtime of each side, e.g. qnn")
    parser.add_argument("--history", action="store_true", help="trends over the sessions of --db: OUT/history.html")
    parser.add_argument("--site", type=Path, metavar="DIR", help="static index of all runs of --db")
    add_database(parser)
    parser.add_argument("--metric", action="append", default=[], metavar="NAME", help="history of this metric only")
    parser.add_argument("--known", type=Path, metavar="FILE", help="TOML file of known changes, for the history")
    add_redaction(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.compare is not None:
        return _compare(arguments)
    if arguments.site is not None:
        return _site(arguments)
    if arguments.history:
        return _history(arguments)
    journal, notes = read_session(arguments.journal, arguments.session)
    journal = redacted(journal, arguments)
    verdict = judge_journal(journal, read_limits(arguments.limits), notes=notes)
    arguments.out.mkdir(parents=True, exist_ok=True)
    manifests = _manifests(journal, arguments)
    for path in write_all(arguments.out, journal, verdict, manifests):
        print(f"wrote {path}")
    return 0


def _manifests(journal: Journal, arguments: argparse.Namespace) -> tuple[ArtifactManifest, ...]:
    """Of the artifacts that ran: from their folders, or where they are gone or were made anew, the copies beside the
    journal."""
    found = {manifest.artifact_id: manifest for manifest in manifests_of(journal, arguments.artifacts)}
    copies = arguments.journal.parent / ARTIFACTS_NAME
    if copies.is_file():
        wanted = {run.artifact_id for run in journal.runs}
        for manifest in read_json(copies, ArtifactManifests).artifacts:
            if manifest.artifact_id in wanted:
                found.setdefault(manifest.artifact_id, manifest)
    return tuple(found.values())


def _compare(arguments: argparse.Namespace) -> int:
    from reports.comparison import Side, write_comparison

    sides = []
    for index, path in enumerate(arguments.compare):
        journal, notes = read_session(path)
        for note in notes:
            print(f"{path}: {note}")
        journal = narrowed(
            journal,
            cell=arguments.cells[index] if arguments.cells else None,
            serial=arguments.serials[index] if arguments.serials else None,
            artifact=arguments.artifact_ids[index] if arguments.artifact_ids else None,
            runtime=arguments.runtimes[index] if arguments.runtimes else None,
        )
        journal = redacted(journal, arguments)
        sides.append(Side(name=_side_name(arguments, index), journal=journal, measurements=derive(journal)))
    path = write_comparison(arguments.out / "comparison.html", *sides, same_cell=arguments.cells is None)
    print(f"wrote {path}")
    return 0


def _side_name(arguments: argparse.Namespace, index: int) -> str:
    parts = [str(arguments.compare[index])]
    serials = None if arguments.redact else arguments.serials
    parts += [p[index] for p in (arguments.cells, serials, arguments.artifact_ids, arguments.runtimes) if p]
    return " ".join(parts)


def _history(arguments: argparse.Namespace) -> int:
    need_history()
    from harness.results.history import load_known_changes, read_series
    from harness.results.store import open_store
    from reports.history import write_history

    known = () if arguments.known is None else load_known_changes(arguments.known)
    with open_store(existing(arguments.db)) as engine:
        series = read_series(engine, metrics=arguments.metric, known=known)
    rename = _renamer(arguments)
    series = tuple(dataclasses.replace(item, serial=rename(item.serial)) for item in series)
    for item in series:
        for change in item.changes:
            print(
                f"{item.metric} of {item.cell} on {item.serial or 'no phone'}: {change.before:.6g} to "
                f"{change.after:.6g} {item.unit}, first at run {change.first_run}"
                + "".join(f" (known: {note})" for note in change.known)
            )
    print(f"wrote {write_history(arguments.out / 'history.html', series)}")
    return 0


def _site(arguments: argparse.Namespace) -> int:
    need_history()
    from harness.results.store import open_store
    from reports.site import build_site

    with open_store(existing(arguments.db)) as engine:
        built = build_site(engine, arguments.site, rename=_renamer(arguments), progress=printer("site"))
    print(f"wrote {arguments.site / 'index.html'}: {built.n_runs} runs on {built.n_pages} pages")
    return 0


def _renamer(arguments: argparse.Namespace) -> Callable[[str], str]:
    """What a serial is called on a page that is made of a store."""
    return serial_renamer(redaction_key(arguments.redact_key)) if arguments.redact else str
