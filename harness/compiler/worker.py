"""The worker process: ``python -m harness.compiler.worker REQUEST ANSWER PARENT``, run in the folder the request
speaks of. PARENT: the process that waits for it, and that it does not outlive."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from harness.compiler.libraries import htp_session, library_folder
from harness.compiler.messages import (
    CompileAnswer,
    CompileRequest,
    ExecuteRequest,
    Failure,
    PlacedNode,
    PlaceRequest,
    WorkerAnswer,
    WorkerRequest,
    Wrapped,
)
from harness.compiler.metadata import read_binary
from harness.compiler.stages import peak_rss_bytes
from harness.compiler.wrapper import wrapper_model
from harness.errors import SnapGateError
from harness.record.codec import read_json, write_json

_PR_SET_PDEATHSIG: Final = 1
"""Linux, prctl(2)"""


def _compile(request: CompileRequest) -> CompileAnswer:
    provider_options = {
        "soc_model": str(request.soc_number),
        "htp_graph_finalization_optimization_mode": str(request.optimization_level),
    }
    if request.vtcm_mb is not None:
        provider_options["vtcm_mb"] = str(request.vtcm_mb)
    if request.fp16:
        provider_options["enable_htp_fp16_precision"] = "1"
    if request.backend is not None:
        provider_options["backend_path"] = str(Path(request.backend).absolute())
    sessions = []  # all of them live until the last graph is in the binary
    for index, model in enumerate(request.models):
        options = {
            "ep.context_enable": "1",
            "ep.context_embed_mode": "0",
            "ep.context_file_path": f"context{index}.onnx",
        }
        if request.shared:
            options["ep.share_ep_contexts"] = "1"
            options["ep.stop_share_ep_contexts"] = str(int(model == request.models[-1]))
        sessions.append(htp_session(model, provider_options, options))
    wrappers = [_wrapper(f"context{index}.onnx") for index in range(len(sessions))]
    binary = wrappers[-1][1]
    return CompileAnswer(
        wrapped=tuple(wrapped for wrapped, _ in wrappers),
        binary=binary,
        facts=read_binary(Path(binary), library_folder() / "libQnnSystem.so"),
    )


def _wrapper(path: str) -> tuple[Wrapped, str]:
    """What is in a wrapper ONNX, and the name of its binary."""
    import onnx

    nodes = onnx.load(path, load_external_data=False).graph.node
    texts = {a.name: a.s.decode() for node in nodes[:1] for a in node.attribute}
    return Wrapped(nodes=tuple(n.op_type for n in nodes), graph=texts.get("partition_name", "")), texts.get(
        "ep_cache_context", ""
    )


def _execute(request: ExecuteRequest) -> None:
    import onnx

    onnx.save(wrapper_model(request.binary, request.graph), "wrapper.onnx")
    session = htp_session("wrapper.onnx", {}, {})
    names = [output.name for output in session.get_outputs()]
    results = {}
    with np.load(request.feeds, allow_pickle=False) as feeds:
        for index in range(request.n_feeds):
            feed = {tensor.name: feeds[f"{index}/{tensor.name}"] for tensor in request.graph.inputs}
            for name, value in zip(names, session.run(names, feed), strict=True):
                results[f"{index}/{name}"] = value
    np.savez(request.outputs, **results)


def _place(request: PlaceRequest) -> tuple[PlacedNode, ...]:
    options = {"soc_model": str(request.soc_number)}
    if request.fp16:
        options["enable_htp_fp16_precision"] = "1"
    session = htp_session(
        Path(request.model).read_bytes(),
        options,
        {
            "session.record_ep_graph_assignment_info": "1",
            "session.model_external_initializers_file_folder_path": request.data_folder,
        },
        fallback=True,
        verbose=True,
    )
    return tuple(
        PlacedNode(name=node.name, provider=piece.ep_name)
        for piece in session.get_provider_graph_assignment_info()
        for node in piece.get_nodes()
    )


def answer(request: WorkerRequest) -> WorkerAnswer:
    if request.compile is not None:
        return WorkerAnswer(compiled=_compile(request.compile))
    if request.execute is not None:
        _execute(request.execute)
        return WorkerAnswer(executed=True)
    if request.place is not None:
        return WorkerAnswer(placed=_place(request.place))
    if request.read is not None:
        return WorkerAnswer(facts=read_binary(Path(request.read.binary), Path(request.read.system_library)))
    return WorkerAnswer(failure=Failure(what="an empty request", detail=""))


def _end_with(parent: int) -> None:
    """A compile takes minutes and gigabytes: nobody must have to look for one that was left behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before
        raise SystemExit(1)


def main(arguments: list[str]) -> int:
    request_path, answer_path = map(Path, arguments[:2])
    _end_with(int(arguments[2]))
    try:
        result = answer(read_json(request_path, WorkerRequest))
    except SnapGateError as exc:
        result = WorkerAnswer(failure=Failure(what=exc.what, detail=str(exc)))
    except Exception as exc:  # noqa: BLE001 - onnxruntime's exceptions share no base class but this
        result = WorkerAnswer(failure=Failure(what=type(exc).__name__, detail=str(exc)))
    write_json(answer_path, replace(result, peak_rss_bytes=peak_rss_bytes()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
