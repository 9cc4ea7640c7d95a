"""Figures of a sustained load: speed, heat and power, over legs of generations that ran one right after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from harness.measure.energy import power_trace
from harness.measure.steadiness import HEAT_CELSIUS, SMALLEST_CHANGE, last_level, leading_temperature, unsettled
from harness.measure.suite_metrics import RISE_DOMAINS
from harness.measure.thermal import USABLE_STATES, temperatures
from harness.measure.timing import timing_of
from harness.record.run import RunRecord, SensorSeries
from harness.record.runner import Generation
from harness.results.figure import Figure, median_figure, missing, present

SEED_TOKENS: Final = 300
_FASTEST: Final = 3
_LEVEL: Final = 3
_BLOCK_S: Final = 5.0
_BACK_CELSIUS: Final = 1.0
_BACK_POWER: Final = 0.1


def _samples(pairs: Iterable[tuple[RunRecord, float | None]]) -> Figure | None:
    return median_figure([(run.run_id, value) for run, value in pairs if value is not None])


def sustained_figures(
    runs: Sequence[RunRecord], cooldown: Sequence[RunRecord], paced: Sequence[RunRecord]
) -> dict[str, Figure]:
    """``runs``: the legs at full speed, in the order of time; those of the last boot are one series."""
    if not runs:
        return {}
    legs = [run for run in runs if run.device.boot_id == runs[-1].device.boot_id]
    run = joined(legs)
    ids = tuple(leg.run_id for leg in legs[:-1])
    figures = {**_speed_and_heat(run, cooldown, paced), **_power(run, cooldown)}
    return {
        name: replace(figure, run_ids=(*ids, *figure.run_ids)) if run.run_id in figure.run_ids else figure
        for name, figure in figures.items()
    }


def joined(legs: Sequence[RunRecord]) -> RunRecord:
    """The last leg, with the generations and sensor readings of all of them."""
    series: dict[tuple[str, str], list[SensorSeries]] = {}
    for leg in legs:
        for sensor in leg.sensors:
            series.setdefault((sensor.name, sensor.unit), []).append(sensor)
    sensors = tuple(_one_series(parts) for parts in series.values())
    generations = tuple(g for leg in legs for g in leg.log.generations)
    return replace(legs[-1], log=replace(legs[-1].log, generations=generations), sensors=sensors)


def _one_series(parts: Sequence[SensorSeries]) -> SensorSeries:
    """Readings of a leg where the sensor could not be trusted are missing, unless it never could."""
    trusted = any(p.state in USABLE_STATES for p in parts)
    values = tuple(v if p.state in USABLE_STATES or not trusted else None for p in parts for v in p.values)
    times = tuple(at for p in parts for at in p.monotonic_ns)
    state = "partial" if trusted and any(p.state != "ok" for p in parts) else parts[-1].state
    return replace(parts[-1], state=state, monotonic_ns=times, values=values)


def still_changing(legs: Sequence[RunRecord]) -> str | None:
    """Why the phone is not in a steady state yet, or None; by the speed of generations and the leading temperature."""
    run = joined(legs)
    gens = [g for g in counted(run) if (timing_of(g).decode_tps or 0) > 0]
    if not gens:
        return "no generation has a speed"
    heat = leading_temperature(run.sensors, gens[0].token_ns[0], gens[-1].token_ns[-1])
    return unsettled([timing_of(g).decode_tps or 0.0 for g in gens], heat)


def counted(run: RunRecord) -> list[Generation]:
    return [g for g in run.log.generations if g.mode == "generate" and not g.warmup]


def _speed_and_heat(run: RunRecord, cooldown: Sequence[RunRecord], paced: Sequence[RunRecord]) -> dict[str, Figure]:
    found: list[tuple[str, Figure | None]] = [
        ("first_300_tps", _samples([(run, _first_tps(run))])),
        ("paced_tps", _samples((p, timing_of(g).decode_tps) for p in paced for g in counted(p))),
    ]
    gens = [g for g in counted(run) if (timing_of(g).decode_tps or 0) > 0]
    speeds = [timing_of(g).decode_tps or 0.0 for g in gens]
    if speeds:
        fastest = sorted(speeds)[-_FASTEST:]
        top = median_figure([(run.run_id, v) for v in fastest])
        found.append(
            (
                "sustained_peak_tps",
                Figure(
                    value=max(speeds),
                    samples=tuple(speeds),
                    interval=top.interval if top else None,
                    run_ids=(run.run_id,),
                ),
            )
        )
        level = last_level(speeds)
        found.append(
            (
                "sustained_tps",
                median_figure([(run.run_id, v) for v in level])
                if len(level) >= _LEVEL
                else missing([run.run_id], f"the speed still changed {len(level)} generations before the end"),
            )
        )
        found += zip(("seconds_to_throttle", "tokens_to_throttle"), _throttle(run, gens, speeds), strict=True)
    found.append(("recovery_s", _recovery(run, cooldown)))
    for prefix, some in (("", [run]), ("paced_", paced)):
        for domain in RISE_DOMAINS:
            found.append((f"{prefix}rise_{domain}_celsius", _rise(some, domain)))
    return present(found)


def _first_tps(run: RunRecord) -> float | None:
    for g in counted(run):
        tokens = g.token_ns[:SEED_TOKENS]
        return (len(tokens) - 1) / ((tokens[-1] - tokens[0]) / 1e9) if len(tokens) > 1 else None
    return None


def _throttle(run: RunRecord, gens: Sequence[Generation], speeds: Sequence[float]) -> tuple[Figure, Figure]:
    """Seconds, and tokens generated, before the first generation that is slower and stays so."""
    best = np.maximum.accumulate(speeds)
    slow = [v * (1 + SMALLEST_CHANGE) <= b for v, b in zip(speeds, best, strict=True)]
    first = len(slow)
    while first > 0 and slow[first - 1]:
        first -= 1
    spent = (gens[-1].token_ns[-1] - gens[0].token_ns[0]) / 1e9
    if first == len(slow):
        tokens = sum(len(g.token_ids) for g in gens)
        none = missing([run.run_id], f"no throttling within {spent:.0f} s and {tokens} tokens")
        return none, none
    heat = leading_temperature(run.sensors, gens[0].token_ns[0], gens[-1].token_ns[-1])
    if heat is not None and float(heat.celsius.max() - heat.celsius[0]) < HEAT_CELSIUS:
        none = missing([run.run_id], "it slowed down, but no temperature rose by 2 °C: that is not heat")
        return none, none
    seconds = (gens[first].token_ns[0] - gens[0].token_ns[0]) / 1e9
    before = float(sum(len(g.token_ids) for g in gens[:first]))
    return (
        Figure(value=seconds, samples=(seconds,), run_ids=(run.run_id,)),
        Figure(value=before, samples=(before,), run_ids=(run.run_id,)),
    )


def _after(run: RunRecord, later: Sequence[RunRecord]) -> RunRecord | None:
    """The run that came next on the same boot."""
    return next((c for c in later if c.started_at > run.started_at and c.device.boot_id == run.device.boot_id), None)


def _recovery(run: RunRecord, cooldown: Sequence[RunRecord]) -> Figure | None:
    cool = _after(run, cooldown)
    gens = [g for g in counted(run) if g.token_ns]
    if cool is None or not gens:
        return None
    heat = leading_temperature(run.sensors, gens[0].start_ns, gens[-1].end_ns)
    if heat is None:
        return missing([run.run_id, cool.run_id], "no temperature sensor was read during the run")
    series = next((s for s in cool.sensors if s.name == heat.sensor), None)
    wanted = float(heat.celsius[0]) + _BACK_CELSIUS
    pairs = [] if series is None else zip(series.monotonic_ns, series.values, strict=False)
    for at, value in pairs:
        if value is not None and at >= gens[-1].end_ns and value <= wanted:
            seconds = (at - gens[-1].end_ns) / 1e9
            return Figure(value=seconds, samples=(seconds,), run_ids=(run.run_id, cool.run_id))
    return missing([run.run_id, cool.run_id], f"{heat.sensor} was not back at {wanted:.1f} °C when the run ended")


def _rise(runs: Sequence[RunRecord], domain: str) -> Figure | None:
    rises = [
        (run.run_id, heat[domain].peak_celsius - heat[domain].start_celsius)
        for run in runs
        if domain in (heat := temperatures(run.sensors))
    ]
    if not rises:
        return None
    values = tuple(value for _, value in rises)
    return Figure(value=max(values), samples=values, run_ids=tuple(run_id for run_id, _ in rises))


def _power(run: RunRecord, cooldown: Sequence[RunRecord]) -> dict[str, Figure]:
    cool = _after(run, cooldown)
    busy = power_trace(run)
    if isinstance(busy, str):
        return {"energy_per_token_mj": missing([run.run_id], busy)}
    if cool is None:
        return {"energy_per_token_mj": missing([run.run_id], "no idle run followed, so idle power is unknown")}
    ids = (run.run_id, cool.run_id)
    idle = power_trace(cool)
    if isinstance(idle, str):
        return {"energy_per_token_mj": missing(ids, f"idle run: {idle}")}
    woken = [g.start_ns for g in cool.log.generations]
    blocks = idle.blocks_mw(_BLOCK_S, min(woken)) if woken else ()
    if len(blocks) < 2:
        return {"energy_per_token_mj": missing(ids, "the idle run is too short to know idle power")}
    calm = float(np.median(blocks[len(blocks) // 2 :]))
    samples = []
    for g in counted(run):
        if len(g.token_ns) > 1:
            energy = busy.energy_mj(g.token_ns[0], g.token_ns[-1])
            seconds = (g.token_ns[-1] - g.token_ns[0]) / 1e9
            if energy is not None:
                samples.append((run.run_id, (energy - calm * seconds) / (len(g.token_ns) - 1)))
    figure = median_figure(samples)
    if figure is not None:
        figure = Figure(value=figure.value, samples=figure.samples, interval=figure.interval, run_ids=ids)
    near = next((i for i in range(len(blocks)) if all(abs(b / calm - 1) <= _BACK_POWER for b in blocks[i:])), None)
    gap = (float(idle.at_ns[0]) - run.log.generations[-1].end_ns) / 1e9
    back = None if near is None else gap + near * _BLOCK_S
    return present(
        [
            ("energy_per_token_mj", figure or missing(ids, "no generation lasted long enough for 5 readings")),
            ("idle_mw", median_figure([(cool.run_id, b) for b in blocks[len(blocks) // 2 :]])),
            (
                "return_to_idle_s",
                missing(ids, "power had not settled when the run ended")
                if back is None
                else Figure(value=back, samples=(back,), run_ids=ids),
            ),
        ]
    )
