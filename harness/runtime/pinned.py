"""The data file ``pinned.toml``: published phone libraries with their sha256, and the compilers that were tried."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRuntime:
    version: str
    sha256: str
    """Of the ``.aar``"""
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedCompiler:
    """What one onnxruntime-qnn wheel carries."""

    wheel: str
    build_id: str
    htp_api: str
    blob: str | None
    """Version of the context binaries it writes. None: it compiles nothing with the onnxruntime in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    group: str
    artifact: str
    default: str
    runtimes: tuple[PublishedRuntime, ...]
    compilers: tuple[TriedCompiler, ...]

    def runtime(self, version: str) -> PublishedRuntime | None:
        return next((entry for entry in self.runtimes if entry.version == version), None)


@functools.cache
def pinned() -> Pinned:
    table = tomllib.loads((resources.files("harness.runtime") / "pinned.toml").read_text(encoding="utf-8"))
    return Pinned(
        group=table["group"],
        artifact=table["artifact"],
        default=table["default"],
        runtimes=tuple(PublishedRuntime(**entry) for entry in table["runtime"]),
        compilers=tuple(TriedCompiler(**{"blob": None, **entry}) for entry in table["compiler"]),
    )
