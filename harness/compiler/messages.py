"""What the compiler's worker process is asked, and what it answers: JSON files in a scratch folder.

Every use of the QNN libraries happens in such a process: equal inputs then give equal bytes (tensor ids start over),
and a crash of the vendor library is an error message here, not the end of the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.artifact import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """Compile ``models`` into one binary (paths relative to the worker's folder, so that no path enters the binary)."""

    models: tuple[str, ...]
    shared: bool
    """Several models: with one set of weights."""
    backend: str | None
    """The backend library to load instead of onnxruntime-qnn's own."""
    soc_number: int
    vtcm_mb: int | None
    optimization_level: int
    fp16: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryGraph:
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryFacts:
    """What libQnnSystem.so reads out of a context binary."""

    build_id: str
    core_api: str
    backend_api: str
    blob_version: str
    soc_number: int
    htp_arch: int
    graphs: tuple[BinaryGraph, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """The wrapper ONNX of one model."""

    nodes: tuple[str, ...]
    """Operator type of every node."""
    graph: str
    """What the first node calls the model's graph in the binary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileAnswer:
    wrapped: tuple[Wrapped, ...]
    """Of every model, in order."""
    binary: str
    facts: BinaryFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteRequest:
    """Run one graph of ``binary`` on every feed of ``feeds`` (an .npz, keys ``<index>/<tensor>``)."""

    binary: str
    graph: BinaryGraph
    feeds: str
    outputs: str
    n_feeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """Ask which nodes of ``model`` the HTP takes. The reasons are in the worker's log."""

    model: str
    data_folder: str
    """Where the model's data files lie."""
    soc_number: int
    fp16: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Read what is in a context binary."""

    binary: str
    system_library: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNode:
    name: str
    provider: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    what: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """Exactly one of the fields is given."""

    compile: CompileRequest | None = None
    execute: ExecuteRequest | None = None
    place: PlaceRequest | None = None
    read: ReadRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAnswer:
    compiled: CompileAnswer | None = None
    executed: bool = False
    placed: tuple[PlacedNode, ...] | None = None
    facts: BinaryFacts | None = None
    failure: Failure | None = None
    peak_rss_bytes: int | None = None
    """Of the worker process. None: this kernel does not say."""
