"""``snapgate operators``: which nodes of an ONNX file the HTP of a SoC takes."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.command import Subcommands, printer
from harness.record.codec import to_json
from harness.soc import find_soc

if TYPE_CHECKING:
    from harness.compiler.operators import Edge, OperatorReport


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "operators",
        description="Counts every operator of an ONNX file and asks onnxruntime-qnn which nodes the HTP backend of a "
        "SoC takes, with the first reason and a way out for each it does not. Exit code 22 if any is refused.",
    )
    parser.add_argument("model", type=Path, help="an ONNX file")
    parser.add_argument("--soc", required=True, help="marker or part: gen3, SM8650, ...")
    parser.add_argument("--io", action="store_true", help="also inputs and outputs of every node")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from harness.compiler.operators import inspect_operators

    progress = printer("operators") if not arguments.json else lambda _: None
    report = inspect_operators(arguments.model, find_soc(arguments.soc), progress=progress)
    if arguments.json:
        print(json.dumps(to_json(report), indent=1))
    else:
        print(text_of(report, io=arguments.io))
    return 22 if report.refused or report.failure else 0


def text_of(report: OperatorReport, *, io: bool) -> str:
    taken = Counter(node.op for node in report.nodes if node.taken)
    refused = Counter(node.op for node in report.refused)
    lines = [f"{'operator':32} {'nodes':>6} {'HTP':>6} {'CPU':>6}"]
    lines += [f"{op:32} {n:6} {taken[op]:6} {refused[op]:6}" for op, n in report.counts.items()]
    n_taken = sum(taken.values())
    lines.append(f"{report.part} (HTP v{report.htp_arch}) takes {n_taken} of {len(report.nodes)} nodes")
    for node in report.refused:
        lines += [f"not taken: {node.op} {node.name}", f"  reason: {node.reason}", f"  way out: {node.way_out}"]
    if report.failure is not None:
        lines.append(f"what was taken did not compile: {report.failure}")
    if io:
        for node in report.nodes:
            lines.append(f"{node.op} {node.name}")
            lines += [f"  in  {_edge(edge)}" for edge in node.inputs]
            lines += [f"  out {_edge(edge)}" for edge in node.outputs]
    return "\n".join(lines)


def _edge(edge: Edge) -> str:
    shape = "?" if edge.shape is None else "x".join(map(str, edge.shape)) or "scalar"
    return f"{edge.name}: {edge.dtype or 'unknown'} {shape}{' constant' if edge.constant else ''}"
