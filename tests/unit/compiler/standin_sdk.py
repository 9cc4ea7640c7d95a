"""A QAIRT SDK of our own: tools that take the recorded options and nothing else, and compile with onnxruntime-qnn.

Its DLC is a line with the path of the ONNX graph. SNAPGATE_STANDIN_FAULT makes a tool fail in one of the ways that are
publicly reported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

OPTIONS = Path(__file__).parents[2] / "data" / "qairt" / "options.toml"
FAULT = "SNAPGATE_STANDIN_FAULT"


def parse(tool: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Ends the process with 2 for what the tool's recorded options do not allow."""
    known = tomllib.loads(OPTIONS.read_text(encoding="utf-8"))[tool]
    parser = argparse.ArgumentParser(prog=tool, allow_abbrev=False)
    for option, n_values in known["values"].items():
        required = option in known["required"]
        if n_values == 0:
            parser.add_argument(option, action="store_true")
        elif n_values in (1, 2):
            choices = known["choices"].get(option)
            parser.add_argument(option, nargs=None if n_values == 1 else 2, choices=choices, required=required)
        else:
            parser.add_argument(option, nargs=n_values)
    return parser.parse_args(list(arguments))


def make_sdk(root: Path) -> Path:
    """The SDK's folders: tools that run this file, and onnxruntime-qnn's libraries under the SDK's names."""
    from harness.compiler.libraries import library_folder
    from harness.compiler.qairt import CONVERTER, GENERATOR, HOST_FOLDER

    tools, libraries = root / "bin" / HOST_FOLDER, root / "lib" / HOST_FOLDER
    tools.mkdir(parents=True)
    libraries.mkdir(parents=True)
    for tool in (CONVERTER, GENERATOR):
        script = f"import runpy, sys; runpy.run_path({__file__!r})['run']({tool!r}, sys.argv[1:])"
        (tools / tool).write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
        (tools / tool).chmod(0o755)
    for name in ("libQnnHtp.so", "libQnnSystem.so"):
        (libraries / name).symlink_to(library_folder() / name)
    for bundled in library_folder().with_name("onnxruntime_qnn.libs").glob("*"):  # the C++ library they are linked to
        (libraries / bundled.name).symlink_to(bundled)
    for name in ("libQnnModelDlc.so", "libQnnHtpNetRunExtensions.so"):  # named on the command line, not loaded here
        (libraries / name).write_bytes(b"\x7fELF")
    return root


def _convert(asked: argparse.Namespace) -> None:
    if os.environ.get(FAULT) == "unsupported":
        print("2026-01-05 10:11:12,345 - 235 - INFO - Processing the graph")
        _fail("2026-01-05 10:11:12,346 - 240 - ERROR - Encountered Error: No translation registered for op 'Fancy'")
    if os.environ.get(FAULT) != "no-dlc":
        Path(asked.output_path).write_text(str(Path(asked.input_network).absolute()), encoding="utf-8")
    print("2026-01-05 10:11:12,347 - 235 - INFO - INFO_CONVERSION_SUCCESS: Conversion completed successfully")


def _generate(asked: argparse.Namespace) -> None:
    from harness.compiler.call import call_worker
    from harness.compiler.messages import CompileRequest, WorkerRequest

    if os.environ.get(FAULT) == "no-backend":
        _fail("     0.2ms [ ERROR ] Unable to load backend. dlerror(): libc++.so.1: cannot open shared object file")
    extensions = json.loads(Path(asked.config_file).read_text(encoding="utf-8"))["backend_extensions"]
    config = json.loads(Path(extensions["config_file_path"]).read_text(encoding="utf-8"))
    (device,), (graphs,) = config["devices"], config["graphs"]
    models = [Path(Path(dlc).read_text(encoding="utf-8")) for dlc in asked.dlc_path.split(",")]
    assert graphs["graph_names"] == [Path(dlc).stem for dlc in asked.dlc_path.split(",")]
    with tempfile.TemporaryDirectory(dir=asked.output_dir) as scratch:
        folder = Path(scratch)
        (folder / "model").symlink_to(models[0].parent, target_is_directory=True)
        request = CompileRequest(
            models=tuple(f"model/{model.name}" for model in models),
            shared=config.get("context", {}).get("weight_sharing_enabled", False),
            backend=None,
            soc_number=36 if os.environ.get(FAULT) == "other-soc" else device["soc_model"],
            vtcm_mb=graphs.get("vtcm_mb"),
            optimization_level=graphs["O"],
            fp16=graphs.get("fp16_relaxed_precision") == 1,
        )
        answer = call_worker(WorkerRequest(compile=request), folder, doing="compiling").compiled
        assert answer is not None
        (folder / answer.binary).replace(Path(asked.output_dir) / f"{asked.binary_file}.bin")


def _fail(line: str) -> NoReturn:
    print(line)
    raise SystemExit(1)


def run(tool: str, arguments: Sequence[str]) -> None:
    {"qairt-converter": _convert, "qnn-context-binary-generator": _generate}[tool](parse(tool, arguments))
