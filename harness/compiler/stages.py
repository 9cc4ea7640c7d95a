"""Finished pieces of a preparation, kept so that an interrupted one goes on where it was.

A stage is a folder ``.stages/<name>-<hash>`` below the output folder. The hash is that of everything that decides its
contents. It gets its name when it is whole, and is taken again only if every file still has the sha256 it had then.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from harness.errors import UserError
from harness.record.artifact import sha256_of
from harness.record.codec import read_json, to_json, write_json

FOLDER: Final = ".stages"
_DONE, _VALUE, _UNFINISHED = "done.json", "value.json", ".unfinished-"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    files_sha256: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a stage took. Peak memory is that of the process, or of the compiler's where that was larger."""

    stage: str
    seconds: float
    peak_rss_bytes: int | None
    """Resident pages at their most, mapped files included; None: this kernel does not say."""
    resumed: bool
    """Finished in an earlier run and taken as it was."""


@dataclass(slots=True, kw_only=True)
class _Running:
    peak_rss_bytes: int = 0


class Meter:
    """The stages of one preparation, in the order they ended. Stages of two threads may run at the same time: the
    memory of this process then counts for both, that of a process they start for the one that started it."""

    def __init__(self, *, progress: Callable[[str], None]) -> None:
        self.progress = progress
        self.measured: list[Measured] = []
        self._lock = threading.Lock()
        self._running: dict[int, list[_Running]] = {}
        """By thread, the innermost last."""

    def saw_child(self, peak_rss_bytes: int | None) -> None:
        """A process that worked for the stage that is being measured."""
        with self._lock:
            for running in self._running.get(threading.get_ident(), []):
                running.peak_rss_bytes = max(running.peak_rss_bytes, peak_rss_bytes or 0)

    def run(self, stage: str, work: Callable[[], T]) -> T:
        thread, running = threading.get_ident(), _Running()
        with self._lock:
            self._note_own_peak()
            _forget_peak()
            self._running.setdefault(thread, []).append(running)
        start = time.monotonic()
        try:
            result = work()
            seconds = time.monotonic() - start
        finally:
            with self._lock:
                readable = self._note_own_peak()
                self._running[thread].remove(running)
        peak = running.peak_rss_bytes if readable else None
        self.measured.append(Measured(stage=stage, seconds=seconds, peak_rss_bytes=peak, resumed=False))
        memory = "" if peak is None else f", at most {peak / 2**30:.2f} GiB in memory"
        self.progress(f"{stage}: {seconds:.1f} s{memory}")
        return result

    def _note_own_peak(self) -> bool:
        """For all that run. False: this kernel does not say."""
        own = peak_rss_bytes()
        for of_thread in self._running.values():
            for running in of_thread:
                running.peak_rss_bytes = max(running.peak_rss_bytes, own or 0)
        return own is not None

    def resumed(self, stage: str, seconds: float) -> None:
        self.measured.append(Measured(stage=stage, seconds=seconds, peak_rss_bytes=None, resumed=True))
        self.progress(f"{stage}: finished before, taken as it is")


class Stages:
    """Of one preparation at a time: the output folder is locked. Two threads may make different stages at once."""

    def __init__(self, out: Path, meter: Meter) -> None:
        self._root = out / FOLDER
        self._meter = meter
        self._used: set[Path] = set()
        self._ready: Callable[[], object] | None = None
        self._root.mkdir(exist_ok=True)
        for leftover in self._root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def folder(self, stage: str, decided_by: Mapping[str, Any], make: Callable[[Path], None]) -> Stage:
        """The finished stage: from an earlier run, or made now by ``make`` in a folder it is given.

        ``decided_by``: what JSON can hold; everything that the contents depend on.
        """
        path = self._path(stage, decided_by)
        self._used.add(path)
        start = time.monotonic()
        done = _finished(path) if path.is_dir() else None
        if done is None and self._ready is not None:
            self._ready()
        if done is not None:
            self._meter.resumed(stage, time.monotonic() - start)
        else:
            done = self._meter.run(stage, lambda: self._make(path, make))
        return Stage(path=path, files_sha256=done.files_sha256)

    def after(self, ready: Callable[[], object]) -> Stages:
        """The same stages, but before one is made ``ready`` is called: it makes what the others are made from."""
        waiting = copy(self)
        waiting._ready = ready
        return waiting

    def planned(self, stage: str, decided_by: Mapping[str, Any]) -> Stage:
        """The stage as ``folder`` will leave it, made or not: its key stands for what decides it."""
        path = self._path(stage, decided_by)
        return Stage(path=path, files_sha256={"decided by": path.name})

    def find(self, stage: str, decided_by: Mapping[str, Any]) -> Stage | None:
        """The stage, if it is finished."""
        path = self._path(stage, decided_by)
        done = _finished(path) if path.is_dir() else None
        if done is None:
            return None
        self._used.add(path)
        return Stage(path=path, files_sha256=done.files_sha256)

    def drop(self, *names: str) -> None:
        """Remove stages that nothing will be made from any more."""
        for path in [path for path in tuple(self._used) if path.name.rpartition("-")[0] in map(_file_name, names)]:
            shutil.rmtree(path, ignore_errors=True)
            self._used.discard(path)

    def value(self, stage: str, decided_by: Mapping[str, Any], kind: type[T], compute: Callable[[], T]) -> T:
        """A small result, kept as JSON."""
        kept = self.folder(stage, decided_by, lambda folder: write_json(folder / _VALUE, compute()))
        return read_json(kept.path / _VALUE, kind)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder beside the stages, gone at the end; what a killed process left goes with the next preparation."""
        folder = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def drop_others(self) -> None:
        """Keep only the stages this preparation used: the next precision of the same checkpoint begins with them."""
        for path in self._root.iterdir():
            if path not in self._used:
                shutil.rmtree(path, ignore_errors=True)

    def _path(self, stage: str, decided_by: Mapping[str, Any]) -> Path:
        text = json.dumps(decided_by, sort_keys=True, separators=(",", ":"))
        return self._root / f"{_file_name(stage)}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def _make(self, path: Path, make: Callable[[Path], None]) -> Done:
        shutil.rmtree(path, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._root))
        try:
            make(folder)
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            done = Done(files_sha256={file.relative_to(folder).as_posix(): sha256_of(file) for file in files})
            write_json(folder / _DONE, done)
            folder.rename(path)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    path: Path
    files_sha256: Mapping[str, str]

    @property
    def key(self) -> str:
        """What a later stage is decided by, if it reads this one."""
        text = json.dumps(dict(self.files_sha256), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _file_name(stage: str) -> str:
    return stage.replace(" ", "-")


def _finished(path: Path) -> Done | None:
    """None: not as it was finished, to be made again."""
    with suppress(UserError, OSError):
        done = read_json(path / _DONE, Done)
        if all(sha256_of(path / name) == expected for name, expected in done.files_sha256.items()):
            return done
    return None


def plain(value: object) -> Any:
    """A record dataclass as JSON, for ``decided_by``."""
    return to_json(value)


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_rss_bytes() -> int | None:
    """The most resident memory of this process since ``_forget_peak``, or since it began."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return None if line is None else int(line.split()[1]) * 1024
