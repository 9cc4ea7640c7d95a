"""Load and speed figures of runs, from the runner's stamps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from harness.measure.metrics import LOAD_PHASES
from harness.measure.steadiness import Steadiness, leading_temperature, steadiness
from harness.measure.timing import comparable_repetitions, load_phase_ms, load_total_ms, timing_of
from harness.record.run import RunRecord
from harness.record.runner import Generation
from harness.record.vocabulary import Suite
from harness.results.figure import Figure, median_figure, present


def load_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    totals = [(run.run_id, ms) for run in runs if (ms := load_total_ms(run.log.phases)) is not None]
    by_phase = [(run.run_id, load_phase_ms(run.log.phases)) for run in runs]
    return present(
        [
            ("load_ms", median_figure(totals)),
            *(
                (f"load_{phase}_ms", median_figure([(i, ms[phase]) for i, ms in by_phase if phase in ms]))
                for phase in LOAD_PHASES
            ),
        ]
    )


def headline_runs(runs: Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """Without those that a suite makes for itself: their prompts are chosen for something else."""
    return tuple(run for run in runs if run.workload not in set(Suite))


def speed_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    owner: dict[int, RunRecord] = {}
    generations: list[Generation] = []
    for run in headline_runs(runs):
        for generation in run.log.generations:
            owner[id(generation)] = run
            generations.append(generation)
    compared = comparable_repetitions(generations)
    timings = [(owner[id(g)].run_id, timing_of(g)) for g in compared]

    def samples(pairs: Iterable[tuple[str, float | None]]) -> list[tuple[str, float]]:
        return [(run_id, value) for run_id, value in pairs if value is not None]

    found = present(
        [
            ("ttft_ms", median_figure(samples((i, t.ttft_ms) for i, t in timings))),
            ("prefill_tps", median_figure(samples((i, t.prefill_tps) for i, t in timings))),
            ("decode_tps", median_figure(samples((i, t.decode_tps) for i, t in timings))),
            ("tpot_ms", median_figure(samples((i, t.tpot_ms) for i, t in timings))),
            *(
                (f"itl_p{p}_ms", median_figure(samples((i, t.itl_quantile_ms(p / 100)) for i, t in timings)))
                for p in (50, 90, 99)
            ),
        ]
    )
    largest = samples((i, t.itl_quantile_ms(1.0)) for i, t in timings)
    if largest:
        values = tuple(value for _, value in largest)
        found["itl_max_ms"] = Figure(
            value=float(np.max(values)), samples=values, run_ids=tuple(dict.fromkeys(i for i, _ in largest))
        )
    return {**found, **_steadiness_figures([(owner[id(g)], g) for g in compared])}


def canary_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """Of runs of the toy graph."""
    pairs = [(run.run_id, timing_of(g).decode_tps) for run in runs for g in run.log.generations if not g.warmup]
    return present([("canary_tps", median_figure([(run_id, tps) for run_id, tps in pairs if tps is not None]))])


def steadiness_of(run: RunRecord, generation: Generation) -> Steadiness | None:
    """The parts of one generation, by its stamps and the sensor of its run that rose most meanwhile."""
    if len(generation.token_ns) < 2:
        return None
    heat = leading_temperature(run.sensors, generation.token_ns[0], generation.token_ns[-1])
    return steadiness(generation.token_ns, heat)


def _steadiness_figures(compared: Sequence[tuple[RunRecord, Generation]]) -> dict[str, Figure]:
    found = [
        (run.run_id, state, len(g.token_ns)) for run, g in compared if (state := steadiness_of(run, g)) is not None
    ]
    if not found:
        return {}
    run_ids = tuple(dict.fromkeys(run_id for run_id, _, _ in found))
    steady = [(run_id, state.steady_tps) for run_id, state, _ in found if state.steady_tps is not None]
    reasons = [state.unsteady for _, state, _ in found if state.unsteady is not None]
    throttled = any(state.tokens_to_throttle is not None for _, state, _ in found)
    until = [(run_id, float(state.tokens_to_throttle or n_tokens)) for run_id, state, n_tokens in found]
    most = max(n_tokens for _, _, n_tokens in found)
    return present(
        [
            ("peak_decode_tps", median_figure([(run_id, state.peak_tps) for run_id, state, _ in found])),
            (
                "steady_decode_tps",
                median_figure(steady) or Figure(value=None, run_ids=run_ids, reason=next(iter(reasons), None)),
            ),
            (
                "tokens_to_throttle",
                median_figure(until)
                if throttled
                else Figure(value=None, run_ids=run_ids, reason=f"no throttling within {most} tokens"),
            ),
        ]
    )
