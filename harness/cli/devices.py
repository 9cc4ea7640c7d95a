"""``snapgate devices``: which phones are attached, why each one is or is not usable; ``restore`` after a crash."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from harness.cli.command import Subcommands, port
from harness.errors import InfraError, UserError
from harness.record.codec import to_json
from harness.soc import BY_PART

if TYPE_CHECKING:
    from harness.device.adb import Adb
    from harness.device.inventory import Inventory
    from harness.pool.local import PhoneInfo
    from harness.record.run import DeviceFacts

_UNKNOWN: Final = "not told"


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
    from harness.device.adb import Adb
    from harness.pool.local import discover

    adb = Adb(arguments.adb_host, arguments.adb_port)
    found = [(info, *_look_into(adb, info)) for info in discover(arguments.adb_host, arguments.adb_port)]
    if arguments.json:
        phones = [
            {
                **to_json(info),
                "htp_arch": soc.htp_arch if info.facts and (soc := BY_PART.get(info.facts.part)) else None,
                "inventory": to_json(inventory) if inventory else None,
                "inventory_unavailable": trouble,
            }
            for info, inventory, trouble in found
        ]
        json.dump({"schema": "snapgate.devices/1", "phones": phones}, sys.stdout, indent=1)
        print()
        return 0
    if not found:
        print("no phone is attached to this adb server")
    for info, inventory, trouble in found:
        if info.facts is None:
            print(f"{info.transport:24} not usable: {info.reason}")
            continue
        state = "usable" if info.usable else f"not usable: {info.reason}"
        kind = "virtual" if info.facts.virtual else "phone"
        print(f"{info.transport:24} {info.facts.serial:16} {kind:8} {state}")
        for name, text in (*_identity(info.facts), *_brought_along(inventory, trouble)):
            print(f"  {name:22} {text}")
    return 0


def _look_into(adb: Adb, info: PhoneInfo) -> tuple[Inventory | None, str | None]:
    """What the phone brings along; or why it could not be asked."""
    from harness.device.inventory import read_inventory

    if info.facts is None:
        return None, info.reason
    try:
        return read_inventory(adb.device(info.transport)), None
    except InfraError as exc:
        return None, str(exc)


def _identity(facts: DeviceFacts) -> tuple[tuple[str, str], ...]:
    soc = BY_PART.get(facts.part)
    return (
        ("SoC", f"{facts.part} {soc.marketing_name} ({facts.soc_source})" if soc else facts.part or _UNKNOWN),
        ("HTP", f"v{soc.htp_arch}" if soc else _UNKNOWN),
        ("RAM", _UNKNOWN if facts.ram_bytes is None else f"{facts.ram_bytes / 2**30:.1f} GiB"),
        ("Android", f"{facts.android_release or _UNKNOWN}, {facts.abi or _UNKNOWN}"),
        ("build", facts.fingerprint or _UNKNOWN),
    )


def _brought_along(inventory: Inventory | None, trouble: str | None) -> tuple[tuple[str, str], ...]:
    if inventory is None:
        return (("more", f"unavailable: {trouble}"),)
    closed = [f"{path} (its shell may not open it)" for path in inventory.fastrpc_nodes_closed]
    return (
        ("verified boot", inventory.verified_boot or _UNKNOWN),
        ("DRAM", inventory.dram or _UNKNOWN),
        ("QNN, DSP libraries", ", ".join(inventory.libraries) or "none in its own folders"),
        ("fastrpc nodes", ", ".join((*inventory.fastrpc_nodes, *closed)) or "none"),
        (
            "libcdsprpc.so symbols",
            f"unavailable: {inventory.symbols_unavailable}"
            if inventory.symbols_unavailable is not None
            else ", ".join(inventory.symbols) or "none of those that the runner uses",
        ),
    )


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
