"""``snapgate devices``: which phones are attached, why each one is or is not usable; ``restore`` after a crash."""

from __future__ import annotations

import argparse
import json
import os
import sys

from harness.cli.command import Subcommands, port
from harness.errors import InfraError, UserError
from harness.record.codec import to_json
from harness.soc import BY_PART


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("devices")
    parser.add_argument("--adb-host", default="127.0.0.1")
    parser.add_argument(
        "--adb-port",
        type=port,
        default=os.environ.get("ANDROID_ADB_SERVER_PORT", "5037"),
        help="default: ANDROID_ADB_SERVER_PORT, or 5037",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=type(parser))
    undo = actions.add_parser("restore", help="put back what a run that crashed had set on the phones")
    undo.add_argument("serials", nargs="*", metavar="SERIAL", help="default: every usable phone")
    undo.set_defaults(run=run_restore)


def run(arguments: argparse.Namespace) -> int:
    from harness.pool.local import discover

    found = discover(arguments.adb_host, arguments.adb_port)
    if arguments.json:
        json.dump({"schema": "snapgate.devices/1", "phones": [to_json(info) for info in found]}, sys.stdout, indent=1)
        print()
        return 0
    if not found:
        print("no phone is attached to this adb server")
    for info in found:
        facts = info.facts
        if facts is None:
            print(f"{info.transport:24} not usable: {info.reason}")
            continue
        soc = BY_PART.get(facts.part)
        name = f"{facts.part} {soc.marketing_name}, HTP v{soc.htp_arch}" if soc else facts.part
        kind = "virtual" if facts.virtual else "phone"
        state = "usable" if info.usable else f"not usable: {info.reason}"
        android = f"Android {facts.android_release}, {facts.abi}"
        print(f"{info.transport:24} {facts.serial:16} {kind:8} {name}, {android}: {state}")
    return 0


def run_restore(arguments: argparse.Namespace) -> int:
    """A phone that somebody holds is left alone: its holder puts it back. All trouble is told, the last one raised."""
    from harness.device.adb import Adb
    from harness.device.changes import restore
    from harness.device.lease import Lease, default_state_dir
    from harness.pool.local import discover

    found = {info.facts.serial: info.facts for info in discover(arguments.adb_host, arguments.adb_port) if info.facts}
    unknown = [serial for serial in arguments.serials if serial not in found]
    if unknown:
        raise UserError(
            "no such phone",
            found=", ".join(unknown),
            expected=f"one of {', '.join(found) or 'none, as none is attached'}",
            next_step="look at `snapgate devices`",
        )
    trouble: InfraError | None = None
    for serial in arguments.serials or found:
        device = Adb(arguments.adb_host, arguments.adb_port).device(found[serial].transport)
        try:
            with Lease.take(device, found[serial], holder="snapgate devices restore", state_dir=default_state_dir()):
                done = restore(device)
        except InfraError as exc:
            trouble = exc
            print(f"{serial}: {exc}")
        else:
            print(f"{serial}: {'put back ' + ', '.join(done) if done else 'nothing was left changed'}")
    if trouble is not None:
        raise trouble
    return 0
