"""Figures of the suites that make their own runs, from runs built by hand."""

from __future__ import annotations

import dataclasses
import random

import pytest

from harness.journal import Journal
from harness.measure.selfcheck import TOY_GRAPH
from harness.record.comparison import Leg, SelfCheck, TaskScore
from harness.record.run import RunError, SensorSeries
from harness.record.runner import Memory
from harness.record.vocabulary import Status, Suite
from harness.results.derive import derive
from harness.results.suites import smoke_figures, suite_figures, task_figures, wilson
from harness.results.sustained import joined

MS = 1_000_000


def a_run(make, workload, generations, *, number=0, **changes):
    run_id = f"{workload}-{number}"
    made = make.run_record(run_id, make.runner_log(run_id, generations))
    started = f"2026-01-01T00:{number:02}:00+00:00"
    return dataclasses.replace(made, workload=str(workload), started_at=started, **changes)


def gens(make, *, gaps_ms=(20.0,), prompt_id="p", n_prompt=64, tokens=None, start_ns=5000 * MS, **changes):
    found = []
    for number, gap in enumerate(gaps_ms):
        g = make.generation(
            random.Random(1), prompt_id=prompt_id, n_prompt=n_prompt, repetition=number, start_ns=start_ns, gap_ms=gap,
            tokens=tokens,
        )  # fmt: skip
        found.append(dataclasses.replace(g, **changes))
        start_ns = g.end_ns
    return found


def failed(run, *names, status=Status.FAIL):
    """Ended by an error behind the load phases ``names``."""
    phases = tuple(phase for phase in run.log.phases if phase.name in names)
    log = dataclasses.replace(run.log, phases=phases, generations=())
    return dataclasses.replace(run, log=log, error=RunError(status=status, kind="RunnerError", message="it broke"))


def toy(make, *, right=True):
    run = a_run(make, Suite.TOY, gens(make))
    return run, SelfCheck(run_id=run.run_id, cell=run.cell, name=TOY_GRAPH, passed=right, detail="")


def rungs(figures):
    return {name.removeprefix("smoke_"): figure.value for name, figure in figures.items()}


def test_a_ladder_without_a_fault_has_five_rungs(make):
    run, check = toy(make)
    found = smoke_figures([run, a_run(make, Suite.SMOKE, gens(make))], [check])
    assert rungs(found) == {"libraries": 1, "device": 1, "toy_graph": 1, "shard": 1, "token": 1}


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ((), {"libraries": 0, "device": None, "toy_graph": None, "shard": None, "token": None}),
        (("open_libraries",), {"libraries": 1, "device": 0, "toy_graph": None, "shard": None, "token": None}),
        (("open_libraries", "device"), {"libraries": 1, "device": 1, "toy_graph": 0, "shard": None, "token": None}),
    ],
)
def test_the_ladder_stops_at_the_first_rung_that_fails_and_names_it(make, phases, expected):
    run, check = toy(make)
    found = smoke_figures([failed(run, *phases)], [check])
    assert rungs(found) == expected
    fallen = next(name for name, value in expected.items() if value == 0)
    assert found["smoke_token"].reason == f"not reached: the ladder stopped at {fallen}: it broke"


def test_a_model_that_does_not_load_falls_at_the_shard_and_one_that_says_nothing_at_the_token(make):
    run, check = toy(make)
    model = a_run(make, Suite.SMOKE, gens(make))
    found = smoke_figures([run, failed(model, "open_libraries", "device")], [check])
    assert (found["smoke_toy_graph"].value, found["smoke_shard"].value, found["smoke_token"].value) == (1, 0, None)
    found = smoke_figures([run, failed(model, "open_libraries", "device", "context_create")], [check])
    assert (found["smoke_shard"].value, found["smoke_token"].value) == (1, 0)


def test_wrong_tokens_of_the_toy_graph_stop_the_ladder_though_the_run_ended_well(make):
    run, check = toy(make, right=False)
    found = smoke_figures([run, a_run(make, Suite.SMOKE, gens(make))], [check])
    assert (found["smoke_device"].value, found["smoke_toy_graph"].value, found["smoke_shard"].value) == (1, 0, None)


def test_a_lost_phone_is_no_failed_rung(make):
    run, check = toy(make)
    found = smoke_figures([failed(run, "open_libraries", status=Status.INFRA)], [check])
    assert found["smoke_device"].value is None
    assert found["smoke_device"].reason == "the lab failed at device: it broke"


def test_the_toy_graph_mixes_with_no_figure_of_the_model(make):
    run, check = toy(make)
    run = dataclasses.replace(run, artifact_id="f" * 16)
    model = a_run(make, Suite.SMOKE, gens(make))
    found = {m.metric: m for m in derive(Journal(runs=(run, model), self_checks=(check,)))}
    assert found["runs_completed"].value == 1.0
    assert not [m for m in found.values() if any("mixed" in text for text in m.refuted_by)]


def test_headline_speed_is_that_of_the_latency_run_only(make):
    latency = make.three_runs("s", make.STEADY)
    long = a_run(make, Suite.SWEEP, gens(make, prompt_id="length-512", n_prompt=512, gaps_ms=(100.0,)))
    (alone,) = [m for m in derive(Journal(runs=tuple(latency))) if m.metric == "decode_tps"]
    (both,) = [m for m in derive(Journal(runs=(*latency, long))) if m.metric == "decode_tps"]
    assert both.value == alone.value == pytest.approx(50.0, abs=0.3)


def test_a_prompt_that_does_not_fill_the_graph_has_no_prefill_speed(make):
    run = a_run(
        make,
        Suite.SWEEP,
        [
            *gens(make, prompt_id="length-16", n_prompt=16),
            *gens(make, prompt_id="length-31", n_prompt=31),
            *gens(make, prompt_id="length-64", n_prompt=64),
            *gens(make, prompt_id="depth-128", n_prompt=1, n_cached=128, gaps_ms=(25.0, 25.0, 25.0)),
        ],
    )
    found = suite_figures([run])
    assert found["prefill_tps_at_16"].value is None
    assert "31 tokens through a 64-token graph" in found["prefill_tps_at_31"].reason
    assert found["prefill_tps_at_64"].value == pytest.approx(500.0)
    assert found["ttft_at_64_ms"].value == pytest.approx(130.0)
    assert found["decode_tps_at_depth_128"].value == pytest.approx(40.0)
    assert found["longest_text_tokens"].value == 128 + 1 + 33


def test_the_step_after_a_pause_does_not_count_the_pause(make):
    """32 gaps of 2 s, of which 31 s and 62 s were held back: 64 s - 62.4 s = 1.6 s over 32 steps."""
    run = a_run(make, Suite.IDLE, gens(make, gaps_ms=(2000.0,), pace_ns=62_400 * MS))
    assert suite_figures([run])["tpot_after_idle_ms"].value == pytest.approx(50.0)


def test_the_first_token_after_a_rest_is_kept_apart_from_one_without(make):
    """130 ms both: the rest lies between two generations, where no stamp counts it."""
    found = suite_figures(
        [a_run(make, Suite.PAUSES, [*gens(make, prompt_id="pause-0"), *gens(make, prompt_id="pause-5")])]
    )
    assert found["ttft_after_0_s_ms"].value == pytest.approx(130.0)
    assert found["ttft_after_5_s_ms"].value == pytest.approx(130.0)
    assert "ttft_after_20_s_ms" not in found


def test_first_and_later_starts_are_kept_apart(make):
    first = a_run(make, Suite.SMOKE, gens(make), bytes_pushed=100, push_s=3.2)
    later = [a_run(make, Suite.SMOKE, gens(make), number=n) for n in (1, 2)]
    rebooted = a_run(make, Suite.SMOKE, gens(make), number=3)
    rebooted = dataclasses.replace(rebooted, device=dataclasses.replace(rebooted.device, boot_id="other"))
    found = suite_figures([first, *later, rebooted])
    assert len(found["load_first_ms"].samples) == 2
    assert len(found["load_again_ms"].samples) == 2
    assert found["copy_ms"].value == pytest.approx(3200.0)


def heated(run, at_s, celsius, name="nsp0", domain="npu"):
    series = SensorSeries(
        name=name, domain=domain, unit="celsius", state="ok",
        monotonic_ns=tuple(int(s * 1000 * MS) for s in at_s), values=tuple(celsius),
    )  # fmt: skip
    return dataclasses.replace(run, sensors=(series,))


def test_throttling_peak_rise_and_recovery_of_a_sustained_suite(make):
    """Four generations at 20 ms a token, then four at 30; each of the first lasts 0.13 s + 32 x 20 ms + 1 ms, so the
    first token of the fifth comes 4 x 0.771 s after that of the first."""
    run = a_run(make, Suite.SUSTAINED, gens(make, gaps_ms=(20.0,) * 4 + (30.0,) * 4))
    run = heated(run, range(5, 12), (30, 32, 34, 36, 38, 40, 41))
    end_s = run.log.generations[-1].end_ns / 1e9
    cool = heated(a_run(make, Suite.COOLDOWN, gens(make), number=1), [end_s + s for s in (10, 20, 30)], (40, 31, 30))
    found = suite_figures([run, cool])
    assert found["sustained_peak_tps"].value == pytest.approx(50.0)
    assert found["sustained_tps"].value == pytest.approx(1000 / 30)
    assert found["seconds_to_throttle"].value == pytest.approx(4 * 0.771)
    assert found["tokens_to_throttle"].value == 4 * 33
    assert found["rise_npu_celsius"].value == pytest.approx(11.0)
    assert found["recovery_s"].value == pytest.approx(20.0)


def two_legs(make):
    """Four generations of 20 ms a token and eight of 30 ms, cut between the sixth and the seventh; 29 to 41 °C."""
    whole = gens(make, gaps_ms=(20.0,) * 4 + (30.0,) * 8)
    first = heated(a_run(make, Suite.SUSTAINED, whole[:6]), range(5, 8), (30, 32, 36))
    second = heated(a_run(make, Suite.SUSTAINED, whole[6:], number=1), range(9, 12), (38, 41, 41))
    return first, second


def test_legs_of_a_sustained_load_are_one_series(make):
    first, second = two_legs(make)
    found = suite_figures([first, second])
    assert len(found["sustained_peak_tps"].samples) == 12
    assert found["sustained_peak_tps"].value == pytest.approx(50.0)
    assert found["sustained_tps"].value == pytest.approx(1000 / 30)
    assert len(found["sustained_tps"].samples) == 8
    assert found["seconds_to_throttle"].value == pytest.approx(4 * 0.771)
    assert found["rise_npu_celsius"].value == pytest.approx(11.0)
    assert found["sustained_tps"].run_ids == (first.run_id, second.run_id), "what refutes one leg refutes the figure"


def test_legs_of_another_boot_are_no_part_of_the_series(make):
    first, second = two_legs(make)
    before = dataclasses.replace(first, device=dataclasses.replace(first.device, boot_id="before"))
    found = suite_figures([before, second])
    assert len(found["sustained_peak_tps"].samples) == 6
    assert found["seconds_to_throttle"].reason.startswith("no throttling within")


def test_a_slow_down_without_heat_is_no_throttling_and_flat_speed_has_no_point(make):
    slower = a_run(make, Suite.SUSTAINED, gens(make, gaps_ms=(20.0,) * 4 + (30.0,) * 4))
    figures = suite_figures([heated(slower, range(5, 12), (30,) * 7)])
    for cold in (figures["seconds_to_throttle"], figures["tokens_to_throttle"]):
        assert cold.value is None
        assert "that is not heat" in cold.reason
    flat = a_run(make, Suite.SUSTAINED, gens(make, gaps_ms=(20.0, 20.2, 19.9, 20.1)))
    assert suite_figures([flat])["seconds_to_throttle"].reason.startswith("no throttling within")


@pytest.mark.parametrize(
    ("states", "state", "values"),
    [
        (("ok", "ok"), "ok", (30.0, 31.0, 32.0, 33.0)),
        (("ok", "suspect"), "partial", (30.0, 31.0, None, None)),
        (("suspect", "ok"), "partial", (None, None, 32.0, 33.0)),
        (("partial", "ok"), "partial", (30.0, 31.0, 32.0, 33.0)),
        (("suspect", "suspect"), "suspect", (30.0, 31.0, 32.0, 33.0)),
    ],
)
def test_readings_of_a_leg_that_cannot_be_trusted_are_missing_from_the_whole(make, states, state, values):
    legs = []
    for number, (of_leg, celsius) in enumerate(zip(states, ((30.0, 31.0), (32.0, 33.0)), strict=True)):
        leg = heated(a_run(make, Suite.SUSTAINED, gens(make), number=number), (2 * number, 2 * number + 1), celsius)
        legs.append(dataclasses.replace(leg, sensors=(dataclasses.replace(leg.sensors[0], state=of_leg),)))
    (series,) = joined(legs).sensors
    assert (series.state, series.values) == (state, values)
    assert series.monotonic_ns == tuple(s * 1000 * MS for s in range(4))


def powered(run, milliamp, *, n=40, charging=False):
    """4 V and a current that steps between two values a milliampere apart, at 2 Hz from 0 s."""
    at = tuple(i * 500 * MS for i in range(n))
    current = tuple(-1000.0 * (milliamp + i % 2) for i in range(n))
    volts = (4_000_000.0,) * n
    series = tuple(
        SensorSeries(name=f"battery {unit}", domain="battery", unit=unit, state="ok", monotonic_ns=at, values=values)
        for unit, values in (("ua", current), ("uv", volts))
    )
    conditions = dataclasses.replace(run.conditions, charging=charging)
    return dataclasses.replace(run, sensors=series, conditions=conditions)


def test_energy_per_token_is_that_beyond_idle(make):
    """4 V x 600.5 mA = 2402 mW busy, 4 V x 100.5 mA = 402 mW idle: 2000 mW over 0.1 s a token are 200 mJ."""
    hot = powered(a_run(make, Suite.SUSTAINED, gens(make, gaps_ms=(100.0,) * 3)), 600)
    cool = powered(a_run(make, Suite.COOLDOWN, gens(make, start_ns=95_000 * MS), number=1), 100, n=200)
    found = suite_figures([hot, cool])
    assert found["energy_per_token_mj"].value == pytest.approx(200.0, rel=0.01)
    assert len(found["energy_per_token_mj"].samples) == 3
    assert found["idle_mw"].value == pytest.approx(402.0)
    assert len(found["idle_mw"].samples) == 10  # of 19 blocks of 5 s before the token at 95 s, those from the 10th on


def test_idle_power_is_that_before_the_token_that_ends_the_rest(make):
    """The battery gives 100.5 mA for 40 s and 600.5 mA from the token on: 402 mW, whatever comes after."""
    hot = powered(a_run(make, Suite.SUSTAINED, gens(make, gaps_ms=(100.0,) * 3)), 600)
    cool = powered(a_run(make, Suite.COOLDOWN, gens(make, start_ns=40_000 * MS), number=1), 100, n=200)
    current, volts = cool.sensors
    values = (*current.values[:80], *(v - 500_000.0 for v in current.values[80:]))
    cool = dataclasses.replace(cool, sensors=(dataclasses.replace(current, values=values), volts))
    found = suite_figures([hot, cool])
    assert found["idle_mw"].value == pytest.approx(402.0)
    early = dataclasses.replace(cool, log=dataclasses.replace(cool.log, generations=gens(make, start_ns=9000 * MS)))
    assert suite_figures([hot, early])["energy_per_token_mj"].reason == "the idle run is too short to know idle power"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: powered(run, 600, charging=True), "external power"),
        (lambda run: powered(run, 600, charging=None), "does not say whether it charges"),
        (lambda run: dataclasses.replace(run, sensors=()), "no usable current and voltage"),
        (lambda run: powered(run, 600), "no idle run followed"),
    ],
)
def test_energy_that_cannot_be_measured_says_why(make, change, reason):
    run = change(a_run(make, Suite.SUSTAINED, gens(make)))
    figure = suite_figures([run])["energy_per_token_mj"]
    assert figure.value is None
    assert reason in figure.reason


def turn(make, number, *, answer=(7, 8, 9), gap_ms=20.0, peak=100, free=0):
    run = a_run(
        make, Suite.ENDURANCE, gens(make, prompt_id="dialogue-0-round-0", gaps_ms=(gap_ms,), tokens=answer),
        number=number,
    )  # fmt: skip
    memory = tuple(
        Memory(
            at=at, vm_hwm_bytes=peak, vm_rss_bytes=rss, vm_swap_bytes=0, rss_anon_bytes=0, rss_file_bytes=0,
            monotonic_ns=0,
        )
        for at, rss in (("after_load", 50), ("end", 50))
    )  # fmt: skip
    conditions = dataclasses.replace(run.conditions, memory_available_bytes=10_000 - free)
    return dataclasses.replace(run, log=dataclasses.replace(run.log, memory=memory), conditions=conditions)


def test_rounds_without_growth_have_slopes_of_zero(make):
    found = suite_figures([turn(make, n) for n in range(6)])
    assert found["endurance_rounds"].value == 6
    assert found["changed_answers"].value == 0
    for name in ("rss_growth_per_round", "free_memory_loss_per_round", "slowdown_per_round"):
        assert found[name].value == pytest.approx(0.0), name
    assert found["rss_growth_per_dialogue"].value is None, "all rounds had one dialogue"


def test_what_grows_drifts_or_changes_is_seen(make):
    """3 bytes a round, 5 bytes of free memory a round, 0.2 ms of 20.5 (0.976 %) a round; one answer of six."""
    runs = [
        turn(make, n, peak=100 + 3 * n, free=5 * n, gap_ms=20.0 + 0.2 * n, answer=(7, 8, 9) if n != 4 else (7, 8, 1))
        for n in range(6)
    ]
    found = suite_figures(runs)
    assert found["rss_growth_per_round"].value == pytest.approx(3.0)
    assert found["rss_growth_per_round"].interval == pytest.approx((3.0, 3.0))
    assert found["free_memory_loss_per_round"].value == pytest.approx(5.0)
    assert found["slowdown_per_round"].value == pytest.approx(0.976, abs=0.03)
    assert found["changed_answers"].value == 1


def score(leg, correct, *, items=("a", "b", "c", "d")):
    return TaskScore(
        run_id="r" if leg is Leg.PHONE else None, reference_id="x", cell=None, leg=leg, task="t", task_sha256="0",
        item_ids=items, correct=correct, chance=(0.5, 0.5, 0.25, 0.0),
    )  # fmt: skip


def test_a_task_score_stands_beside_chance_and_fp32():
    found = task_figures([score(Leg.PHONE, (True, True, False, True)), score(Leg.FP32, (True, True, True, True))])
    assert found["task_score"].value == 0.75
    assert found["task_chance"].value == 0.3125
    assert found["task_score_fp32"].value == 1.0
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson(9, 10) == pytest.approx((0.5958, 0.9821), abs=1e-3)
