"""onnxruntime, imported so that an interrupt at that moment is not lost.

Its binary module turns a KeyboardInterrupt that reaches it while it is being loaded into something else, or into
nothing: Ctrl-C in that third of a second would go unheard.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


def load_onnxruntime() -> Any:
    """The module. Raises ImportError, and after the import what an interrupt meanwhile asked for."""
    if "onnxruntime" in sys.modules:
        return sys.modules["onnxruntime"]
    with held_interrupt():
        import onnxruntime
    return onnxruntime


@contextlib.contextmanager
def held_interrupt() -> Iterator[None]:
    """SIGINT within takes effect at the end. Nothing is done where SIGINT is ignored, or outside the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if caught:
            handler(caught[0], None)
