from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness.model.engine import held_interrupt


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """Also where the tests themselves were started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_takes_effect_once_the_block_is_over() -> None:
    done = []

    def work() -> None:
        with held_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            done.append("to the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["to the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_happens() -> None:
    with held_interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_changes_no_handler() -> None:
    seen: list[object] = []

    def work() -> None:
        with held_interrupt():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.2])
def test_ctrl_c_while_onnxruntime_is_loaded_ends_the_program(delay_s: float) -> None:
    pytest.importorskip("onnxruntime")
    code = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler); import numpy\n"
        "from harness.model.engine import load_onnxruntime\n"
        "print('now', flush=True); load_onnxruntime(); time.sleep(20); print('went on')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "now\n"
        time.sleep(delay_s)
        run.send_signal(signal.SIGINT)
        said, error = run.communicate(timeout=19)
    assert said == ""
    assert error.rstrip().endswith("KeyboardInterrupt")
