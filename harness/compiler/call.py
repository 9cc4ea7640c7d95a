"""Starts the worker process, waits for its answer, and turns whatever went wrong into one error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.compiler.libraries import library_folder
from harness.compiler.messages import WorkerAnswer, WorkerRequest
from harness.errors import CompileError
from harness.record.codec import read_json, write_json

DEFAULT_DEADLINE_S: Final = 1800.0
_REQUEST, _ANSWER, LOG = "request.json", "answer.json", "worker.log"


def call_worker(
    request: WorkerRequest,
    folder: Path,
    *,
    doing: str,
    deadline_s: float = DEFAULT_DEADLINE_S,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> WorkerAnswer:
    """Run ``request`` in ``folder``. ``doing`` names the work in an error ("compiling AR-64 for SM8650").

    ``environment``: what the process is told besides.
    """
    library_folder()
    (folder / _ANSWER).unlink(missing_ok=True)
    write_json(folder / _REQUEST, request)
    python_path = os.pathsep.join(path for path in sys.path if path)
    with (folder / LOG).open("wb") as log:
        try:
            process = subprocess.run(
                [sys.executable, "-m", "harness.compiler.worker", _REQUEST, _ANSWER, str(os.getpid())],
                cwd=folder,
                env={**os.environ, **environment, "PYTHONPATH": python_path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise CompileError(
                f"{doing} did not end", found=f"still running after {deadline_s:.0f} s", next_step="try a smaller model"
            ) from exc
    if process.returncode != 0 or not (folder / _ANSWER).is_file():
        raise CompileError(
            f"{doing} failed: the compiler process ended with {process.returncode}",
            found=_last_lines(folder / LOG),
            next_step="look for an operator or a shape the HTP does not take",
        )
    answer = read_json(folder / _ANSWER, WorkerAnswer)
    if answer.failure is not None:
        raise CompileError(
            f"{doing} failed: {answer.failure.what}",
            found=f"{answer.failure.detail}\n{_last_lines(folder / LOG)}",
            next_step="look for an operator or a shape the HTP does not take",
        )
    return answer


def _last_lines(log: Path, n_lines: int = 6) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-n_lines:])
