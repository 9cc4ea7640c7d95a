"""Work that goes on while a compiler's process is waited for: compiling keeps one core busy, and a PC has more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """Work that is not wanted any more: what it was done for has failed, or was interrupted."""


class Beside:
    """One thread, which does what it is given in the order given. Left without an error, all of it is done; left with
    one, what has not begun is forgotten and what has begun is told by ``check``."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
        self._started: list[Future[object]] = []
        self._stopped = threading.Event()

    def start(self, work: Callable[[], T]) -> Future[T]:
        future = self._pool.submit(work)
        self._started.append(future)  # type: ignore[arg-type]
        return future

    def check(self) -> None:
        """Called by long work now and then. Raises StoppedError when it should end."""
        if self._stopped.is_set():
            raise StoppedError

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            for future in self._started:
                future.result()
