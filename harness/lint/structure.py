"""Rules about how a graph is built: its edges, shapes, compiled pieces, and what the arch takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onnx import TensorProto

from harness.compiler.recipe import KV16_ARCH
from harness.lint.findings import FLOATS, Finding, Severity, View, attribute
from harness.soc import ONE_ROW_ATTENTION, PRECISION_FLOORS, Precision, Soc

KV16_SOURCE: Final = "emulator: compiled and executed for soc 57, refused for soc 36 (v69)"


def edges(view: View) -> Iterator[Finding]:
    """Float inputs and outputs of a quantised graph, unused inputs, dynamic shapes."""
    constants = set(view.constants)
    inputs = [value for value in view.graph.input if value.name not in constants]
    for value in (*inputs, *view.graph.output):
        if view.is_quantised and value.type.tensor_type.elem_type in FLOATS:
            kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            n_elements = 1
            for extent in view.shape(value.name) or ():
                n_elements *= extent if isinstance(extent, int) else 1
            yield Finding(
                rule="float-io",
                severity=Severity.ERROR if "past" in value.name or "key" in value.name else Severity.WARNING,
                graph=view.name,
                tensors=(value.name,),
                found=kind,
                expected="the integers it is quantised to",
                effect=f"{n_elements} elements are converted on the CPU every step; a cache copied back is noise",
                fix="take the Q behind the input, or the DQ before the output, out of the graph",
            )
        moving = [extent for extent in view.shape(value.name) or () if not isinstance(extent, int) or extent <= 0]
        if moving:
            yield Finding(
                rule="dynamic-shape",
                severity=Severity.ERROR,
                graph=view.name,
                tensors=(value.name,),
                found=f"{view.shape(value.name)}",
                expected="fixed dimensions",
                effect=f"{len(moving)} dimensions are open: the HTP takes no node that depends on them",
                fix="set every dimension before compiling",
            )
    outputs = {value.name for value in view.graph.output}
    for value in inputs:
        if value.name not in view.readers and value.name not in outputs:
            yield Finding(
                rule="unused-input",
                severity=Severity.WARNING,
                graph=view.name,
                tensors=(value.name,),
                found="read by 0 nodes",
                expected="at least 1",
                effect="the compiler may drop it; a runner that binds inputs by position is then off by one",
                fix="take it out of the graph's inputs",
            )

    for value in view.graph.output:
        source, node = value.name, view.maker.get(value.name)
        while node is not None and node.op_type == "Identity":
            source, node = node.input[0], view.maker.get(node.input[0])
        if node is None or node.op_type == "Constant":
            what = "an input" if source not in view.constants else "a constant"
            yield Finding(
                rule="unused-output",
                severity=Severity.WARNING,
                graph=view.name,
                tensors=(value.name,),
                found=f"{what}, {source}, put out by 0 operators",
                expected="at least 1",
                effect="the HTP has no graph output that is not computed: the node stays on the CPU or is dropped",
                fix="take it out of the graph's outputs",
            )


def data_files(view: View) -> Iterator[Finding]:
    """Weights outside the model whose file is not there, too short, or outside the model's folder."""
    lacking: dict[str, list[str]] = {}
    for name in view.constants:
        reason = view.missing(name)
        if reason is not None:
            lacking.setdefault(reason, []).append(name)
    for reason, names in lacking.items():
        yield Finding(
            rule="missing-weights",
            severity=Severity.ERROR,
            graph=view.name,
            tensors=tuple(names[:6]),
            found=reason,
            expected="the data file beside the model, as it was written",
            effect=f"{len(names)} tensors have no values: the model does not load, and rules about them found nothing",
            fix="copy the data file along with the ONNX file",
        )


def contexts(view: View, folder: Path) -> Iterator[Finding]:
    """Compiled graphs: more than one piece, pieces left to the CPU, a piece without its binary."""
    nodes = view.nodes("EPContext")
    if not nodes:
        return
    others = [node for node in view.graph.node if node.op_type != "EPContext"]
    if len(nodes) > 1 or others:
        yield Finding(
            rule="split-graph",
            severity=Severity.ERROR,
            graph=view.name,
            tensors=tuple(node.name or node.op_type for node in (*nodes, *others)[:6]),
            found=f"{len(nodes)} EPContext nodes and {len(others)} others",
            expected="1 and 0",
            effect=f"{len(nodes) + len(others) - 1} hand-overs between HTP and CPU every step",
            fix="find the refused nodes with `snapgate operators`, and rewrite them",
        )
    for node in nodes:
        context = attribute(node, "ep_cache_context")
        text = context.decode(errors="replace") if isinstance(context, bytes) else ""
        embedded = attribute(node, "embed_mode") != 0
        missing = not context if embedded else not text or not (folder / text).is_file()
        if missing and attribute(node, "main_context") != 0:
            yield Finding(
                rule="no-context",
                severity=Severity.ERROR,
                graph=view.name,
                tensors=(node.name,),
                found="an empty context" if embedded or not text else f"no file {text}",
                expected="the context binary",
                effect="0 bytes of compiled code: the model does not load",
                fix="keep the binary beside the ONNX file, or compile again",
            )


def arch_floor(view: View, soc: Soc) -> Iterator[Finding]:
    """Float operators and block-wise weights below the arch that runs them, and the known defect of v69."""
    fp16 = PRECISION_FLOORS[Precision.FP16]
    if soc.htp_arch < fp16.arch:
        skipped = ("QuantizeLinear", "DequantizeLinear", "EPContext", "Cast", "Identity", "Constant")
        computed = [
            node
            for node in view.graph.node
            if node.op_type not in skipped
            and any(view.element(name) in FLOATS and not _quantised(view, name) for name in node.output)
        ]
        if computed:
            yield _floor(view, soc, computed[0].output[0], f"{len(computed)} float operators", fp16.arch, fp16.source)
    block = PRECISION_FLOORS[Precision.W4A16_B32]
    if soc.htp_arch < block.arch:
        blocks = [node for node in view.nodes("DequantizeLinear") if attribute(node, "block_size")]
        if blocks:
            found = f"{len(blocks)} weights in blocks of {attribute(blocks[0], 'block_size')}"
            yield _floor(view, soc, blocks[0].input[0], found, block.arch, block.source)
    if soc.htp_arch < KV16_ARCH:
        for node in view.nodes("MatMul"):
            operand = view.reads(node.input[1])
            if operand is not None and (operand.bits, operand.unsigned) == (16, False):
                yield _floor(view, soc, node.input[1], "a second operand of signed 16 bits", KV16_ARCH, KV16_SOURCE)
    if soc.htp_arch in ONE_ROW_ATTENTION.htp_archs:
        yield from _one_row(view)


def _quantised(view: View, name: str) -> bool:
    """The tensor goes straight into a QuantizeLinear, or is renamed by operators that do not compute."""
    return view.writes(name) is not None


def _floor(view: View, soc: Soc, tensor: str, found: str, arch: int, source: str) -> Finding:
    return Finding(
        rule="arch-floor",
        severity=Severity.ERROR,
        graph=view.name,
        tensors=(tensor,),
        found=f"{found} on HTP v{soc.htp_arch}",
        expected=f"v{arch} or newer",
        effect=f"does not compile, or is wrong, below v{arch}: {source}",
        fix="choose a precision that the SoC runs: see `snapgate prepare --help`",
    )


def _one_row(view: View) -> Iterator[Finding]:
    for node in view.nodes("MatMul"):
        left, right = view.reads(node.input[0]), view.reads(node.input[1])
        shape, other = view.shape(node.input[0]), view.shape(node.input[1])
        if (
            left is None
            or right is None
            or not shape
            or not other
            or len(shape) < 3
            or view.values(node.input[1]) is not None
        ):
            continue
        weight = view.maker.get(node.input[1])
        if weight is not None and weight.input[0] in view.constants:
            continue
        one_row = shape[-2] == 1 and left.bits == 16 and shape[:-2] == other[:-2]
        heads = [extent for extent in shape[-3:-2] if isinstance(extent, int) and extent > 1]
        if one_row and heads:
            yield Finding(
                rule=ONE_ROW_ATTENTION.name,
                severity=Severity.ERROR,
                graph=view.name,
                tensors=(node.input[0], node.input[1]),
                found=f"one row of {left.bits} bits in each of {heads[0]} heads",
                expected="a float MatMul, two rows, or one head",
                effect=f"{heads[0] - 1} of {heads[0]} heads are garbage ({ONE_ROW_ATTENTION.seen})",
                fix=ONE_ROW_ATTENTION.way_out,
            )
