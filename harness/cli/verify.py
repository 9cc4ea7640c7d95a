"""``snapgate verify`` and ``snapgate sign``: is a results folder what its run left?"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from harness.cli.command import Subcommands
from harness.errors import SnapGateError, UserError
from harness.journal import Journal, read_journal
from harness.record.codec import read_json
from harness.record.vocabulary import EXIT_CODES, Family, Status
from harness.results import integrity
from harness.results.derive import derive
from harness.results.gate import judge_journal, read_limits
from harness.results.integrity import Difference, RunManifest
from harness.results.signature import new_key, sign, signature_differences
from reports.recheck import document_differences

_SHOWN = 40


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "verify",
        description="Checks a results folder against its manifest: hashes of records, pulled files, limits and "
        "documents; then computes every measurement, verdict and document again from the records. Exit codes: 0 all as "
        "it was, 12 something differs.",
    )
    parser.add_argument("--results", type=Path, default=Path("out"), metavar="DIR")
    parser.add_argument("--key", type=Path, metavar="FILE", help="public key that the manifest must be signed by")
    parser.add_argument(
        "--suites", type=Path, default=Path("suites"), metavar="DIR", help="to note changes of the suites"
    )
    parser.set_defaults(run=run)
    signing = commands.add_parser("sign")
    what = signing.add_mutually_exclusive_group(required=True)
    what.add_argument("--key", type=Path, metavar="FILE", help="private key to sign with")
    what.add_argument(
        "--new-key", type=Path, metavar="FILE", help="make a private key FILE and its public key FILE.pub"
    )
    signing.add_argument("--results", type=Path, default=Path("out"), metavar="DIR")
    signing.set_defaults(run=run_sign)


def run_sign(arguments: argparse.Namespace) -> int:
    if arguments.new_key is not None:
        print(f"wrote {arguments.new_key} (keep it secret) and {new_key(arguments.new_key)}")
    else:
        print(f"wrote {sign(arguments.results, arguments.key)}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    results: Path = arguments.results
    differences = [] if arguments.key is None else signature_differences(results, arguments.key)
    try:
        manifest = integrity.read_manifest(results)
    except UserError as exc:
        if not (results / integrity.MANIFEST_NAME).is_file():
            raise
        differences.append(Difference(where="manifest", what=str(exc)))
        return _told(differences, [])
    notes = integrity.suite_notes(manifest, arguments.suites)
    if arguments.key is None and (results / integrity.SIGNATURE_NAME).is_file():
        notes.append("the manifest is signed; the signature was not checked: give --key FILE")
    if manifest.pulled_missing:
        notes.append(f"{len(manifest.pulled_missing)} pulled files were not there when the manifest was written")
    differences += integrity.file_differences(results, manifest)
    differences += recomputed(results, manifest)
    n_files = sum(map(len, (manifest.journal, manifest.pulled, manifest.inputs, manifest.documents)))
    print(f"checked {n_files} files of session {', '.join(manifest.sessions) or 'none'}")
    return _told(differences, notes)


def recomputed(results: Path, manifest: RunManifest) -> list[Difference]:
    """Where the records, or the documents, do not give what is stored."""
    try:
        journal = stored_journal(results, manifest)
        found = integrity.record_differences(results, manifest, journal)
        verdict = judge_journal(
            journal,
            read_limits(results / integrity.LIMITS_NAME, stored=True),
            required=None if manifest.required is None else [Family(name) for name in manifest.required],
            release=manifest.release,
        )
        artifacts = read_json(results / integrity.ARTIFACTS_NAME, integrity.ArtifactManifests).artifacts
        measurements = derive(journal)
        print(f"recomputed {len(measurements)} measurements and {len(verdict.verdicts)} verdicts: {verdict.status}")
        same_code = manifest.code_sha256 == integrity.code_sha256()
        found += document_differences(results, journal, verdict, measurements, artifacts, same_code=same_code)
    except (SnapGateError, ValueError) as exc:
        hint = "" if manifest.code_sha256 == integrity.code_sha256() else "; verify with the version that made them"
        return [Difference(where="records", what=f"nothing can be computed from them: {exc}{hint}")]
    return found


def stored_journal(results: Path, manifest: RunManifest) -> Journal:
    """The journal files that the manifest names, in its order, as one journal."""
    parts = [read_journal(results / manifest.root / name, as_written=True) for name in manifest.journal]
    if not parts:
        raise UserError("the manifest names no journal")
    whole = Journal(**{f.name: tuple(x for part in parts for x in getattr(part, f.name)) for f in fields(Journal)})
    return whole.in_effect()


def _told(differences: list[Difference], notes: list[str]) -> int:
    for note in notes:
        print(f"note: {note}")
    for difference in differences[:_SHOWN]:
        print(f"DIFFERS  {difference}")
    if len(differences) > _SHOWN:
        print(f"and {len(differences) - _SHOWN} more differences")
    print(
        "verified: everything is what the records give"
        if not differences
        else f"NOT verified: {len(differences)} differ"
    )
    return 0 if not differences else EXIT_CODES[Status.INVALID]
