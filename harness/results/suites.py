"""Figures of the suites that make runs of their own (``harness.measure.suite_metrics`` says what each one counts)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from harness.measure import selfcheck
from harness.measure.statistics import Interval
from harness.measure.suite_metrics import DEPTHS, LENGTHS, PAUSES, RUNGS
from harness.measure.timing import load_total_ms, timing_of
from harness.measure.trend import Trend, relative_trend, trend
from harness.record.comparison import EDGE_PREFIX, Leg, LogitsComparison, SelfCheck, TaskScore
from harness.record.run import RunRecord
from harness.record.runner import Generation
from harness.record.vocabulary import Status, Suite
from harness.results.figure import Figure, median_figure, missing, present
from harness.results.sustained import sustained_figures


def suite_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """Of the runs of one cell on one phone that ended well."""
    return {
        **_sweep(_of(runs, Suite.SWEEP)),
        **_start_up(runs),
        **present([("longest_text_tokens", _longest(runs))]),
        **_idle(_of(runs, Suite.IDLE)),
        **_pauses(_of(runs, Suite.PAUSES)),
        **sustained_figures(_of(runs, Suite.SUSTAINED), _of(runs, Suite.COOLDOWN), _of(runs, Suite.PACED)),
        **_endurance(_of(runs, Suite.ENDURANCE)),
    }


def _of(runs: Iterable[RunRecord], suite: Suite) -> list[RunRecord]:
    return sorted((run for run in runs if run.workload == suite), key=lambda run: run.started_at)


def _ids(runs: Iterable[RunRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.run_id for run in runs))


def _counted(runs: Iterable[RunRecord], prompt: str | None = None) -> Iterator[tuple[RunRecord, Generation]]:
    for run in runs:
        for g in run.log.generations:
            if g.mode == "generate" and not g.warmup and prompt in (None, g.prompt_id):
                yield run, g


# --- smoke


def smoke_figures(runs: Sequence[RunRecord], checks: Sequence[SelfCheck]) -> dict[str, Figure]:
    """The ladder, from the runs of the toy graph and of the artifact, failed ones too."""
    toy, model = _of(runs, Suite.TOY)[-1:], _of(runs, Suite.SMOKE)[-1:]
    if not toy and not model:
        return {}
    found: dict[str, Figure] = {}
    stopped: str | None = None
    for rung in RUNGS:
        run = (model or toy)[0] if rung in ("shard", "token") or not toy else toy[0]
        if stopped is not None:
            found[f"smoke_{rung}"] = missing(_ids([run]), f"not reached: the ladder stopped at {stopped}")
            continue
        if rung == "toy_graph" and not toy:
            found[f"smoke_{rung}"] = missing(_ids([run]), "no toy graph was run on this phone")
            continue
        if rung in ("shard", "token") and not model:
            found[f"smoke_{rung}"] = missing(_ids([run]), "the artifact was not run")
            continue
        passed = _stands(rung, run, checks)
        if not passed:
            stopped = f"{rung}: {run.error.message if run.error else 'wrong tokens'}"
        if not passed and run.error is not None and run.error.status is Status.INFRA:
            found[f"smoke_{rung}"] = missing(_ids([run]), f"the lab failed at {stopped}")
        else:
            found[f"smoke_{rung}"] = Figure(
                value=float(passed), samples=(float(passed),), run_ids=_ids([run]), reason=stopped
            )
    return found


def _stands(rung: str, run: RunRecord, checks: Sequence[SelfCheck]) -> bool:
    phases = {phase.name for phase in run.log.phases}
    if rung == "libraries":
        return "open_libraries" in phases
    if rung == "device":
        return "device" in phases
    if rung == "shard":
        return "context_create" in phases
    tokens = any(g.token_ids for g in run.log.generations) and run.error is None
    if rung == "token":
        return tokens
    return tokens and any(c.run_id == run.run_id and c.name == selfcheck.TOY_GRAPH and c.passed for c in checks)


# --- accuracy


def edge_figures(items: Sequence[LogitsComparison]) -> dict[str, Figure]:
    edges = [i for i in items if i.leg is Leg.PHONE and i.prompt_id.startswith(EDGE_PREFIX) and i.positions]
    if not edges:
        return {}
    run_ids = tuple(dict.fromkeys(i.run_id for i in edges if i.run_id is not None))
    last = tuple(i.snr_db[-1] for i in edges)
    longest = max(edges, key=lambda i: len(i.positions))
    late = longest.snr_db[-max(1, len(longest.snr_db) // 4) :]
    return {
        "edge_snr_db": Figure(value=min(last), samples=last, run_ids=run_ids),
        "long_position_snr_db": Figure(value=float(np.median(late)), samples=tuple(late), run_ids=run_ids),
    }


def task_figures(items: Sequence[TaskScore]) -> dict[str, Figure]:
    """All task sets together. Only items that both legs answered count."""
    phone = _answers(i for i in items if i.leg is Leg.PHONE)
    if not phone:
        return {}
    host = _answers(i for i in items if i.leg is Leg.FP32)
    run_ids = tuple(dict.fromkeys(i.run_id for i in items if i.run_id is not None))
    keys = sorted(phone.keys() & host.keys()) if host else sorted(phone)
    if not keys:
        return {"task_score": missing(run_ids, "no item was answered by the phone and by the host")}
    chance = tuple(phone[key][1] for key in keys)
    found = {
        "task_score": _share([phone[key][0] for key in keys], run_ids),
        "task_chance": Figure(value=float(np.mean(chance)), samples=chance, run_ids=run_ids),
    }
    if host:
        found["task_score_fp32"] = _share([host[key][0] for key in keys], run_ids)
    return found


def _answers(items: Iterable[TaskScore]) -> dict[tuple[str, str], tuple[bool, float]]:
    return {
        (item.task_sha256, item_id): (correct, chance)
        for item in items
        for item_id, correct, chance in zip(item.item_ids, item.correct, item.chance, strict=True)
    }


def _share(correct: Sequence[bool], run_ids: tuple[str, ...]) -> Figure:
    samples = tuple(float(c) for c in correct)
    return Figure(
        value=float(np.mean(samples)), samples=samples, interval=wilson(sum(correct), len(correct)), run_ids=run_ids
    )


def wilson(n_right: int, n: int) -> Interval:
    """95 % score interval of a share (Wilson 1927)."""
    z = 1.959963984540054
    share, spread = n_right / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (max(0.0, middle - half), min(1.0, middle + half))


# --- latency


def _sweep(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    found: list[tuple[str, Figure | None]] = []
    for n in LENGTHS:
        at = list(_counted(runs, f"length-{n}"))
        found.append((f"ttft_at_{n}_ms", _samples((run, timing_of(g).ttft_ms) for run, g in at)))
        padded = [g for _, g in at if g.prefill and g.n_prompt < g.prefill[0].n_graph_tokens]
        if padded:
            graph = padded[0].prefill[0].n_graph_tokens
            reason = f"{n} tokens through a {graph}-token graph: the rest is padding, so this is no speed"
            found.append((f"prefill_tps_at_{n}", missing(_ids(run for run, _ in at), reason)))
        else:
            found.append((f"prefill_tps_at_{n}", _samples((run, timing_of(g).prefill_tps) for run, g in at)))
    for n in DEPTHS:
        at = list(_counted(runs, f"depth-{n}"))
        found.append((f"decode_tps_at_depth_{n}", _samples((run, timing_of(g).decode_tps) for run, g in at)))
    return present(found)


def _samples(pairs: Iterable[tuple[RunRecord, float | None]]) -> Figure | None:
    return median_figure([(run.run_id, value) for run, value in pairs if value is not None])


def _start_up(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    first: list[tuple[str, float]] = []
    again: list[tuple[str, float]] = []
    copies: list[tuple[str, float]] = []
    booted: set[str] = set()
    for run in sorted(runs, key=lambda run: run.started_at):
        ms = load_total_ms(run.log.phases)
        fresh = run.bytes_pushed > 0 or run.device.boot_id not in booted
        booted.add(run.device.boot_id)
        if ms is not None:
            (first if fresh else again).append((run.run_id, ms))
        if run.bytes_pushed > 0:
            copies.append((run.run_id, 1000.0 * run.push_s))
    copied = tuple(value for _, value in copies)
    return present(
        [
            ("load_first_ms", median_figure(first)),
            ("load_again_ms", median_figure(again)),
            (
                "copy_ms",
                Figure(value=max(copied), samples=copied, run_ids=tuple(i for i, _ in copies)) if copied else None,
            ),
        ]
    )


def _longest(runs: Sequence[RunRecord]) -> Figure | None:
    lengths = [(run.run_id, g.n_cached + g.n_prompt + len(g.token_ids)) for run, g in _counted(runs)]
    if not lengths or not any(run.workload in set(Suite) for run in runs):
        return None
    run_id, most = max(lengths, key=lambda pair: pair[1])
    return Figure(value=float(most), samples=(float(most),), run_ids=(run_id,))


def _idle(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    return present([("tpot_after_idle_ms", _samples((run, _own_ms(g)) for run, g in _counted(runs)))])


def _own_ms(g: Generation) -> float | None:
    """Time per token without what pacing held back."""
    if len(g.token_ns) < 2:
        return None
    return (g.token_ns[-1] - g.token_ns[0] - g.pace_ns) / 1e6 / (len(g.token_ns) - 1)


def _pauses(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    return present(
        [
            (
                f"ttft_after_{n}_s_ms",
                _samples((run, timing_of(g).ttft_ms) for run, g in _counted(runs, f"pause-{n}")),
            )
            for n in PAUSES
        ]
    )


# --- endurance


def _endurance(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    if not runs:
        return {}
    ids = _ids(runs)
    answers: dict[str, tuple[int, ...]] = {}
    changed = []
    for _, g in _counted(runs):
        turn = g.prompt_id.partition("-round-")[2]
        changed.append(float(answers.setdefault(turn, g.token_ids) != g.token_ids))
    sizes = [_n_dialogues(run) for run in runs]
    usual = max(set(sizes), key=sizes.count)
    alike = [(i, run) for i, (run, size) in enumerate(zip(runs, sizes, strict=True)) if size == usual]
    free = [(i, run.conditions.memory_available_bytes) for i, run in enumerate(runs)]
    found: dict[str, Figure | None] = {
        "endurance_rounds": Figure(value=float(len(runs)), samples=(float(len(runs)),), run_ids=ids),
        "changed_answers": Figure(value=sum(changed), samples=tuple(changed), run_ids=ids) if changed else None,
        "rss_growth_per_round": _slope([(i, _peak(run)) for i, run in alike], ids),
        "rss_growth_per_dialogue": _slope([(n, _grown(run)) for n, run in zip(sizes, runs, strict=True)], ids),
        "free_memory_loss_per_round": _slope([(i, None if b is None else -float(b)) for i, b in free], ids),
        "slowdown_per_round": _slope([(i, _tpot(run)) for i, run in alike], ids, relative=True),
        "load_slowdown_per_round": _slope(
            [(i, load_total_ms(run.log.phases)) for i, run in enumerate(runs)], ids, relative=True
        ),
    }
    return present(found.items())


def _slope(pairs: Iterable[tuple[int, float | None]], ids: tuple[str, ...], *, relative: bool = False) -> Figure:
    known = [(float(x), y) for x, y in pairs if y is not None]
    x, y = [p[0] for p in known], [p[1] for p in known]
    found: Trend | None = relative_trend(x, y) if relative else trend(x, y)
    if found is None:
        return missing(ids, f"{len(known)} rounds tell no slope")
    return Figure(value=found.slope, samples=tuple(y), interval=found.interval, run_ids=ids)


def _n_dialogues(run: RunRecord) -> int:
    return len({g.prompt_id.partition("-round-")[0] for g in run.log.generations})


def _peak(run: RunRecord) -> float | None:
    return max((float(m.vm_hwm_bytes) for m in run.log.memory if m.vm_hwm_bytes is not None), default=None)


def _grown(run: RunRecord) -> float | None:
    at = {name: m for name, group in groupby(run.log.memory, key=lambda m: m.at) for m in group}
    loaded, end = at.get("after_load"), at.get("end")
    if loaded is None or end is None or loaded.vm_rss_bytes is None or end.vm_rss_bytes is None:
        return None
    return float(end.vm_rss_bytes - loaded.vm_rss_bytes)


def _tpot(run: RunRecord) -> float | None:
    values = [t for _, g in _counted([run]) if (t := timing_of(g).tpot_ms) is not None]
    return float(np.median(values)) if values else None
