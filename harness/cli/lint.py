"""``snapgate lint``: what is wrong with an artifact or an ONNX file, found without running it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness.cli.command import Subcommands, printer
from harness.record.codec import to_json
from harness.soc import find_soc


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "lint",
        description="Looks at an artifact folder or an ONNX file for what compiles, and is then wrong or slow. "
        "Exit code 1 if there is an error, 0 if there are warnings at most.",
    )
    parser.add_argument("target", type=Path, help="artifact folder or ONNX file")
    parser.add_argument("--soc", required=True, help="marker or part: gen3, SM8650, ...")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="compare the artifact's RoPE with this checkpoint"
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from harness.lint.findings import Severity
    from harness.lint.run import lint

    progress = printer("lint") if not arguments.json else lambda _: None
    findings = lint(arguments.target, find_soc(arguments.soc), checkpoint=arguments.checkpoint, progress=progress)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    if arguments.json:
        print(json.dumps(to_json(findings), indent=1))
        return 1 if errors else 0
    for finding in findings:
        print(f"{finding.severity}: {finding.rule}: {finding.graph}: {', '.join(finding.tensors)}")
        print(f"  found: {finding.found}; expected: {finding.expected}")
        print(f"  effect: {finding.effect}")
        print(f"  fix: {finding.fix}")
    print(f"{errors} errors, {len(findings) - errors} warnings")
    return 1 if errors else 0
