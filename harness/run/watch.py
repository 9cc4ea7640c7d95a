"""What is known of a run while it goes on, from the lines that come back anyway: nothing more is asked of the phone.

``Watcher`` is fed by the threads that read the runner's output and the sensors, and tells at most once a second. It
never raises: whoever watches must not disturb what is measured.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.device.sensors import Node, judge, parse_samples
from harness.device.text import printable
from harness.record.job import Prompt
from harness.run.workload import Workload

TELL_EVERY_S: Final = 1.0
SAY_EVERY_S: Final = 5.0
_LONGEST_LINE: Final = 1 << 20
"""A longer record is counted, not looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A sign of life of one run."""

    run_id: str
    serial: str
    cell: str
    workload: str
    stage: str
    elapsed_s: float
    heard_s: float | None
    """Since the runner's last line; None: it has not said anything yet."""
    n_done: int
    """Generations with a record, warm-ups included"""
    n_generations: int
    n_tokens: int
    """Generated so far, warm-ups included"""
    celsius: dict[str, float]
    """Domain to its hottest usable sensor, now"""
    left_s: float | None
    """Estimated from the steps done so far; None: none is done."""
    over: bool


def sign_text(sign: Sign) -> str:
    """One plain line."""
    parts = [
        f"running for {sign.elapsed_s:.0f} s on {sign.serial}: {sign.workload} of {sign.cell}, {sign.stage}",
        f"{sign.n_done} of {sign.n_generations} generations, {sign.n_tokens} tokens",
        "runner not heard yet" if sign.heard_s is None else f"runner heard {sign.heard_s:.0f} s ago",
    ]
    if sign.celsius:
        parts.append(" ".join(f"{domain} {celsius:.0f} °C" for domain, celsius in sign.celsius.items()))
    if sign.left_s is not None and not sign.over:
        parts.append(f"about {sign.left_s:.0f} s left")
    return ", ".join(parts)


class Watcher:
    """``tell`` gets a sign at most once a second, and at every change of stage; ``say`` a plain line each 5 s."""

    def __init__(
        self,
        *,
        run_id: str,
        serial: str,
        cell: str,
        workload: Workload,
        prefill_tokens: int,
        tell: Callable[[Sign], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = {"run_id": run_id, "serial": printable(serial, 40), "cell": cell, "workload": workload.name}
        self._n_generations = workload.n_generations
        self._planned = [
            (prefill_steps(prompt, prefill_tokens), prompt.n_gen)
            for prompt in workload.prompts
            for _ in range(prompt.warmups + prompt.repetitions)
        ]
        self._tell, self._say, self._clock = tell, say, clock
        self._lock = threading.Lock()
        self._began = clock()
        self._told = self._said = self._began
        self._heard: float | None = None
        self._generating: float | None = None
        self._celsius: dict[str, float] = {}
        self._over = False
        self._reset("starting")

    def _reset(self, stage: str) -> None:
        self._stage = stage
        self._n_done = self._n_tokens = 0
        self._steps_done = self._steps_now = 0

    def stage(self, text: str) -> None:
        """What is done before, between and after the runner's work."""
        with self._quietly():
            self._stage = printable(text, 80)
            self._emit(at_once=True)

    def restart(self) -> None:
        """A second try: what the first one generated does not count."""
        with self._quietly():
            self._reset("starting again")
            self._heard = self._generating = None

    def line(self, line: str) -> None:
        """A line of the runner's stdout."""
        with self._quietly():
            self._heard = self._clock()
            if len(line) <= _LONGEST_LINE:
                self._take(json.loads(line))
            self._emit()

    def sample(self, nodes: Sequence[Node], line: str) -> None:
        """A line of the sensors' loop."""
        with self._quietly():
            samples = parse_samples([line], len(nodes))
            if samples:
                self._celsius = hottest(nodes, samples[0].values)
                self._emit()

    def over(self) -> None:
        with self._quietly():
            self._over = True
            self._emit(at_once=True)

    def _quietly(self) -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        # Anything at all: a strange line of a phone, a screen that is gone.
        stack.enter_context(contextlib.suppress(Exception))
        stack.enter_context(self._lock)
        return stack

    def _take(self, record: dict[str, Any]) -> None:
        match record.get("type"):
            case "heartbeat":
                self._steps_now = int(record["step"])
            case "phase":
                self._stage = "loading: " + printable(str(record["name"]), 30).replace("_", " ")
            case "memory" if record.get("at") == "after_load":
                self._stage, self._generating = "generating", self._clock()
            case "generation":
                n_tokens, n_prefill, mode = len(record["token_ids"]), len(record["prefill"]), record["mode"]
                self._n_done += 1
                self._n_tokens += n_tokens
                self._steps_done += n_prefill + max(0, n_tokens - 1)
                self._stage = "scoring" if mode == "score" else "generating"
            case "end":
                self._stage = "pulling the records"

    def _emit(self, *, at_once: bool = False) -> None:
        now = self._clock()
        tell, say = at_once or now - self._told >= TELL_EVERY_S, now - self._said >= SAY_EVERY_S
        if not tell and not say:
            return
        sign = Sign(
            **self._names,
            stage=self._stage,
            elapsed_s=now - self._began,
            heard_s=None if self._heard is None else now - self._heard,
            n_done=self._n_done,
            n_generations=self._n_generations,
            n_tokens=self._n_tokens + self._tokens_now(),
            celsius=self._celsius,
            left_s=self._left(now),
            over=self._over,
        )
        if tell:
            self._told = now
            self._tell(sign)
        if say:
            self._said = now
            self._say(sign_text(sign))

    def _tokens_now(self) -> int:
        """Of the generation that goes on, by the step that the runner's heartbeat tells."""
        if self._n_done >= len(self._planned):
            return 0
        n_prefill, n_gen = self._planned[self._n_done]
        return min(max(0, self._steps_now - self._steps_done - n_prefill + 1), n_gen)

    def _left(self, now: float) -> float | None:
        if self._generating is None:
            return None
        steps = [n_prefill + max(0, n_gen - 1) for n_prefill, n_gen in self._planned]
        done = sum(steps[: self._n_done]) + max(0, self._steps_now - self._steps_done)
        return (now - self._generating) / done * max(0, sum(steps) - done) if done else None


def prefill_steps(prompt: Prompt, prefill_tokens: int) -> int:
    """Graph executions until the first token."""
    return len(prompt.tokens) if prompt.step_with == "token" else -(-len(prompt.tokens) // prefill_tokens)


def hottest(nodes: Sequence[Node], values: Sequence[int | None]) -> dict[str, float]:
    """Domain to its hottest temperature of one sample; placeholders and guessed units are left out."""
    found: dict[str, float] = {}
    for node, value in zip(nodes, values, strict=True):
        if node.unit != "celsius":
            continue
        judged, state = judge(node, [value])
        if judged[0] is not None and state == "ok":
            found[node.domain] = max(judged[0], found.get(node.domain, judged[0]))
    return found
