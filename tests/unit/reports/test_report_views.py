"""Rows of the report, by hand-checkable numbers of ``journals.py``."""

import dataclasses

import pytest

from harness.journal import Journal
from harness.record.runner import LogitsFile
from harness.record.verdict import Limit
from harness.record.vocabulary import Source, Status
from harness.results.derive import derive
from harness.results.gate import judge_journal
from reports.overview import deciders, figure, headroom, limit_text, metric_label
from reports.render import DETAILS
from reports.tables import short_run_ids
from reports.views import report_view


def view_of(journals, journal, *, manifests=(), link_base="results", detail=DETAILS[0]):
    verdict = judge_journal(journal, journals.LIMITS)
    return report_view(journal, verdict, derive(journal), manifests, link_base=link_base, detail=detail)


@pytest.fixture(scope="module")
def view(journals):
    return view_of(journals, journals.two_cells(), manifests=(journals.manifest(),))


def test_a_figure_without_a_value_says_why_and_is_no_zero() -> None:
    shown = figure(None, "ms", why="no token")
    assert (shown.text, shown.why, shown.value) == ("not measured", "no token", None)
    assert figure(0.0, "ms").text == "0.0"


def test_bytes_are_shown_as_mebibytes_with_their_interval() -> None:
    shown = figure(3 * 2**20, "bytes", interval=(2**20, 4 * 2**20))
    assert (shown.text, shown.unit, shown.interval) == ("3.0", "MiB", "1.0 … 4.0")


def test_the_unit_is_taken_out_of_a_metrics_name() -> None:
    assert metric_label("worst_decode_snr_db") == "worst decode SNR"
    assert metric_label("decode_tps") == "decode rate"


@pytest.mark.parametrize(
    ("minimum", "maximum", "text"),
    [
        (30.0, None, "≥\u00a030.0"),
        (None, 2.0, "≤\u00a02.0"),
        (1.0, 3.0, "≥\u00a01.0 and ≤\u00a03.0"),
        (1.0, 1.0, "=\u00a01.0"),
    ],
)
def test_a_limit_is_written_with_its_bounds(minimum, maximum, text) -> None:
    limit = Limit(metric="m", minimum=minimum, maximum=maximum, reason="", date="")
    assert limit_text(limit, "dB") == text


def test_headroom_is_the_share_of_the_limit_that_is_left(journals) -> None:
    verdict = next(
        v for v in judge_journal(journals.passing(), journals.LIMITS).verdicts if v.metric == "decode_snr_db"
    )
    assert verdict.value == 40.0
    assert headroom(verdict) == pytest.approx(1 / 3)
    assert headroom(dataclasses.replace(verdict, value=27.0)) == pytest.approx(-0.1)
    assert headroom(dataclasses.replace(verdict, limit=None)) is None


def test_what_failed_decides_before_what_is_near_its_limit(journals) -> None:
    limits = (*journals.LIMITS[1:], dataclasses.replace(journals.LIMITS[0], minimum=50.0))
    first = deciders(judge_journal(journals.passing(), limits))[0]
    assert (first.metric, first.status, first.distance) == ("decode SNR", "FAIL", "20 % outside the limit")


def test_three_different_metrics_decide(journals) -> None:
    chosen = deciders(judge_journal(journals.passing(), journals.LIMITS))
    assert [d.metric for d in chosen] == ["decode SNR", "perplexity over fp32", "KL divergence mean"]


def test_the_reason_stands_beside_what_decided(view) -> None:
    assert view.overview.status == "INFRA"
    assert view.overview.why[0] == (
        "runs completed (tiny-llama · fp16 · kvfp16 · SM8550): run run-c: PhoneLostError: the phone went away"
    )


def test_what_was_tested_names_model_soc_phone_and_source(view) -> None:
    first, second = view.overview.tested
    assert (first.model, first.precision, first.soc) == ("tiny-llama", "w8a16, kv8", "Snapdragon 8 Gen 3 (SM8650)")
    assert (first.source_kind, first.serial, first.android) == ("virtual", "vphone-1", "Android 14 (API 34)")
    assert (second.source, second.serial, second.n_runs) == ("real phone", "PHONE2, PHONE3", 2)


def test_banners_say_what_is_emulated_and_what_the_lab_lost(view) -> None:
    assert [banner.kind for banner in view.overview.banners] == ["emulated", "infra"]


def test_the_three_legs_are_compared_on_the_same_windows(view) -> None:
    row = view.accuracy.perplexities[0]
    assert (row.fp32.text, row.graph.text, row.phone.text) == ("12.182", "12.305", "12.429")
    assert (row.graph_gap.text, row.phone_gap.text, row.phone_over_graph.text) == ("1.005", "2.020", "1.005")
    assert (row.n_windows, row.n_tokens, row.run_ids) == (2, 200, ("run-a",))


def test_the_host_has_a_row_of_its_own_for_the_windows_that_the_phone_did_not_score(view) -> None:
    row = view.accuracy.perplexities[1]
    assert (row.n_windows, row.n_tokens, row.fp32.text) == (3, 300, "12.182")
    assert row.phone.text == "not measured"


def test_logits_are_summed_up_per_phase_and_leg(view) -> None:
    rows = {(r.phase, r.leg): r for r in view.accuracy.logits}
    assert list(rows) == [
        ("prefill", "graph, host"),
        ("prefill", "phone"),
        ("decode", "graph, host"),
        ("decode", "phone"),
    ]
    decode = rows["decode", "phone"]
    assert (decode.snr_median.text, decode.snr_worst.text, decode.top1_count) == ("40.0", "30.0", "3/4")
    assert (decode.top1.text, decode.kl_max.text, decode.n) == ("0.7500", "0.0010", 4)


def test_a_mismatch_where_the_model_itself_is_undecided_is_not_a_clear_one(view) -> None:
    decode = next(r for r in view.accuracy.logits if (r.phase, r.leg) == ("decode", "phone"))
    assert (decode.n_clear_mismatches, decode.widest_mismatch.text) == (0, "0.050")
    mismatch = view.accuracy.mismatches[0]
    assert (mismatch.position, mismatch.expected, mismatch.found, mismatch.run_id) == (7, 7, "8", "run-a")


def test_a_row_that_is_not_finite_agrees_with_nothing(journals) -> None:
    journal = journals.passing()
    broken = tuple(
        dataclasses.replace(item, argmax=(-1,) * 4, reference_argmax=(-1,) * 4, reference_margin=(0.5,) * 4)
        for item in journal.logits
        if item.leg == "phone" and item.phase == "decode"
    )
    view = view_of(journals, dataclasses.replace(journal, logits=broken))
    assert (view.accuracy.logits[0].top1_count, view.accuracy.logits[0].n_clear_mismatches) == ("0/4", 4)
    assert view.accuracy.mismatches[0].found == "none (not finite)"


def test_a_host_leg_that_two_runs_journalled_counts_once(journals) -> None:
    journal = journals.passing()
    view = view_of(journals, dataclasses.replace(journal, logits=journal.logits * 2))
    assert [row.n for row in view.accuracy.logits] == [4, 4, 4, 4]


def test_the_snr_chart_holds_both_legs_over_the_position(view) -> None:
    chart = view.accuracy.charts[0].data
    phone = chart["panels"][0]["series"][1]
    assert (phone["name"], phone["run_id"]) == ("phone vphone-1", "run-a")
    assert phone["x_range"] == [0, 7]
    assert phone["y"] == [40, 40, 40, 40, 40, 40, 40, 30]


def test_equal_logits_are_named_and_not_drawn(journals) -> None:
    journal = journals.passing()
    exact = tuple(dataclasses.replace(item, snr_db=(200.0, 50.0, 50.0, 50.0)) for item in journal.logits)
    chart = view_of(journals, dataclasses.replace(journal, logits=exact)).accuracy.charts[0]
    assert "4 positions equal to the bit and not drawn" in chart.summary
    assert chart.data["panels"][0]["series"][1]["y"] == [None, 50, 50, 50, None, 50, 50, 50]


def test_latency_is_emulated_on_a_virtual_phone_only(view) -> None:
    rows = {row.source_kind: row for row in view.latency.table.rows}
    columns = [column.metric for column in view.latency.table.columns]
    for kind, emulated in (("virtual", True), ("phone", False)):
        shown = dict(zip(columns, rows[kind].figures, strict=True))
        assert (shown["ttft_ms"].text, shown["prefill_tps"].text, shown["decode_tps"].text) == (
            "400.0",
            "164.10",
            "10.00",
        )
        assert all(f.emulated is emulated for f in shown.values())
        assert rows[kind].n_samples == 3


def test_accuracy_of_a_virtual_phone_is_not_called_emulated(view) -> None:
    emulated = {row.metric for row in view.verdicts if row.emulated}
    assert "ttft_ms" in emulated
    assert not emulated & {"decode_snr_db", "perplexity", "cpu_nodes"}


def test_every_repetition_is_listed_with_its_warm_up(view) -> None:
    rows = [row for row in view.latency.generations if row.run_id == "run-a"]
    assert [row.repetition for row in rows] == ["warm-up", "1", "2", "3"]
    assert (rows[1].n_prompt, rows[1].n_gen, rows[1].longest.text) == (64, 5, "110.0")


def test_the_token_chart_leaves_the_warm_up_out_and_says_so(view) -> None:
    chart = view.latency.charts[0]
    lines = chart.data["panels"][0]["series"]
    assert len(lines) == 3
    assert (lines[0]["x_range"], lines[0]["stamps"], lines[0]["n"]) == ([2, 5], ["run-a", 1], 4)
    assert chart.summary.startswith("n = 12 gaps of 3 repetitions; median 100.0 ms")
    assert "1 warm-up not drawn" in chart.summary


def test_the_running_sum_of_the_embedded_stamps_gives_the_stamps_back(view) -> None:
    kept = view.stamps["run-a"][1]
    assert kept["token_us"] == [400_000, 100_000, 100_000, 110_000, 90_000]


def test_a_generation_that_does_not_fit_is_left_out_and_counted(journals) -> None:
    detail = dataclasses.replace(DETAILS[0], stamp_values=12)
    view = view_of(journals, journals.passing(), detail=detail)
    assert len(view.stamps["run-a"]) == 2
    assert view.left_out == ("the per-token stamps of 2 generations",)
    lines = view.latency.charts[0].data["panels"][0]["series"]
    assert [line.get("stamps") for line in lines] == [["run-a", 1], None, None]
    assert lines[1]["y"] == [100, 100, 110, 90]


def test_load_phases_are_a_timeline(view) -> None:
    chart = view.latency.timelines[0]
    assert chart.data["bars"][5] == {"name": "context create", "detail": "ar64.bin", "start_ms": 230, "end_ms": 630}
    assert chart.summary == "8 load phases in 660.0 ms; the longest is context create with 400.0 ms."


def test_temperatures_and_tokens_share_one_axis_from_the_start_of_the_runner(view) -> None:
    panels = {panel["label"]: panel for panel in view.thermal.charts[0].data["panels"]}
    cpu, battery = panels["temperature"]["series"]
    assert (cpu["name"], cpu["y"][2:5]) == ("cpu: cpu-0-0 (partial)", [45, None, 45])
    assert (cpu["x"][1], battery["x_of"], battery["y"][:2]) == (0.5, 0, [30, 30.1])
    assert panels["gap to the token before"]["series"][0]["n"] == 16
    first = view.thermal.charts[0].panels[1].series[0].points[0]
    assert first.hover == "token: 100.0 ms at 4.50 s"


def test_a_sensor_that_gave_nothing_is_listed_as_not_measured(view) -> None:
    row = next(row for row in view.thermal.sensors if row.name == "gpuss-0")
    assert (row.n, row.peak.text, row.peak.why) == (0, "not measured", "sensor unavailable")


def test_of_several_sensors_of_a_domain_the_hottest_is_drawn(journals) -> None:
    journal = journals.passing()
    record = journal.runs[0]
    hot = dataclasses.replace(record.sensors[1], name="cpu-1-0", values=(70.0,) * 12, state="ok")
    runs = (dataclasses.replace(record, sensors=(*record.sensors, hot)),)
    view = view_of(journals, dataclasses.replace(journal, runs=runs))
    names = [s["name"] for s in view.thermal.charts[0].data["panels"][0]["series"]]
    assert names == ["cpu: cpu-1-0 (hottest of 2)", "battery: battery"]


def test_memory_is_the_peak_of_the_runner_and_its_share_of_what_was_free(view) -> None:
    """300 MiB of 6 GiB."""
    row = view.memory.rows[0]
    peak, steady, share, pool, allocations = row.figures
    assert [f.text for f in (peak, steady, pool, allocations)] == ["300.0", "280.0", "1.0", "0"]
    assert share.value == pytest.approx(100 * 300 / 6144)


def test_files_are_linked_below_the_results_folder(view) -> None:
    file = view.runs[0].files[0]
    assert (file.path, file.href) == ("runs/run-a/records.jsonl", "./results/runs/run-a/records.jsonl")


def test_a_path_that_leaves_the_results_folder_is_shown_but_not_linked(journals) -> None:
    links = {file.path: file.href for file in view_of(journals, journals.hostile()).runs[0].files}
    assert links["../../../etc/passwd"] == ""
    assert links["javascript:alert(1)"].startswith("./results/javascript%3A")


def test_a_lost_run_has_the_error_and_the_blame(view) -> None:
    row = view.runs[2]
    assert (row.outcome, row.error) == ("INFRA", "PhoneLostError: the phone went away")


def test_a_cell_that_nobody_ran_is_listed(view) -> None:
    assert [(g.cell, g.status, g.reason) for g in view.not_covered] == [
        ("tiny-llama · w8a16 · kv8 · SM8750", "NOT_COVERED", "no phone with SM8750")
    ]


def test_a_condition_that_the_phone_did_not_say_is_not_measured(journals) -> None:
    journal = journals.passing()
    silent = dataclasses.replace(journal.runs[0].conditions, battery_celsius=None, thermal_status=None, charging=None)
    runs = (dataclasses.replace(journal.runs[0], conditions=silent, host=None),)
    row = view_of(journals, dataclasses.replace(journal, runs=runs)).conditions[0]
    assert (row.battery_temperature.text, row.battery_temperature.why) == ("not measured", "the phone did not say")
    assert (row.thermal_status, row.charging, row.host_load) == ("not read", "not read", "not read")


def test_self_checks_that_do_not_hold_come_first(journals) -> None:
    journal = journals.passing()
    check = journal.self_checks[0]
    checks = (check, dataclasses.replace(check, passed=None), dataclasses.replace(check, passed=False))
    view = view_of(journals, dataclasses.replace(journal, self_checks=checks))
    assert [row.outcome for row in view.self_checks] == ["does not hold", "not carried out", "holds"]


def test_required_metrics_come_first_and_the_worst_of_them_on_top(view) -> None:
    required = [row.required for row in view.verdicts]
    assert required == sorted(required, reverse=True)
    severities = [row.severity for row in view.verdicts if row.required]
    assert severities == sorted(severities)


def test_quality_at_preparation_is_set_against_fp32(view) -> None:
    rows = {row.graph: row for row in view.quality}
    assert (rows["kv8"].perplexity.text, rows["kv8"].gap.text, rows["kv8"].chosen) == ("13.000", "4.000", True)
    assert (rows["kv16"].gap.text, rows["kv16"].chosen) == ("1.000", False)


def test_an_artifact_says_what_it_lost_against_fp32_and_what_a_token_moves(view) -> None:
    (row,) = view.artifacts
    assert row.accuracy == "logits 41.5 dB, same first choice at 98.2 % of 512 positions; layers 45.0, 44.2 dB"
    assert row.moved.text == "not measured"


def test_the_articles_start_up_table_stands_beside_the_measured_phases(view) -> None:
    rows = {row.phase: row for row in view.startup.rows}
    backend = rows["QNN backend initialisation"]
    assert (backend.seed, backend.unit) == ("280", "ms")
    assert [f.text for f in backend.figures] == ["180.0", "180.0", "not measured"]
    assert rows["graph load and compile"].figures[0].text == "480.0"
    assert rows["each further token"].figures[0].text == "100.0"
    first = rows["prefill of 2048 tokens, to the first token"]
    assert (first.figures[0].text, first.counterpart) == ("400.0", "time to first token, 64 tokens")


def test_the_articles_configurations_come_before_the_measured_ones(view) -> None:
    rows = view.configurations
    assert [(r.size.text, r.prefill.text, r.decode.text, r.longest.text) for r in rows[:4]] == [
        ("14.4", "6.8", "4.5", "does not run long"),
        ("7.2", "4.1", "9.2", "512"),
        ("4.3", "2.8", "13.5", "2048"),
        ("4.1", "2.1", "18.7", "2048"),
    ]
    assert (rows[4].size.text, rows[4].prefill.text, rows[4].decode.text) == ("0.003", "0.40", "10.00")


def test_an_empty_journal_has_a_view_that_says_so(journals) -> None:
    view = view_of(journals, Journal())
    assert view.overview.status == "NOT_COVERED"
    assert (view.verdicts, view.runs, view.overview.deciders) == ((), (), ())


def test_synthetic_runs_are_marked_in_every_row(journals) -> None:
    view = view_of(journals, journals.synthetic())
    assert view.overview.synthetic
    assert all(row.synthetic for row in view.verdicts)
    assert all(chart.synthetic for chart in (*view.latency.charts, *view.thermal.charts, *view.accuracy.charts))


def test_a_refuted_figure_of_a_real_phone_is_announced(journals) -> None:
    journal = journals.passing()
    hot = dataclasses.replace(journal.runs[0].conditions, violations=("thermal status 3",))
    record = dataclasses.replace(
        journal.runs[0],
        source=Source.PHONE,
        device=dataclasses.replace(journal.runs[0].device, virtual=False),
        conditions=hot,
    )
    view = view_of(journals, dataclasses.replace(journal, runs=(record,)))
    banner = view.overview.banners[0]
    assert banner.kind == "invalid"
    assert "thermal status 3" in banner.text
    assert any(row.status == Status.INVALID for row in view.verdicts)


def test_run_ids_are_shortened_only_where_they_stay_apart() -> None:
    ids = ("20260301T080000-0a1b2c3d", "20260301T090000-4e5f6a7b", "20260301T100000-4e5f6a7b", "run-a")
    assert short_run_ids(ids) == {ids[0]: "0a1b2c3d", ids[1]: ids[1], ids[2]: ids[2], "run-a": "run-a"}


def test_runs_that_wrote_logits_are_drawn_after_those_that_speed_is_taken_from(journals) -> None:
    journal = journals.passing()
    slow = tuple(
        dataclasses.replace(
            g,
            logits=LogitsFile(
                file="logits.bin",
                offset_bytes=0,
                n_rows=1,
                n_columns=1,
                dtype="float16",
                scale=None,
                zero_point=None,
                first_position=0,
            ),
        )
        for g in journal.runs[0].log.generations
    )
    runs = (journals.run("run-z", generations=slow), *journal.runs)
    charts = view_of(journals, dataclasses.replace(journal, runs=runs)).latency.charts
    assert [chart.run_id for chart in charts] == ["run-a", "run-z"]
