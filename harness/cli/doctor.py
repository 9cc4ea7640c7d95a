"""``snapgate doctor``: what this host can do, and what is missing for the rest."""

from __future__ import annotations

import argparse
import json
import platform
import sys

import psutil

from harness.cli.capabilities import CAPABILITIES
from harness.cli.command import Subcommands


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("doctor")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    rows = []
    for capability in CAPABILITIES.values():
        missing = capability.check()
        rows.append(
            {
                "name": capability.name,
                "allows": capability.allows,
                "ok": missing is None,
                "reason": None if missing is None else missing.reason,
                "remedy": None if missing is None else missing.remedy,
                "note": capability.note() if missing is None else None,
            }
        )
    host = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1min": psutil.getloadavg()[0],
    }
    if arguments.json:
        json.dump({"schema": "snapgate.doctor/1", "host": host, "capabilities": rows}, sys.stdout, indent=1)
        print()
        return 0
    print(
        f"{host['system']}, Python {host['python']}, {host['cpus']} CPUs, "
        f"{psutil.virtual_memory().total / 2**30:.1f} GiB, load {psutil.getloadavg()[0]:.2f}"
    )
    for row in rows:
        print(f"{'yes' if row['ok'] else 'NO ':4} {row['name']:18} {row['allows']}")
        if row["note"] is not None:
            print(f"     {'':18} {row['note']}")
        if not row["ok"]:
            print(f"     {'':18} found: {row['reason']}; next step: {row['remedy']}")
    return 0
