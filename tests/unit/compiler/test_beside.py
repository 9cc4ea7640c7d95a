"""Work beside the compiler: its order, its end and its memory; and that a compiler ends with who waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.compiler.beside import Beside, StoppedError
from harness.compiler.stages import Meter

MIB = 2**20


def test_it_is_done_in_order_and_all_of_it_before_the_end() -> None:
    done: list[int] = []
    with Beside() as beside:
        futures = [beside.start(lambda number=number: done.append(number)) for number in range(5)]
    assert done == [0, 1, 2, 3, 4]
    assert all(future.done() for future in futures)


def test_a_failure_beside_is_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), Beside() as beside:
        beside.start(lambda: 1 // 0)


def test_an_interrupt_ends_what_has_begun_and_forgets_the_rest() -> None:
    begun, ended, later = threading.Event(), threading.Event(), threading.Event()

    def long_work() -> None:
        begun.set()
        try:
            while True:
                beside.check()
                time.sleep(0.005)
        except StoppedError:
            ended.set()
            raise

    def interrupted() -> None:
        assert begun.wait(60)
        raise KeyboardInterrupt

    beside = Beside()
    beside.start(long_work)
    beside.start(later.set)
    with pytest.raises(KeyboardInterrupt), beside:
        interrupted()
    assert ended.is_set()
    assert not later.is_set()


def test_stages_of_two_threads_are_measured_apart() -> None:
    """The small stage begins after the large one has freed its memory, and forgets the peak: the large one keeps it. A
    process is counted for the thread that started it."""
    said: list[str] = []
    meter = Meter(progress=said.append)
    small_done, large_freed = threading.Event(), threading.Event()

    def large() -> None:
        rows = np.ones(300 * MIB // 8)
        del rows
        large_freed.set()
        assert small_done.wait(60)

    thread = threading.Thread(target=meter.run, args=("large", large))
    thread.start()
    assert large_freed.wait(60)
    meter.run("small", lambda: meter.saw_child(5000 * MIB))
    small_done.set()
    thread.join()
    assert [measured.stage for measured in meter.measured] == ["small", "large"]
    peaks = {measured.stage: measured.peak_rss_bytes for measured in meter.measured}
    if None in peaks.values():
        pytest.skip("this kernel does not tell peaks of memory")
    assert peaks["small"] == 5000 * MIB
    assert 300 * MIB < (peaks["large"] or 0) < 5000 * MIB


def test_a_compiler_does_not_outlive_the_process_that_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "request.json")  # the worker waits here for its request
    code = (
        "import os, subprocess, sys; subprocess.run("
        "[sys.executable, '-m', 'harness.compiler.worker', 'request.json', 'answer.json', str(os.getpid())])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with (
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment) as waiting,
        (tmp_path / "request.json").open("wb"),  # opens when the worker does: by then it has said whom it obeys
    ):
        (worker,) = psutil.Process(waiting.pid).children()
        waiting.send_signal(signal.SIGKILL)
        waiting.wait()
        psutil.wait_procs([worker], timeout=60)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "answer.json").exists()
