"""The binaries of one shard whose graphs are made when they are needed and gone when they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from harness.compiler.beside import Beside
from harness.compiler.binaries import Binaries, BinaryStages
from harness.compiler.probe import MIN_CORRELATION, Step, defects_to_look_for
from harness.compiler.qairt import sdk_tools
from harness.errors import CompileError
from harness.model.form import Contexts

EMULATED_WORK_PER_MINUTE: Final = 1.2e10
"""Tokens times parameters that the emulator computes: 0.1 B parameters and 128 tokens in 66 s."""
MAX_CHECKED_WORK: Final = 5 * EMULATED_WORK_PER_MINUTE
"""Of a step that is run there to check what shared weights were made of; AR-1 always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    least: float
    """Correlation of an output on the emulator with the CPU's, of the worst output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBinaries(BinaryStages):
    """``graphs`` is the shard's own stage, perhaps not made yet; ``paths`` are those of all shards."""

    number: int
    """From 1"""
    compare: Callable[[Sequence[Step]], float]
    """Correlation of the worst output of the shard's AR-N graph on the emulator with the CPU's."""
    beside: Beside
    prepare_next: Callable[[], object]
    """Makes what the next shard's stages are made from, if this shard's had to be made."""

    @property
    def names_apart(self) -> tuple[str, ...]:
        """Of the stages that compile each graph on its own."""
        end = "" if len(self.paths[1]) == 1 else f"_shard{self.number}"
        return tuple(f"compile ar{n_tokens}{end}" for n_tokens in self.paths)

    def binaries(self) -> Binaries:
        """Of this shard: one an AR-N graph, the largest first, or one for all."""
        if self.plan.contexts == Contexts.SEPARATE:
            return self._separate()
        checks = self._start_checks() if self.plan.contexts == Contexts.SHARED else []
        self.beside.start(self.prepare_next)
        paths = {n: paths[self.number - 1] for n, paths in self.paths.items()}
        binary = self._binary(paths, "model", self.number)
        if checks:
            self._judge([check.result() for check in checks])
        return (binary,)

    def _separate(self) -> Binaries:
        made = []
        for n, paths in self.paths.items():
            made.append(self._binary({n: paths[self.number - 1]}, f"ar{n}", self.number))
            if len(made) == 1:  # the first of them waited for the graphs
                self.beside.start(self.prepare_next)
        return tuple(made)

    def _start_checks(self) -> list[Future[float]]:
        """Compiles the graphs apart, and has them run on the emulator beside what comes next."""
        per_token = self.facts.n_parameters / len(self.paths[1])
        run = [n_tokens for n_tokens in self.paths if n_tokens == 1 or n_tokens * per_token <= MAX_CHECKED_WORK]
        for n_tokens in self.paths.keys() - run:
            self.progress(
                f"note: AR-{n_tokens} of shard {self.number} is not run on the emulator, where it would take "
                f"{n_tokens * per_token / EMULATED_WORK_PER_MINUTE:.0f} minutes or so"
            )
        return [self._start_agreement(n_tokens) for n_tokens in run]

    def _judge(self, correlations: Sequence[float]) -> None:
        least = min(correlations)
        self.progress(f"the emulator's outputs correlate with the CPU's to {least:.4f} at the least")
        if least < MIN_CORRELATION and not defects_to_look_for(self.plan.soc):
            raise CompileError(
                f"shard {self.number} does not compute on the HTP what it computes on the CPU",
                found=f"an output with a correlation of {least:.2f}",
                expected=f"at least {MIN_CORRELATION}",
                next_step="prepare with --contexts separate, and compare the emulator with the reference",
            )

    def defects(self, binaries: Binaries) -> tuple[str, ...]:  # noqa: ARG002
        names = defects_to_look_for(self.plan.soc)
        if not names or self._agreement(1) >= MIN_CORRELATION:
            return ()
        for name in names:
            self.progress(f"note: {name}: emulated results of this artifact will be INVALID")
        return names

    def _agreement(self, n_tokens: int) -> float:
        return self._start_agreement(n_tokens).result()

    def _start_agreement(self, n_tokens: int) -> Future[float]:
        """Of the graph compiled on its own; kept by what decides it, for that binary may be removed."""
        number, path = self.number, self.paths[n_tokens][self.number - 1]

        def compute() -> _Agreement:
            self.progress(f"running AR-{n_tokens} of shard {number} on the emulator beside the CPU")
            ((stage, compiled),) = made
            (spec,) = compiled.context.graphs
            return _Agreement(least=self.compare([(path, spec, stage.path / compiled.context.file)]))

        stage = f"check ar{n_tokens} of shard {number}"
        decided_by = {
            "graphs": self.graphs.key,
            "soc": self.plan.soc.soc_number,
            "vtcm": self.plan.soc.vtcm_mb,
            **sdk_tools(self.sdk),
        }
        made: Binaries = ()
        if self.stages.find(stage, decided_by) is None:
            made = (self._binary({n_tokens: path}, f"ar{n_tokens}", number),)
        return self.beside.start(lambda: self.stages.value(stage, decided_by, _Agreement, compute).least)
