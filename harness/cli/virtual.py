"""``snapgate virtual``: phones that need no phone."""

from __future__ import annotations

import argparse

from harness.cli.command import Subcommands, printer
from harness.errors import UserError
from harness.soc import find_soc
from harness.virtual.daemon import LabStatus, default_state_dir, start_daemon, status, stop_daemon
from harness.virtual.lab import PhoneSpec


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser("virtual")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=type(parser))
    start = actions.add_parser("start", help="start virtual phones of a SoC; they stay until stopped")
    start.add_argument("soc", help="marker or part: gen3, SM8650, ...")
    start.add_argument("--count", type=int, default=1, metavar="N", help="how many (default: 1)")
    start.set_defaults(run=run_start)
    actions.add_parser("list", help="those that run").set_defaults(run=run_list)
    actions.add_parser("stop", help="stop all of them, and their adb server").set_defaults(run=run_stop)


def run_start(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.count <= 16:
        raise UserError("--count is out of range", found=str(arguments.count), expected="1 to 16")
    marker = find_soc(arguments.soc).marker
    specs = [PhoneSpec(marker=marker) for _ in range(arguments.count)]
    _show(start_daemon(default_state_dir(), specs, progress=printer("virtual")))
    return 0


def run_list(_: argparse.Namespace) -> int:
    _show(status(default_state_dir()))
    return 0


def run_stop(_: argparse.Namespace) -> int:
    stopped = stop_daemon(default_state_dir(), progress=printer("virtual"))
    print("stopped" if stopped else "no virtual phone was running")
    return 0


def _show(lab: LabStatus) -> None:
    if not lab.running:
        print("no virtual phone is running; start one with: snapgate virtual start gen3")
        return
    for phone in lab.phones:
        print(f"{phone.transport:20} {phone.serial:16} {phone.marker:8} {phone.state}")
    print(f"their adb server: {lab.adb_host}:{lab.adb_port}")
    marker = lab.phones[0].marker if lab.phones else "gen3"
    print(f"use them: ANDROID_ADB_SERVER_PORT={lab.adb_port} pytest suites -m {marker}")
