"""From a journal to measurements, and what refutes them."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from harness.journal import Journal, NotCovered
from harness.measure.metrics import METRICS
from harness.record.comparison import Leg, LogitsComparison, SelfCheck, WindowScores
from harness.record.run import RunError, SensorSeries
from harness.record.verdict import Limit
from harness.record.vocabulary import Family, Source, Status
from harness.results.derive import derive
from harness.results.gate import judge_journal

SPEED = [name for name, metric in METRICS.items() if metric.family is Family.PERFORMANCE]


@pytest.fixture
def runs(make):
    """Three good runs of a real phone at 20 ms a token."""
    return [dataclasses.replace(run, source=Source.PHONE) for run in make.three_runs("s", make.STEADY)]


def by_metric(journal):
    return {m.metric: m for m in derive(journal)}


def logits(make, *, leg=Leg.PHONE, run_id="s-0", phase="decode", **changes):
    """Three positions of one prompt; the second one's argmax differs where fp32's margin is 0.03."""
    fields = {
        "positions": (3, 4, 5),
        "relative_l2": (0.01, 0.02, 0.03),
        "snr_db": (40.0, 34.0, 30.0),
        "kl_nats": (0.001, 0.002, 0.006),
        "argmax": (7, 8, 9),
        "reference_argmax": (7, 1, 9),
        "reference_margin": (2.0, 0.03, 5.0),
    }
    return LogitsComparison(
        run_id=run_id, reference_id="ref", cell=make.CELL, leg=leg, prompt_id="p", phase=phase, **{**fields, **changes}
    )


def windows(make, *, leg=Leg.PHONE, run_id="s-0", ids=(0, 1), nll=(20.0, 30.0), n=(10, 10)):
    return WindowScores(
        run_id=run_id, reference_id="ref", cell=make.CELL, leg=leg, corpus_sha256="c", context_length=256,
        window_ids=ids, nll_sum=nll, n_scored=n,
    )  # fmt: skip


def test_speed_is_the_median_over_all_repetitions_without_warm_ups(runs):
    found = by_metric(Journal(runs=tuple(runs)))
    assert found["decode_tps"].value == pytest.approx(50.0)  # bases 19.8 19.9 20.0 20.0 20.1 20.2
    assert len(found["decode_tps"].samples) == 6
    assert found["decode_tps"].run_ids == ("s-0", "s-1", "s-2")
    assert found["ttft_ms"].value == pytest.approx(130.0)
    assert found["prefill_tps"].value == pytest.approx(500.0)
    assert found["tpot_ms"].value == pytest.approx(20.0)
    assert found["load_ms"].value == pytest.approx(2400.0)
    assert found["load_context_create_ms"].value == pytest.approx(1500.0)


def test_memory_and_heat_are_the_largest_of_all_runs(runs):
    found = by_metric(Journal(runs=tuple(runs)))
    assert found["peak_rss_bytes"].value == 180_000_000
    assert found["kv_pool_bytes"].value == 1_048_576
    assert found["start_npu_celsius"].value == 40.0
    assert found["peak_npu_celsius"].value == max(v for s in runs[0].sensors for v in s.values if s.domain == "npu")
    assert "peak_cpu_celsius" not in found


def test_the_same_journal_gives_the_same_measurements(runs):
    assert derive(Journal(runs=tuple(runs))) == derive(Journal(runs=tuple(runs)))


def test_a_metric_without_evidence_is_absent(runs):
    assert "perplexity" not in by_metric(Journal(runs=tuple(runs)))
    assert derive(Journal()) == ()


def test_logits_figures_by_hand(make, runs):
    journal = Journal(
        runs=tuple(runs),
        logits=(
            logits(make),
            logits(make, phase="prefill", positions=(0, 1, 2), snr_db=(60.0, 50.0, 55.0), argmax=(1, 1, 1),
                   reference_argmax=(2, 1, 1), reference_margin=(9.0, 1.0, 1.0)),
            logits(make, leg=Leg.GRAPH, run_id=None, snr_db=(42.0, 40.0, 31.0)),
        ),
    )  # fmt: skip
    found = {name: m.value for name, m in by_metric(journal).items()}
    assert found["decode_snr_db"] == 34.0
    assert found["worst_decode_snr_db"] == 30.0
    assert found["prefill_snr_db"] == 55.0
    assert found["relative_l2"] == 0.02
    assert found["kl_nats_mean"] == pytest.approx(0.003)
    assert found["top1_agreement"] == pytest.approx(4 / 6)
    # Greedy positions are the three of decode and the last of prefill: the mismatch at position 0 is no token.
    assert found["greedy_exact_fraction"] == pytest.approx(3 / 4)
    assert found["greedy_mismatch_max_margin"] == 0.03
    assert found["three_way_snr_gap_db"] == 2.0  # gaps 2, 6, 1


def test_comparisons_with_references_of_two_hosts_are_no_figure(make, runs):
    there = dataclasses.replace(logits(make), reference_id="there")
    found = by_metric(Journal(runs=tuple(runs), logits=(logits(make), there)))
    assert found["decode_snr_db"].value is None
    assert by_metric(Journal(runs=tuple(runs), logits=(there,)))["decode_snr_db"].value == 34.0


def test_no_mismatch_has_margin_zero(make, runs):
    journal = Journal(runs=tuple(runs), logits=(logits(make, reference_argmax=(7, 8, 9)),))
    assert by_metric(journal)["greedy_mismatch_max_margin"].value == 0.0


def test_a_row_without_an_argmax_agrees_with_nothing(make, runs):
    journal = Journal(runs=tuple(runs), logits=(logits(make, argmax=(-1, -1, -1), reference_argmax=(-1, -1, -1)),))
    assert by_metric(journal)["top1_agreement"].value == 0.0
    assert by_metric(journal)["greedy_exact_fraction"].value == 0.0


def test_perplexity_by_hand_on_the_windows_that_every_leg_scored(make, runs):
    journal = Journal(
        runs=tuple(runs),
        windows=(
            windows(make, ids=(0, 1), nll=(20.0, 30.0)),
            windows(make, leg=Leg.FP32, run_id=None, ids=(0, 1, 2), nll=(20.0, 29.0, 999.0), n=(10, 10, 10)),
            windows(make, leg=Leg.GRAPH, run_id=None, ids=(1, 0), nll=(29.5, 20.0)),
        ),
    )
    found = by_metric(journal)
    assert found["perplexity"].value == pytest.approx(math.exp(2.5))
    assert found["perplexity_fp32"].value == pytest.approx(math.exp(2.45))
    assert found["perplexity_graph"].value == pytest.approx(math.exp(2.475))
    assert found["perplexity_over_fp32_percent"].value == pytest.approx(100 * (math.exp(0.05) - 1))
    assert found["perplexity_over_graph_percent"].value == pytest.approx(100 * (math.exp(0.025) - 1))
    low, high = found["perplexity_over_fp32_percent"].interval
    assert low < found["perplexity_over_fp32_percent"].value < high


def test_windows_of_several_runs_are_merged_and_the_worse_score_of_a_window_counts(make, runs):
    journal = Journal(
        runs=tuple(runs),
        windows=(
            windows(make, run_id="s-0", ids=(0,), nll=(20.0,), n=(10,)),
            windows(make, run_id="s-1", ids=(0, 1), nll=(22.0, 30.0)),
            windows(make, run_id="s-2", ids=(0,), nll=(21.0,), n=(10,)),
        ),
    )
    assert by_metric(journal)["perplexity"].value == pytest.approx(math.exp(2.6))


def test_windows_scored_over_different_tokens_give_no_figure(make, runs):
    journal = Journal(runs=tuple(runs), windows=(windows(make), windows(make, leg=Leg.FP32, run_id=None, n=(10, 9))))
    found = by_metric(journal)
    assert found["perplexity"].value is None
    assert "window 1" in found["perplexity"].reason
    assert "perplexity_over_fp32_percent" not in found


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_window_without_a_finite_score_fails(make, runs, bad):
    journal = Journal(
        runs=tuple(runs),
        windows=(windows(make, nll=(20.0, bad)), windows(make, leg=Leg.FP32, run_id=None)),
    )
    limits = [Limit(metric="perplexity_over_fp32_percent", maximum=1e9, reason="t", date="2026-01-01")]
    verdict = judge_journal(journal, limits, required=[Family.ACCURACY])
    assert verdict.status is Status.FAIL


@pytest.mark.parametrize("field", ["relative_l2", "snr_db", "kl_nats", "reference_margin"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("leg", [Leg.PHONE, Leg.GRAPH])
def test_one_nan_in_a_comparison_never_gives_a_pass_of_what_it_is_in(make, runs, field, phase, leg):
    """Limits that anything passes, for everything: only what the NaN is in may fail, and it must."""
    items = [
        logits(make, phase=p, leg=one, run_id="s-0" if one is Leg.PHONE else None, argmax=(0, 0, 0))
        for p in ("prefill", "decode")
        for one in (Leg.PHONE, Leg.GRAPH)
    ]
    items = [
        dataclasses.replace(i, **{field: (*getattr(i, field)[:2], math.nan)}) if (i.phase, i.leg) == (phase, leg) else i
        for i in items
    ]
    limits = [Limit(metric=n, minimum=-1e300, maximum=1e300, reason="t", date="2026-01-01") for n in METRICS]
    verdict = judge_journal(Journal(runs=tuple(runs), logits=tuple(items)), limits, required=[Family.ACCURACY])
    failed = {v.metric for v in verdict.verdicts if v.status is Status.FAIL}
    expected = {
        ("relative_l2", Leg.PHONE): {"relative_l2"},
        ("kl_nats", Leg.PHONE): {"kl_nats_mean"},
        ("reference_margin", Leg.PHONE): {"greedy_mismatch_max_margin"},
        ("snr_db", Leg.PHONE): {"three_way_snr_gap_db", f"{phase}_snr_db"}
        | ({"worst_decode_snr_db"} if phase == "decode" else set()),
        ("snr_db", Leg.GRAPH): {"three_way_snr_gap_db"},
    }.get((field, leg), set())
    assert failed == expected


def test_a_comparison_of_a_run_that_is_not_in_the_journal_counts_for_nothing(make, runs):
    journal = Journal(runs=tuple(runs), logits=(logits(make, run_id="elsewhere"), logits(make, run_id=None)))
    assert "decode_snr_db" not in by_metric(journal)


def test_a_virtual_phone_is_accurate_but_has_no_speed(make, runs):
    virtual = [dataclasses.replace(run, source=Source.VIRTUAL) for run in runs]
    found = by_metric(Journal(runs=tuple(virtual), logits=(logits(make),)))
    assert found["decode_snr_db"].refuted_by == ()
    assert found["decode_snr_db"].source is Source.VIRTUAL
    for name in (*[n for n in SPEED if n in found], "peak_rss_bytes", "peak_npu_celsius"):
        assert found[name].refuted_by == ("emulated",), name
    assert found["cpu_nodes"].refuted_by == ()


def test_a_known_defect_of_the_emulator_voids_accuracy_there_and_nothing_on_a_phone(make, runs):
    for source, refuted in ((Source.VIRTUAL, ("known_defect: one-row",)), (Source.PHONE, ())):
        marked = [dataclasses.replace(run, source=source, defects=("one-row",)) for run in runs]
        found = by_metric(Journal(runs=tuple(marked), logits=(logits(make),)))
        assert found["decode_snr_db"].refuted_by == refuted


def test_a_phone_that_calls_itself_virtual_is_emulated_whatever_the_record_says(make, runs):
    disguised = [dataclasses.replace(run, device=make.device(virtual=True)) for run in runs]
    found = by_metric(Journal(runs=tuple(disguised)))
    assert found["decode_tps"].source is Source.VIRTUAL
    assert found["decode_tps"].refuted_by == ("emulated",)


def test_one_virtual_run_passes_accuracy_while_its_speed_is_invalid(make, runs):
    virtual = dataclasses.replace(runs[0], source=Source.VIRTUAL)
    limits = [
        Limit(metric=name, minimum=low, reason="t", date="2026-01-01")
        for name, low in (("decode_snr_db", 30.0), ("decode_tps", 1.0), ("dsp_arch_matches", 1.0))
    ]
    opened = make.session("s", required=("accuracy", "placement"))
    journal = Journal(sessions=(opened,), runs=(virtual,), logits=(logits(make),))
    verdict = judge_journal(journal, limits)
    status = {v.metric: v.status for v in verdict.verdicts}
    assert verdict.status is Status.PASS
    assert status["decode_snr_db"] is Status.PASS
    assert status["decode_tps"] is Status.INVALID
    assert judge_journal(journal, limits, release=True).status is (Status.INVALID)


def constant(run, token=0):
    generations = tuple(
        dataclasses.replace(g, token_ids=(token,) * len(g.token_ids), argmax_ids=(token,) * len(g.token_ids))
        for g in run.log.generations
    )
    return dataclasses.replace(run, log=dataclasses.replace(run.log, generations=generations))


def test_constant_output_of_one_run_voids_the_speed_of_the_whole_cell(make, runs):
    other_phone = dataclasses.replace(make.device(), serial="P2")
    wrong = dataclasses.replace(constant(runs[2]), device=other_phone)
    measurements = derive(Journal(runs=(runs[0], runs[1], wrong)))
    for m in measurements:
        if METRICS[m.metric].family is Family.PERFORMANCE:
            assert any(text.startswith("non_constant_output: ") for text in m.refuted_by), (m.metric, m.serial)
    values = {m.serial: m.value for m in measurements if m.metric == "non_constant_output"}
    assert values == {"SYNTHETIC-1": 1.0, "P2": 0.0}


def test_wrong_output_of_a_run_that_then_died_still_counts(runs):
    error = RunError(status=Status.INFRA, kind="PhoneLostError", message="gone")
    found = by_metric(Journal(runs=(runs[0], dataclasses.replace(constant(runs[1]), error=error))))
    assert found["non_constant_output"].value == 0.0
    assert found["decode_tps"].refuted_by


def test_a_journalled_check_on_logits_fails_accuracy_although_the_tokens_look_right(make, runs):
    check = SelfCheck(
        run_id="s-0", cell=make.CELL, name="non_constant_output", passed=False, detail="rows are all zero"
    )
    journal = Journal(runs=tuple(runs), logits=(logits(make),), self_checks=(check,))
    verdict = judge_journal(
        journal, [Limit(metric="decode_snr_db", minimum=1.0, reason="t", date="2026-01-01")], required=[Family.ACCURACY]
    )
    assert verdict.status is Status.FAIL
    assert {v.status for v in verdict.verdicts if v.metric == "decode_snr_db"} == {Status.FAIL}


def test_the_same_answer_to_every_prompt_fails(runs):
    def same(run):
        ids = run.log.generations[0].token_ids
        generations = tuple(dataclasses.replace(g, token_ids=ids, argmax_ids=ids) for g in run.log.generations)
        return dataclasses.replace(run, log=dataclasses.replace(run.log, generations=generations))

    found = by_metric(Journal(runs=tuple(same(run) for run in runs)))
    assert found["prompt_sensitive"].value == 0.0
    assert found["non_constant_output"].value == 1.0
    assert any(text.startswith("prompt_sensitivity: ") for text in found["decode_tps"].refuted_by)


def with_generation(run, index, **changes):
    generations = list(run.log.generations)
    generations[index] = dataclasses.replace(generations[index], **changes)
    return dataclasses.replace(run, log=dataclasses.replace(run.log, generations=tuple(generations)))


def voided(run):
    """What refutes the speed of a journal with this run and nothing else; heat and memory must stand."""
    found = by_metric(Journal(runs=(run,)))
    assert found["peak_rss_bytes"].refuted_by == ()
    return {text.partition(":")[0] for text in found["decode_tps"].refuted_by}


def test_an_allocation_while_generating_voids_speed(runs):
    assert voided(with_generation(runs[0], 1, heap_allocations=2)) == {"heap_allocations"}


def test_a_stamp_that_runs_backwards_voids_speed(runs):
    stamps = list(runs[0].log.generations[1].token_ns)
    stamps[3], stamps[4] = stamps[4], stamps[3]
    assert voided(with_generation(runs[0], 1, token_ns=tuple(stamps))) == {"clock"}


def test_a_token_without_a_stamp_voids_speed(runs):
    assert voided(with_generation(runs[0], 1, token_ns=runs[0].log.generations[1].token_ns[:-1])) == {"token_count"}


def test_a_node_on_the_cpu_fails_placement_and_voids_speed(runs):
    run = dataclasses.replace(runs[0], cpu_nodes=(0, 2))
    assert voided(run) == {"cpu_placement"}
    found = by_metric(Journal(runs=(run,)))
    assert found["cpu_nodes"].value == 2.0
    assert judge_journal(Journal(runs=(run,)), [], required=[Family.PLACEMENT]).status is Status.FAIL


def test_a_binary_for_another_arch_fails_placement_and_voids_speed(runs):
    contexts = tuple(dataclasses.replace(c, dsp_arch=73) for c in runs[0].log.contexts)
    run = dataclasses.replace(runs[0], log=dataclasses.replace(runs[0].log, contexts=contexts))
    assert voided(run) == {"dsp_arch"}
    assert by_metric(Journal(runs=(run, runs[1])))["dsp_arch_matches"].value == 0.0


def test_a_refused_performance_mode_voids_speed(runs):
    platform = dataclasses.replace(runs[0].log.platform, performance_accepted=False)
    assert voided(dataclasses.replace(runs[0], log=dataclasses.replace(runs[0].log, platform=platform))) == {
        "performance_mode"
    }


def test_a_bad_condition_voids_speed_and_heat(runs):
    conditions = dataclasses.replace(runs[0].conditions, violations=("battery 5 %, at least 20 % wanted",))
    run = dataclasses.replace(runs[0], conditions=conditions)
    assert voided(run) == {"conditions"}
    assert by_metric(Journal(runs=(run,)))["peak_npu_celsius"].refuted_by == (
        "conditions: battery 5 %, at least 20 % wanted",
    )


def test_figures_of_two_artifacts_are_not_one_figure(runs):
    found = by_metric(Journal(runs=(runs[0], dataclasses.replace(runs[1], artifact_id="1" * 16))))
    assert any(text.startswith("mixed_artifacts: ") for text in found["decode_tps"].refuted_by)


def test_a_graph_that_was_not_compiled_at_all_is_not_hidden_by_a_whole_one(runs):
    run = dataclasses.replace(runs[0], epcontext_nodes=(1, 0, 1))
    assert by_metric(Journal(runs=(run,)))["epcontext_nodes_per_graph"].value == 0.0
    run = dataclasses.replace(runs[0], epcontext_nodes=(1, 17))
    assert by_metric(Journal(runs=(run,)))["epcontext_nodes_per_graph"].value == 17.0


@pytest.mark.parametrize("status", [Status.FAIL, Status.INFRA])
def test_a_failed_run_gives_no_figures_and_its_status_decides(runs, status):
    error = RunError(status=status, kind="RunnerError", message="boom")
    failed = dataclasses.replace(runs[1], error=error)
    found = by_metric(Journal(runs=(runs[0], failed)))
    assert found["runs_completed"].value == 0.5
    assert found["runs_completed"].error is status
    assert found["runs_completed"].run_ids == ("s-1",)
    assert "boom" in found["runs_completed"].reason
    assert found["decode_tps"].run_ids == ("s-0",)
    assert judge_journal(Journal(runs=(runs[0], failed)), []).status is status


@pytest.mark.parametrize(
    ("status", "expected"), [(Status.NOT_COVERED, Status.NOT_COVERED), (Status.INFRA, Status.INFRA)]
)
def test_a_cell_that_did_not_run_keeps_the_run_from_passing(make, runs, status, expected):
    """The cell that ran passes; the one that did not decides."""
    missing = dataclasses.replace(make.CELL, part="SM8750")
    entry = NotCovered(session_id="s", cell=missing, status=status, reason="no phone with SM8750")
    limits = [
        Limit(metric="decode_snr_db", minimum=1.0, reason="t", date="2026-01-01"),
        Limit(metric="cpu_nodes", maximum=0.0, reason="t", date="2026-01-01"),
    ]
    opened = make.session("s", required=("accuracy", "placement"))
    passing = Journal(sessions=(opened,), runs=tuple(runs), logits=(logits(make),))
    assert judge_journal(passing, limits).status is Status.PASS
    verdict = judge_journal(dataclasses.replace(passing, not_covered=(entry,)), limits)
    assert verdict.status is expected
    assert {
        v.reason for v in verdict.verdicts if v.required and v.status is expected and v.metric == "runs_completed"
    } == {"no phone with SM8750"}


def test_a_check_that_could_not_be_carried_out_is_not_a_pass(make, runs):
    check = SelfCheck(run_id="s-0", cell=make.CELL, name="prefill_decode_identity", passed=None, detail="no logits")
    found = by_metric(Journal(runs=tuple(runs), self_checks=(check,)))
    assert found["prefill_decode_identical"].value is None
    assert found["prefill_decode_identical"].reason == "no logits"


def test_only_the_longest_prompt_counts_for_speed(make, runs):
    rng = random.Random(1)
    longer = make.generation(rng, n_prompt=128, gap_ms=40.0, start_ns=9000 * make.MS)
    log = dataclasses.replace(runs[0].log, generations=(*runs[0].log.generations, longer))
    found = by_metric(Journal(runs=(dataclasses.replace(runs[0], log=log),)))
    assert found["decode_tps"].samples == (pytest.approx(25.0),)


def test_two_phones_of_a_cell_are_measured_apart(make, runs):
    other = dataclasses.replace(runs[1], device=dataclasses.replace(make.device(), serial="P2"))
    found = [m for m in derive(Journal(runs=(runs[0], other))) if m.metric == "decode_tps"]
    assert [(m.serial, m.run_ids) for m in found] == [("P2", ("s-1",)), ("SYNTHETIC-1", ("s-0",))]


def test_the_runner_is_set_against_the_memory_that_was_free(make):
    """170 MB at the end; peak 180 MB and 464 MB of dma-buf are 10 % of 6.44 GB."""
    run = make.three_runs("s", make.STEADY)[0]
    shared = SensorSeries(
        name="runner dma-buf", domain="memory", unit="bytes", state="ok", monotonic_ns=(1, 2, 3),
        values=(None, 464_000_000.0, 1.0),
    )  # fmt: skip
    free = dataclasses.replace(run.conditions, memory_available_bytes=6_440_000_000)
    run = dataclasses.replace(run, sensors=(shared,), conditions=free)
    found = {m.metric: m for m in derive(Journal(runs=(run,)))}
    assert found["steady_rss_bytes"].value == 170_000_000
    assert found["of_free_ram_percent"].value == pytest.approx(10.0)
    unknown = dataclasses.replace(run, conditions=dataclasses.replace(free, memory_available_bytes=None))
    assert "of_free_ram_percent" not in {m.metric for m in derive(Journal(runs=(unknown,)))}


def test_what_a_run_takes_of_the_whole_phone(make):
    """6.0 GB free before; 4.0 at the least and 4.5 at the end are 2.0 and 1.5 GB taken. Another run left 3.5 of 5.0."""

    def run(number, before, values):
        free = SensorSeries(
            name="phone available", domain="memory", unit="bytes", state="ok",
            monotonic_ns=tuple(range(len(values))), values=values,
        )  # fmt: skip
        one = make.three_runs("s", make.STEADY)[number]
        conditions = dataclasses.replace(one.conditions, memory_available_bytes=before)
        return dataclasses.replace(one, sensors=(free,), conditions=conditions)

    runs = (run(0, 6_000_000_000, (5e9, None, 4e9, 4.5e9)), run(1, 5_000_000_000, (3.5e9,)))
    found = {m.metric: m for m in derive(Journal(runs=runs))}
    assert found["lowest_available_bytes"].value == 3.5e9
    assert found["phone_peak_bytes"].samples == (2.0e9, 1.5e9)
    assert found["phone_peak_bytes"].value == 2.0e9
    assert found["phone_steady_bytes"].samples == (1.5e9,), "one reading alone may be of the loading"
    unread = {m.metric for m in derive(Journal(runs=(run(0, 6_000_000_000, ()),)))}
    assert not unread & {"lowest_available_bytes", "phone_peak_bytes", "phone_steady_bytes"}
