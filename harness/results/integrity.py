"""What a test run consisted of, as hashes: ``manifest.json`` (schema ``snapgate.manifest/1``) beside the report.

The manifest is written last and names everything that a figure or a verdict rests on: the session's journal files,
the files pulled from phones, a copy of the limits, the artifacts, runner and libraries, the suites, SnapGate's own
code, and the documents that were made of them. Whoever can change all files alike can also change the manifest; only a
signature (``harness.results.signature``) shows that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import harness
from harness.errors import HostError, UserError
from harness.journal import Journal
from harness.record.artifact import ArtifactManifest, sha256_of
from harness.record.codec import read_json, write_json
from harness.record.runner import parse_runner_lines
from harness.record.vocabulary import Source
from harness.results.derive import session_source

MANIFEST_SCHEMA: Final = "snapgate.manifest/1"
MANIFEST_NAME: Final = "manifest.json"
LIMITS_NAME: Final = "limits.toml"
ARTIFACTS_NAME: Final = "artifacts.json"
RECORDS_NAME: Final = "records.jsonl"
DOCUMENTS: Final = ("report.html", "report.json", "report.md", "verdict.json")
_CODE: Final = frozenset({".py", ".json", ".toml", ".j2", ".js", ".css"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedArtifact:
    artifact_id: str
    name: str
    runner_sha256: tuple[str, ...]
    """Runners that loaded it"""
    libraries_sha256: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    schema: str
    sessions: tuple[str, ...]
    synthetic: bool
    code_version: str
    code_sha256: str
    required: tuple[str, ...] | None
    """Families that had to pass; None: those that the journal names"""
    release: bool
    root: str
    """Folder that ``journal`` and ``pulled`` are below, relative to the manifest"""
    journal: dict[str, str]
    pulled: dict[str, str]
    """As the journal names and hashes them"""
    pulled_missing: tuple[str, ...]
    """Those that were not there any more when the manifest was written"""
    suites: dict[str, str]
    inputs: dict[str, str]
    """Beside the manifest: the copy of the limits, and the manifests of the artifacts"""
    artifacts: tuple[UsedArtifact, ...]
    documents: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactManifests:
    """``artifacts.json``: the artifacts' own manifests, so that the report can be made again without the artifacts."""

    artifacts: tuple[ArtifactManifest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as the manifest, or a recomputation, says."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def write_manifest(
    results: Path,
    journal: Journal,
    *,
    journal_dir: Path,
    limits: Path,
    suites: Path,
    artifacts: Iterable[ArtifactManifest] = (),
    required: Iterable[str] | None = None,
    release: bool = False,
) -> Path:
    """Copy the limits, hash everything and write the manifest; call it after the documents. A signature of an earlier
    manifest is removed. ``journal_dir``: folder or file that the journal was read from."""
    folder = journal_dir.parent if journal_dir.is_file() else journal_dir
    root = folder.parent
    try:
        (results / SIGNATURE_NAME).unlink(missing_ok=True)
        _copy(limits, results / LIMITS_NAME)
        write_json(results / ARTIFACTS_NAME, ArtifactManifests(artifacts=tuple(artifacts)))
        pulled = {name: sha for run in journal.runs for name, sha in run.files_sha256.items()}
        manifest = RunManifest(
            schema=MANIFEST_SCHEMA,
            sessions=session_ids(journal),
            synthetic=session_source(journal) is Source.SYNTHETIC,
            code_version=harness.__version__,
            code_sha256=code_sha256(),
            required=None if required is None else tuple(sorted(required)),
            release=release,
            root=os.path.relpath(root.absolute(), results.absolute()),
            journal={
                path.relative_to(root).as_posix(): sha256_of(path) for path in journal_files(journal_dir, journal)
            },
            pulled=pulled,
            pulled_missing=tuple(name for name in sorted(pulled) if not (root / name).is_file()),
            suites=_hashes(suites, suites.rglob("*.py")) if suites.is_dir() else {},
            inputs=_hashes(results, (results / LIMITS_NAME, results / ARTIFACTS_NAME)),
            artifacts=used_artifacts(journal),
            documents=_hashes(results, (results / name for name in DOCUMENTS)),
        )
        write_json(results / MANIFEST_NAME, manifest)
    except OSError as exc:
        raise HostError(
            f"the manifest of {results} cannot be written",
            found=str(exc),
            next_step="free space, or name a results folder that this user may write to",
        ) from exc
    return results / MANIFEST_NAME


SIGNATURE_NAME: Final = "manifest.sig"


def cover(results: Path, document: Path) -> bool:
    """Add a document that was written after the manifest, such as pytest's JUnit file. One that does not lie in the
    results folder cannot be covered: False."""
    path = document.resolve()
    if not path.is_file() or not path.is_relative_to(results.resolve()):
        return False
    manifest = read_manifest(results)
    name = path.relative_to(results.resolve()).as_posix()
    documents = {**manifest.documents, name: sha256_of(path)}
    write_json(results / MANIFEST_NAME, replace(manifest, documents=documents))
    return True


def read_manifest(results: Path) -> RunManifest:
    path = results / MANIFEST_NAME
    if not path.is_file():
        raise UserError(
            f"{results} has no {MANIFEST_NAME}",
            expected="the results folder of a finished run",
            next_step="run `pytest suites` first, or name its results folder",
        )
    manifest = read_json(path, RunManifest)
    if manifest.schema != MANIFEST_SCHEMA:
        raise UserError(f"{path} has another schema", found=manifest.schema, expected=MANIFEST_SCHEMA)
    return manifest


def session_ids(journal: Journal) -> tuple[str, ...]:
    return tuple(dict.fromkeys(session.session_id for session in journal.sessions))


def journal_files(journal_dir: Path, journal: Journal) -> tuple[Path, ...]:
    """The files of the journal's sessions."""
    if journal_dir.is_file():
        return (journal_dir,)
    every = sorted(journal_dir.glob("*.jsonl"))
    sessions = session_ids(journal)
    return tuple(path for path in every if _is_of(path, sessions)) or tuple(every)


def _is_of(path: Path, sessions: Iterable[str]) -> bool:
    return any(path.stem == session or path.stem.startswith(f"{session}-") for session in sessions)


def used_artifacts(journal: Journal) -> tuple[UsedArtifact, ...]:
    by_id: dict[str, list[int]] = {}
    for index, run in enumerate(journal.runs):
        by_id.setdefault(run.artifact_id, []).append(index)
    return tuple(
        UsedArtifact(
            artifact_id=artifact_id,
            name=journal.runs[indices[0]].artifact_name,
            runner_sha256=tuple(sorted({journal.runs[i].runner_sha256 for i in indices})),
            libraries_sha256={
                name: sha for i in indices for name, sha in sorted(journal.runs[i].libraries_sha256.items())
            },
        )
        for artifact_id, indices in sorted(by_id.items())
    )


def code_sha256() -> str:
    """One hash over SnapGate's own files (``harness`` and ``reports``), by path and content."""
    top = Path(harness.__file__).resolve().parent.parent
    files = sorted(
        path
        for room in ("harness", "reports")
        for path in (top / room).rglob("*")
        if path.suffix in _CODE and "__pycache__" not in path.parts
    )
    lines = [f"{path.relative_to(top).as_posix()} {sha256_of(path)}" for path in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def file_differences(results: Path, manifest: RunManifest) -> list[Difference]:
    """Every file that the manifest names and that is gone or has other bytes, and journal files it does not name."""
    root = results / manifest.root
    found: list[Difference] = []
    gone = set(manifest.pulled_missing)
    for kind, base, hashes in (
        ("record", root, manifest.journal),
        ("pulled file", root, {name: sha for name, sha in manifest.pulled.items() if name not in gone}),
        ("input", results, manifest.inputs),
        ("document", results, manifest.documents),
    ):
        for name, expected in hashes.items():
            text = _file_difference(base, name, expected)
            if text is not None:
                found.append(Difference(where=f"{kind} {name}", what=text))
    for parent in sorted({(root / name).parent for name in manifest.journal}):
        every = [path for path in parent.glob("*.jsonl") if _is_of(path, manifest.sessions)]
        here = {path.relative_to(root).as_posix() for path in every}
        found += [
            Difference(where=f"record {name}", what="not in the manifest: it was added later")
            for name in sorted(here - set(manifest.journal))
        ]
    return found + _stray_files(root, manifest)


def _stray_files(root: Path, manifest: RunManifest) -> list[Difference]:
    """Files in the folder of a run that the run did not leave."""
    named = set(manifest.pulled)
    folders = sorted({(root / name).parent for name in named if _inside(root, name)})
    here = (path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("*")) if path.is_file())
    names = (path.relative_to(root).as_posix() for path in here)
    return [
        Difference(where=f"pulled file {name}", what="not in the manifest: it was added later")
        for name in names
        if name not in named
    ]


def _inside(root: Path, name: str) -> bool:
    """Below ``runs/``, and nowhere above the folder that it claims to be in."""
    return (root / name).resolve().is_relative_to((root / "runs").resolve())


def record_differences(results: Path, manifest: RunManifest, journal: Journal) -> list[Difference]:
    """Where the journal does not agree with the manifest, or with the raw records that were pulled from the phone."""
    root = (results / manifest.root).resolve()
    found = []
    pulled = {name: sha for run in journal.runs for name, sha in run.files_sha256.items()}
    if pulled != manifest.pulled:
        names = sorted(n for n in set(pulled) | set(manifest.pulled) if pulled.get(n) != manifest.pulled.get(n))
        found.append(
            Difference(where="manifest", what=f"pulled files differ from the journal's: {', '.join(names[:5])}")
        )
    if used_artifacts(journal) != manifest.artifacts:
        found.append(
            Difference(where="manifest", what="artifacts, runner or libraries differ from those that the journal names")
        )
    if session_ids(journal) != manifest.sessions:
        found.append(Difference(where="manifest", what="sessions differ from those of the journal"))
    for run in journal.runs:
        for name in run.files_sha256:
            path = (root / name).resolve()
            if Path(name).name != RECORDS_NAME or not path.is_relative_to(root) or not path.is_file():
                continue
            with path.open(encoding="utf-8", errors="replace") as stream:
                if parse_runner_lines(stream) != run.log:
                    found.append(
                        Difference(where=f"run {run.run_id}", what=f"the journal does not say what {name} says")
                    )
    return found


def suite_notes(manifest: RunManifest, suites: Path) -> list[str]:
    """What has changed since the run and does not touch its figures."""
    notes = []
    if manifest.code_sha256 != code_sha256():
        notes.append(f"made by other code of SnapGate: {manifest.code_version}, {manifest.code_sha256[:12]}")
    if suites.is_dir() and manifest.suites:
        now = _hashes(suites, suites.rglob("*.py"))
        changed = sorted(n for n in set(now) | set(manifest.suites) if now.get(n) != manifest.suites.get(n))
        if changed:
            notes.append(f"suites changed since the run: {', '.join(changed[:5])}")
    return notes


def json_differences(where: str, found: object, expected: object, *, most: int = 20) -> list[Difference]:
    """Where two JSON values differ, by path, at most ``most`` places. ``expected`` is the recomputed one."""
    differences: list[Difference] = []
    pending: list[tuple[str, object, object]] = [("", found, expected)]
    while pending and len(differences) < most:
        path, left, right = pending.pop(0)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            for key in dict.fromkeys((*right, *left)):
                pending.append((f"{path}.{key}" if path else str(key), left.get(key, _ABSENT), right.get(key, _ABSENT)))
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            pending += [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(left, right, strict=True))]
        elif left != right or isinstance(left, bool) is not isinstance(right, bool):
            differences.append(
                Difference(where=f"{where} {path}".strip(), what=f"says {_short(left)}, recomputed {_short(right)}")
            )
    return differences


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT: Final = _Absent()


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, _Absent) else json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _file_difference(base: Path, name: str, expected: str) -> str | None:
    path = (base / name).resolve()
    if not path.is_relative_to(base.resolve()):
        return "a name that leads out of the results folder"
    if not path.is_file():
        return "is gone"
    found = sha256_of(path)
    return None if found == expected else f"was changed: sha256 {found[:12]}, the manifest says {expected[:12]}"


def _hashes(base: Path, paths: Iterable[Path]) -> dict[str, str]:
    return {path.relative_to(base).as_posix(): sha256_of(path) for path in sorted(paths) if path.is_file()}


def _copy(source: Path, target: Path) -> None:
    if target.exists() and source.samefile(target):
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(source.read_bytes())
    temporary.replace(target)
