"""Where onnxruntime-qnn keeps its libraries, and sessions on its HTP backend (for the worker process)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import HostError
from harness.model.engine import load_onnxruntime

PACKAGE: Final = "onnxruntime_qnn"
EP_NAME: Final = "QNNExecutionProvider"
EP_LIBRARY: Final = "libonnxruntime_providers_qnn.so"


def library_folder() -> Path:
    """The folder with libQnnHtp.so, libQnnSystem.so and their kin for this host. Imports nothing."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise HostError(
            "compiling for the HTP needs onnxruntime-qnn, which is not installed",
            expected="x86-64 Linux with glibc 2.35 or newer and CPython 3.11 to 3.14",
            next_step="pip install 'snapgate[prepare]'",
        )
    folder = Path(found.origin).parent
    absent = [name for name in (EP_LIBRARY, "libQnnHtp.so", "libQnnSystem.so") if not (folder / name).is_file()]
    if absent:
        raise HostError(
            f"onnxruntime-qnn in {folder} is not whole",
            found=f"no {', no '.join(absent)}",
            expected="the package as its wheel has it",
            next_step="pip install --force-reinstall onnxruntime-qnn",
        )
    return folder


def htp_session(
    model: str | bytes,
    provider_options: Mapping[str, str],
    session_options: Mapping[str, str],
    *,
    fallback: bool = False,
    verbose: bool = False,
) -> Any:
    """An onnxruntime session on the HTP backend alone, or with the CPU for what the HTP does not take.

    ``verbose``: graphs are left as they are, and the library says of each node why it takes it or not.
    """
    onnxruntime = load_onnxruntime()

    folder = library_folder()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]
    if not devices:
        onnxruntime.register_execution_provider_library(EP_NAME, str(folder / EP_LIBRARY))
        devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]
    if not devices:
        raise HostError("onnxruntime-qnn offers no device", found="none", next_step="pip install 'snapgate[prepare]'")
    options = onnxruntime.SessionOptions()
    if not fallback:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if verbose:
        options.log_severity_level = 0
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in session_options.items():
        options.add_session_config_entry(key, value)
    options.add_provider_for_devices(
        devices[:1], {"backend_path": str(folder / "libQnnHtp.so"), **dict(provider_options)}
    )
    return onnxruntime.InferenceSession(model, options)
