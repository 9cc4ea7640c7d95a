"""Compiling with the tools of a QAIRT SDK: qairt-converter makes a DLC of each graph, qnn-context-binary-generator one
context binary of all.

Options and configuration keys are those of the tools' public reference (QAIRT 2.3x); no live SDK has run this yet.
What comes out is checked like any binary: SoC, arch, and every input and output, read by the SDK's own libQnnSystem.so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.compiler.call import call_worker
from harness.compiler.messages import BinaryFacts, BinaryGraph, CompileAnswer, ReadRequest, WorkerRequest, Wrapped
from harness.errors import CompileError, HostError
from harness.record.artifact import TensorSpec, sha256_of
from harness.soc import Soc

HOST_FOLDER: Final = "x86_64-linux-clang"
CONVERTER, GENERATOR = "qairt-converter", "qnn-context-binary-generator"
PYTHON_VARIABLE: Final = "SNAPGATE_QAIRT_PYTHON"
"""The Python that has the converter's packages; else ``python3``."""
LIBRARIES: Final = ("libQnnHtp.so", "libQnnHtpNetRunExtensions.so", "libQnnModelDlc.so", "libQnnSystem.so")
_BINARY: Final = "compiled"
_SHOWN_LINES: Final = 5
_ERROR_LINE: Final = re.compile(r"\bERROR\b")
"""The converter logs ``<time> - <n> - ERROR - <text>``, the generator ``<n>ms [ ERROR ] <text>``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """The host tools of a QAIRT SDK."""

    root: Path
    identity: str
    """sha256 over tools and libraries: a binary of one SDK is not taken for one of another."""

    def tool(self, name: str) -> Path:
        return self.root / "bin" / HOST_FOLDER / name

    def library(self, name: str) -> Path:
        return self.root / "lib" / HOST_FOLDER / name

    @property
    def environment(self) -> dict[str, str]:
        def before(variable: str, path: Path) -> str:
            return os.pathsep.join(filter(None, (str(path), os.environ.get(variable))))

        return {
            **os.environ,
            "QNN_SDK_ROOT": str(self.root),
            "QAIRT_SDK_ROOT": str(self.root),
            "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", self.root / "lib" / HOST_FOLDER),
            "PYTHONPATH": before("PYTHONPATH", self.root / "lib" / "python"),
            "PATH": before("PATH", self.root / "bin" / HOST_FOLDER),
        }


def find_sdk(root: Path | None, hash_of: Callable[[Path], str] = sha256_of) -> Sdk:
    """Raises HostError where there is none, or a tool is missing."""
    if root is None:
        raise HostError(
            "compiling with qairt needs a QAIRT SDK",
            found="neither QNN_SDK_ROOT nor QAIRT_SDK_ROOT is set",
            expected="the root of an SDK in one of them",
            next_step="set QNN_SDK_ROOT, or leave --compiler out to compile with onnxruntime-qnn",
        )
    root = root.absolute()
    sdk = Sdk(root=root, identity="")
    files = [sdk.tool(CONVERTER), sdk.tool(GENERATOR), *(sdk.library(name) for name in LIBRARIES)]
    absent = [str(path.relative_to(root)) for path in files if not path.is_file()]
    if absent:
        raise HostError(
            f"{root} is not a whole QAIRT SDK",
            found=f"no {', no '.join(absent)}",
            expected=f"the tools and libraries of {HOST_FOLDER}",
            next_step="point QNN_SDK_ROOT to the folder that has bin/ and lib/",
        )
    return Sdk(root=root, identity=" ".join(hash_of(path)[:16] for path in files))


def converter_argv(sdk: Sdk, model: Path, dlc: Path, *, soc: Soc, fp16: bool) -> list[str]:
    """A quantised graph stays quantised as it is, so no quantizer runs.

    Its inputs and outputs keep their types. Simplifying is off: it could fold the dequantised weights to floats.
    """
    argv = [os.environ.get(PYTHON_VARIABLE, "python3"), str(sdk.tool(CONVERTER))]
    argv += ["--input_network", str(model), "--output_path", str(dlc)]
    argv += ["--onnx_skip_simplification", "--preserve_io_datatype"]
    argv += ["--target_backend", "HTP", "--target_soc_model", soc.part]
    return argv + (["--float_bitwidth", "16", "--float_bias_bitwidth", "16"] if fp16 else [])


def generator_argv(sdk: Sdk, dlcs: Sequence[Path], config: Path, folder: Path) -> list[str]:
    """Writes ``folder/compiled.bin``."""
    argv = [str(sdk.tool(GENERATOR))]
    argv += ["--backend", str(sdk.library("libQnnHtp.so")), "--model", str(sdk.library("libQnnModelDlc.so"))]
    argv += ["--dlc_path", ",".join(str(dlc) for dlc in dlcs)]
    argv += ["--config_file", str(config), "--binary_file", _BINARY, "--output_dir", str(folder)]
    return [*argv, "--log_level", "error"]


def backend_config(names: Sequence[str], *, soc: Soc, level: int, fp16: bool, shared: bool) -> dict[str, Any]:
    """Configuration of the HTP backend extensions. ``names``: of the graphs, which are their DLCs'."""
    graphs: dict[str, Any] = {"graph_names": list(names), "O": level}
    if soc.vtcm_mb is not None:
        graphs["vtcm_mb"] = soc.vtcm_mb
    if fp16:
        graphs["fp16_relaxed_precision"] = 1
    config: dict[str, Any] = {
        "graphs": [graphs],
        "devices": [{"soc_model": soc.soc_number, "dsp_arch": f"v{soc.htp_arch}"}],
    }
    return config | ({"context": {"weight_sharing_enabled": True}} if shared else {})


def compile_with_sdk(
    sdk: Sdk,
    models: Sequence[Path],
    edges: Sequence[tuple[TensorSpec, ...]],
    folder: Path,
    *,
    soc: Soc,
    level: int,
    fp16: bool,
    shared: bool,
    doing: str,
    deadline_s: float,
) -> CompileAnswer:
    """``edges``: inputs and outputs of each model, by which its graph is found in the binary."""
    dlcs = []
    for model in models:
        dlc = folder / f"{model.stem}.dlc"
        argv = converter_argv(sdk, model, dlc, soc=soc, fp16=fp16)
        _run(sdk, argv, folder, tool=CONVERTER, makes=dlc, doing=doing, deadline_s=deadline_s)
        dlcs.append(dlc)
    inner, outer = folder / "htp.json", folder / "backend.json"
    names = [dlc.stem for dlc in dlcs]
    inner.write_text(json.dumps(backend_config(names, soc=soc, level=level, fp16=fp16, shared=shared)))
    extensions = {
        "shared_library_path": str(sdk.library("libQnnHtpNetRunExtensions.so")),
        "config_file_path": str(inner),
    }
    outer.write_text(json.dumps({"backend_extensions": extensions}))
    binary = folder / f"{_BINARY}.bin"
    argv = generator_argv(sdk, dlcs, outer, folder)
    _run(sdk, argv, folder, tool=GENERATOR, makes=binary, doing=doing, deadline_s=deadline_s)
    request = ReadRequest(binary=binary.name, system_library=str(sdk.library("libQnnSystem.so")))
    told = {"LD_LIBRARY_PATH": sdk.environment["LD_LIBRARY_PATH"]}
    facts = call_worker(
        WorkerRequest(read=request), folder, doing=f"{doing}: reading the binary", environment=told
    ).facts
    if facts is None:
        raise CompileError(f"{doing} failed", found="an answer to another question")
    return CompileAnswer(
        wrapped=tuple(
            Wrapped(nodes=("EPContext",), graph=_graph_of(facts, model, wanted, doing=doing))
            for model, wanted in zip(models, edges, strict=True)
        ),
        binary=binary.name,
        facts=facts,
    )


def _graph_of(facts: BinaryFacts, model: Path, wanted: tuple[TensorSpec, ...], *, doing: str) -> str:
    """The graph with the model's tensors: the converter's way to name graphs is not relied on."""

    def shapes(tensors: Sequence[TensorSpec]) -> set[tuple[str, tuple[int, ...]]]:
        return {(tensor.name, tensor.shape) for tensor in tensors}

    def edges(graph: BinaryGraph) -> set[tuple[str, tuple[int, ...]]]:
        return shapes((*graph.inputs, *graph.outputs))

    found = [graph.name for graph in facts.graphs if edges(graph) == shapes(wanted)]
    if len(found) == 1:
        return found[0]
    nearest = min(facts.graphs, key=lambda graph: len(edges(graph) ^ shapes(wanted)), default=None)
    odd = sorted(edges(nearest) - shapes(wanted))[:3] if nearest is not None else []
    raise CompileError(
        f"{doing}: {model.name} cannot be told in the binary",
        found=f"{len(found)} of {len(facts.graphs)} graphs have its inputs and outputs"
        + (f"; unlike it: {', '.join(f'{name} {list(shape)}' for name, shape in odd)}" if odd else ""),
        expected="one graph whose tensors have the names and shapes of the ONNX graph's",
        next_step="compile with onnxruntime-qnn (leave --compiler out), and report the SDK's version",
    )


def _run(sdk: Sdk, argv: Sequence[str], folder: Path, *, tool: str, makes: Path, doing: str, deadline_s: float) -> None:
    log = folder / f"{tool}.log"
    try:
        with log.open("ab") as lines:
            ended = subprocess.run(
                argv,
                cwd=folder,
                env=sdk.environment,
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=subprocess.STDOUT,
                timeout=deadline_s,
                check=False,
            ).returncode
    except subprocess.TimeoutExpired as exc:
        raise CompileError(
            f"{doing} did not end: {tool}", found=f"still running after {deadline_s:.0f} s", next_step="more shards"
        ) from exc
    except OSError as exc:
        raise HostError(
            f"{tool} does not start",
            found=str(exc),
            expected="tools for this host, and a Python with the SDK's packages",
            next_step=f"run the SDK's dependency check, and name its Python in {PYTHON_VARIABLE}",
        ) from exc
    if ended != 0 or not makes.is_file() or makes.stat().st_size == 0:
        raise CompileError(
            f"{doing} failed: {tool} ended with {ended}" + ("" if ended else f" and left no {makes.name}"),
            found=_told(log),
            expected=makes.name,
            next_step=f"run it by hand to see all it says: {' '.join(_shown(argv, folder))}",
        )


def _shown(argv: Sequence[str], folder: Path) -> list[str]:
    """Without the scratch folder, which is gone by then."""
    return [argument.replace(f"{folder}{os.sep}", "") for argument in argv]


def _told(log: Path) -> str:
    """The error lines of a tool's log, or its last ones."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join([line for line in lines if _ERROR_LINE.search(line)][-_SHOWN_LINES:] or lines[-_SHOWN_LINES:])


def sdk_tools(sdk: Sdk | None) -> Mapping[str, str]:
    """What an artifact's ``tools`` say of the SDK."""
    return {} if sdk is None else {"qairt": sdk.identity}
