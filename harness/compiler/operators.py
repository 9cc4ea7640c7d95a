"""Which nodes of any ONNX file the HTP backend takes, and why not: asked of the library, in a process of its own."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from harness.compiler.call import LOG, call_worker
from harness.compiler.libraries import EP_NAME
from harness.compiler.messages import PlaceRequest, WorkerRequest
from harness.errors import CompileError, UserError, first_line
from harness.soc import PRECISION_FLOORS, Precision, Soc

if TYPE_CHECKING:
    import onnx

WAYS_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Trilu": "give the mask as a graph input, or as a constant",
        "GroupQueryAttention": "export attention as MatMul, Add, Softmax, MatMul with the cache as graph inputs",
        "MultiHeadAttention": "export attention as MatMul, Add, Softmax, MatMul",
        "SkipSimplifiedLayerNormalization": "write it as Add and RMSNormalization (opset 23)",
        "SkipLayerNormalization": "write it as Add and LayerNormalization",
        "NonZero": "its output has no fixed shape: work with a mask of fixed shape",
        "Loop": "unroll it",
        "Scan": "unroll it",
        "Shape": "make every dimension fixed; it then becomes a constant",
        "Range": "make it a constant, or a graph input",
    }
)
_ANY_WAY_OUT: Final = "write it in operators that are taken"
_DYNAMIC_WAY_OUT: Final = "make every dimension fixed before compiling"
_BLOCK_WAY_OUT: Final = (
    f"weights in blocks need HTP v{PRECISION_FLOORS[Precision.W4A16_B32].arch} and 16-bit activations: "
    "give them one scale an output channel"
)
_VERDICT = re.compile(r"LogNodeSupport\] Validation (PASSED|FAILED) for ")
_NODE = re.compile(r"^\tOperator type: (\S+) Node name: (.*) Node index: \d+$")
_REASON = re.compile(r"^\tREASON : (.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    name: str
    dtype: str | None
    """None: shape inference does not tell."""
    shape: tuple[int | str, ...] | None
    constant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    name: str
    op: str
    """``domain.Operator`` outside the default domain."""
    taken: bool
    reason: str | None
    """Why not, in the library's words."""
    way_out: str | None
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    model: str
    part: str
    htp_arch: int
    counts: dict[str, int]
    """Every operator of the graph and of the bodies of If, Loop and Scan."""
    nodes: tuple[NodeReport, ...]
    """Of the top graph, in its order."""
    failure: str | None
    """Set where each node was judged, but the library could not compile what it took."""

    @property
    def refused(self) -> tuple[NodeReport, ...]:
        return tuple(node for node in self.nodes if not node.taken)


def inspect_operators(model: Path, soc: Soc, *, progress: Callable[[str], None] = lambda _: None) -> OperatorReport:
    """Ask onnxruntime-qnn to place ``model`` for ``soc``, with the CPU allowed for the rest."""
    import onnx

    try:
        loaded = onnx.load(model, load_external_data=False)
    except Exception as exc:
        raise UserError(f"{model} is not an ONNX model", found=first_line(exc), next_step="check the path") from exc
    _check_data(model, loaded)
    names = name_every_node(loaded)
    with tempfile.TemporaryDirectory(prefix="snapgate-operators-") as scratch:
        folder = Path(scratch)
        (folder / "model.onnx").write_bytes(loaded.SerializeToString())
        fp16 = soc.htp_arch >= PRECISION_FLOORS[Precision.FP16].emulator_arch
        request = PlaceRequest(
            model="model.onnx", data_folder=str(model.parent.resolve()), soc_number=soc.soc_number, fp16=fp16
        )
        progress(f"asking the HTP backend about {len(names)} nodes for {soc.part} (HTP v{soc.htp_arch})")
        failure, providers = None, {}
        try:
            placed = call_worker(WorkerRequest(place=request), folder, doing=f"placing {model.name} for {soc.part}")
            providers = {node.name: node.provider for node in placed.placed or ()}
        except CompileError as exc:
            failure = str(exc)
        log = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    verdicts = read_verdicts(log)
    if failure is not None and not verdicts:
        raise CompileError(
            f"{model} could not be judged", found=failure, next_step="check that onnxruntime itself loads the model"
        )
    edges = _edges(loaded)
    dynamic = any(isinstance(extent, str) for edge in edges.values() for extent in edge.shape or ())
    return OperatorReport(
        model=str(model),
        part=soc.part,
        htp_arch=soc.htp_arch,
        counts=dict(sorted(_count(loaded.graph).items(), key=lambda item: (-item[1], item[0]))),
        nodes=tuple(_report(node, providers, verdicts, edges, dynamic) for node in loaded.graph.node),
        failure=failure,
    )


def read_verdicts(log: str) -> dict[str, str | None]:
    """Node name to the first reason the library gives for refusing it, None where it takes it."""
    verdicts: dict[str, str | None] = {}
    members: list[str] = []
    failed = False
    for line in log.splitlines():
        if found := _VERDICT.search(line):
            failed, members = found[1] == "FAILED", []
        elif found := _NODE.match(line):
            members.append(found[2])
            verdicts[found[2]] = "the library gives no reason" if failed else verdicts.get(found[2])
        elif failed and (found := _REASON.match(line)):
            for name in members:
                verdicts[name] = found[1]
    return verdicts


def _report(
    node: onnx.NodeProto,
    providers: Mapping[str, str],
    verdicts: Mapping[str, str | None],
    edges: Mapping[str, Edge],
    dynamic: bool,
) -> NodeReport:
    provider = providers.get(node.name)
    taken = provider == EP_NAME if provider is not None else verdicts.get(node.name, "") is None
    reason = way_out = None
    if not taken:
        inside = [edge for name in (*node.input, *node.output) if (edge := edges.get(name)) is not None]
        moving = [edge.name for edge in inside if any(isinstance(extent, str) for extent in edge.shape or ())]
        reason = verdicts.get(node.name)
        if reason is None and (moving or dynamic):
            reason = f"dynamic shape of {moving[0]}" if moving else "the graph has dynamic shapes"
        reason = reason or "taken alone, but left out with its neighbours"
        way_out = _DYNAMIC_WAY_OUT if moving else WAYS_OUT.get(node.op_type, _ANY_WAY_OUT)
        if "BQ MatMul" in reason:
            way_out = _BLOCK_WAY_OUT
    return NodeReport(
        name=node.name,
        op=_operator(node),
        taken=taken,
        reason=reason,
        way_out=way_out,
        inputs=tuple(_edge(edges, name) for name in node.input if name),
        outputs=tuple(_edge(edges, name) for name in node.output if name),
    )


def name_every_node(model: onnx.ModelProto) -> list[str]:
    """Give each node of the top graph a name of its own. Changes ``model``."""
    seen: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
        seen.add(node.name)
    return list(seen)


def _check_data(path: Path, model: onnx.ModelProto) -> None:
    """Every data file the model names is there: onnxruntime's own message would not say which is missing."""
    for relative in {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}:
        if not (path.parent / relative).is_file():
            raise UserError(
                f"{path} has no weights",
                found=f"no {path.parent / relative}",
                next_step="put the file back beside the model",
            )


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _count(graph: onnx.GraphProto) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in graph.node:
        counts[_operator(node)] += 1
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                counts += _count(body)
    return counts


def _edge(edges: Mapping[str, Edge], name: str) -> Edge:
    return edges.get(name, Edge(name=name, dtype=None, shape=None, constant=False))


def _edges(model: onnx.ModelProto) -> dict[str, Edge]:
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except onnx.shape_inference.InferenceError:
        graph = model.graph
    edges = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = value.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)
        edges[value.name] = Edge(
            name=value.name,
            dtype=onnx.TensorProto.DataType.Name(kind.elem_type).lower(),
            shape=shape if kind.HasField("shape") else None,
            constant=False,
        )
    for tensor in graph.initializer:
        edges[tensor.name] = Edge(
            name=tensor.name,
            dtype=onnx.TensorProto.DataType.Name(tensor.data_type).lower(),
            shape=tuple(tensor.dims),
            constant=True,
        )
    return edges
