"""Signs of life: what the runner's lines, its heartbeat and the sensors say of a run while it goes on."""

from __future__ import annotations

import json

from harness.device.sensors import Node
from harness.record.job import Prompt
from harness.run.watch import Watcher, hottest, sign_text
from harness.run.workload import Workload

NODES = tuple(
    Node(path=f"/sys/{name}", name=name, kind=kind, domain=domain, unit=unit)
    for name, kind, domain, unit in (
        ("cpu-0", "zone", "cpu", "celsius"),
        ("cpu-1", "zone", "cpu", "celsius"),
        ("nsp", "zone", "npu", "celsius"),
        ("clock policy0", "clock", "cpu", "hz"),
    )
)
PROMPT = Prompt(prompt_id="p", mode="generate", tokens=tuple(range(100)), n_gen=11, warmups=1, repetitions=3)
"""Two chunks of 64 and ten steps of one token: 12 steps for 11 tokens, four times."""


class Bench:
    """A watcher with a clock that is set by hand."""

    def __init__(self, serial: str = "S1") -> None:
        self.now = 0.0
        self.told: list = []
        self.said: list[str] = []
        self.watcher = Watcher(
            run_id="r",
            serial=serial,
            cell="m-w8a16-kv8-SM8650",
            workload=Workload(name="latency", prompts=(PROMPT,)),
            prefill_tokens=64,
            tell=self.told.append,
            say=self.said.append,
            clock=lambda: self.now,
        )

    def line(self, now: float, **record: object) -> None:
        self.now = now
        self.watcher.line(json.dumps(record))


def generation() -> dict:
    return {"type": "generation", "prompt_id": "p", "mode": "generate", "prefill": [0, 0], "token_ids": list(range(11))}


def test_generations_tokens_and_the_time_left_are_counted():
    bench = Bench()
    bench.line(2.0, type="memory", at="after_load")
    bench.line(14.0, **generation())
    sign = bench.told[-1]
    assert (sign.n_done, sign.n_generations, sign.n_tokens) == (1, 4, 11)
    assert sign.left_s == 36.0  # 12 of 48 steps in 12 s
    assert sign.stage == "generating"


def test_the_heartbeat_tells_the_tokens_of_the_generation_that_goes_on():
    """After 12 steps of the first generation, step 18 is the sixth of the second: two chunks, then the fifth token."""
    bench = Bench()
    bench.line(2.0, type="memory", at="after_load")
    bench.line(14.0, **generation())
    bench.line(20.0, type="heartbeat", phase="generation", step=18, monotonic_ns=1)
    sign = bench.told[-1]
    assert sign.n_tokens == 11 + 5
    assert sign.left_s == 30.0  # 18 of 48 steps in 18 s
    assert sign.heard_s == 0.0


def test_signs_come_at_most_once_a_second_and_lines_each_five():
    bench = Bench()
    for tenth in range(101):
        bench.line(tenth / 10, type="heartbeat", phase="generation", step=tenth, monotonic_ns=tenth)
    assert len(bench.told) == 10
    assert len(bench.said) == 2
    assert bench.said[0].startswith("running for 5 s on S1: latency of m-w8a16-kv8-SM8650, ")


def test_a_silent_runner_is_seen_while_the_sensors_still_speak():
    bench = Bench()
    bench.line(1.0, type="phase", name="context_create")
    bench.now = 31.0
    bench.watcher.sample(NODES, "S 100.0 41000 45500 50000 2000000")
    sign = bench.told[-1]
    assert sign.heard_s == 30.0
    assert sign.celsius == {"cpu": 45.5, "npu": 50.0}
    assert sign_text(sign) == (
        "running for 31 s on S1: latency of m-w8a16-kv8-SM8650, loading: context create, 0 of 4 generations, 0 tokens, "
        "runner heard 30 s ago, cpu 46 °C npu 50 °C"
    )


def test_placeholders_are_no_temperature():
    assert hottest(NODES, [-273000, 0, None, 1]) == {}


def test_a_strange_line_changes_nothing_and_raises_nothing():
    bench = Bench(serial="\x1b[31mS\u202e1\n")
    for line in ("", "[]", '{"type": "generation"}', "\x00", '{"type": "heartbeat", "step": {}}', "9" * 100):
        bench.now += 2
        bench.watcher.line(line)
    bench.watcher.sample(NODES, "S nonsense")
    bench.watcher.over()
    sign = bench.told[-1]
    assert (sign.n_done, sign.n_tokens, sign.over) == (0, 0, True)
    assert sign.serial == "[31mS1"


def test_whoever_is_told_cannot_break_the_run():
    bench = Bench()

    def broken(_sign: object) -> None:
        raise OSError("the screen is gone")

    bench.watcher._tell = broken
    bench.line(5.0, **generation())
    bench.watcher.over()


def test_a_second_try_begins_from_nothing():
    bench = Bench()
    bench.line(5.0, **generation())
    bench.watcher.restart()
    bench.now = 10.0
    bench.watcher.stage("pushing")
    assert (bench.told[-1].n_done, bench.told[-1].n_tokens, bench.told[-1].heard_s) == (0, 0, None)
