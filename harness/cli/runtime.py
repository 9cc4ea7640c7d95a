"""``snapgate runtime``: Qualcomm's libraries for phones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.cli.command import Subcommands, printer
from harness.errors import HostError
from harness.record.artifact import load_artifact, sha256_of
from harness.runtime.check import check_machines, common_build, refuse_newer_artifact, silent_libraries
from harness.runtime.fetch import LibrarySet, fetch_from_maven, fetch_from_sdk, installed, refuse_changed
from harness.runtime.locate import library_folder
from harness.runtime.maven import REPOSITORY_VARIABLE, repository_of
from harness.runtime.pinned import pinned
from harness.runtime.required import ARCHS, SDK_VARIABLES, cache_root, find_file, required_files, sdk_root
from harness.soc import find_soc


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("runtime")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=type(parser))
    fetch = actions.add_parser("fetch", help="bring them by the Maven client, or from an SDK")
    fetch.add_argument(
        "--soc", action="append", metavar="SOC", help="only for this SoC; may be repeated (default: every HTP arch)"
    )
    source = fetch.add_mutually_exclusive_group()
    source.add_argument(
        "--repository",
        metavar="URL",
        help=f"Maven repository (default: {REPOSITORY_VARIABLE}, else those of Maven's settings)",
    )
    source.add_argument(
        "--sdk",
        nargs="?",
        const="",
        metavar="FOLDER",
        help=f"copy from a QAIRT SDK instead (without FOLDER: {' or '.join(SDK_VARIABLES)})",
    )
    fetch.add_argument("--version", metavar="V", help=f"of {pinned().artifact} (default: {pinned().default})")
    fetch.add_argument("--sha256", metavar="HEX", help="of the .aar, for a version that is not pinned")
    fetch.set_defaults(run=run_fetch)
    listing = actions.add_parser("list", help="which files each HTP arch needs, and which sets are here")
    listing.set_defaults(run=run_list)
    check = actions.add_parser("check", help="are the libraries for a SoC whole, of one build, new enough?")
    check.add_argument("soc", help="marker or part: gen3, SM8650, ...")
    check.add_argument("--folder", type=Path, metavar="FOLDER", help="a flat folder or an SDK (default: what runs use)")
    check.add_argument("--artifact", type=Path, metavar="DIR", help="will they load this artifact?")
    check.set_defaults(run=run_check)


def run_fetch(arguments: argparse.Namespace) -> int:
    archs = _archs(arguments.soc)
    if arguments.sdk is not None:
        sdk = sdk_folder(arguments.sdk)
        got = fetch_from_sdk(archs, sdk, progress=printer("runtime"))
    else:
        got = fetch_from_maven(
            archs,
            version=arguments.version,
            sha256=arguments.sha256,
            repository=repository_of(arguments.repository),
            progress=printer("runtime"),
        )
    _show(got)
    return 0


def run_list(_: argparse.Namespace) -> int:
    for arch in ARCHS:
        print(f"HTP v{arch}: " + ", ".join(file.name for file in required_files(arch)))
    print("not needed: libQnnHtpPrepare.so, which compiles on the phone")
    entries = installed()
    if not entries:
        print(f"nothing fetched yet in {cache_root()}; next step: snapgate runtime fetch")
    for entry in entries:
        _show(entry)
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    soc = find_soc(arguments.soc)
    folder = arguments.folder or library_folder(soc.htp_arch)
    if folder is None:
        raise HostError("there are no libraries for phones", next_step="snapgate runtime fetch")
    wanted = required_files(soc.htp_arch)
    paths = {file.name: path for file in wanted if (path := find_file(folder, file)) is not None}
    absent = [file.name for file in wanted if file.name not in paths]
    if absent:
        raise HostError(
            f"{folder} lacks libraries for HTP v{soc.htp_arch}",
            found=f"no {', no '.join(absent)}",
            next_step="snapgate runtime fetch",
        )
    check_machines(paths, wanted)
    refuse_changed(folder, {name: sha256_of(path) for name, path in paths.items()})
    build_id = common_build(paths)
    silent = silent_libraries(paths)
    for file in wanted:
        said = "names no build" if file.name in silent else "ok"
        print(f"{file.name:24} {said:16} {paths[file.name]}")
    print(f"build: {build_id or 'not known: no library names one'}")
    if arguments.artifact is not None:
        manifest = load_artifact(arguments.artifact, verify=False).manifest
        compiler = manifest.tools.get("qnn_build_id")
        refuse_newer_artifact(artifact=manifest.name, compiler=compiler, runtime=build_id)
        known = compiler is not None and build_id is not None
        print(f"artifact {manifest.name}: " + (f"loads (compiled by {compiler})" if known else "not known"))
    return 0


def sdk_folder(named: str) -> Path:
    """The SDK of the option, or of the environment."""
    folder = Path(named) if named else sdk_root()
    if folder is None or not folder.is_dir():
        raise HostError(
            "there is no SDK to take libraries from",
            found=f"{folder} is no folder" if folder else f"neither {' nor '.join(SDK_VARIABLES)} is set",
            next_step="name its root: --sdk FOLDER",
        )
    return folder


def _archs(names: Sequence[str] | None) -> tuple[int, ...]:
    return ARCHS if not names else tuple(sorted({find_soc(name).htp_arch for name in names}))


def _show(entry: LibrarySet) -> None:
    archs = [arch for arch in ARCHS if f"libQnnHtpV{arch}Skel.so" in entry.sha256]
    print(f"{entry.version:10} build {entry.build_id or 'not named'}, HTP {', '.join(f'v{arch}' for arch in archs)}")
    print(f"{'':10} {len(entry.sha256)} files in {entry.folder}, from {entry.source}")
