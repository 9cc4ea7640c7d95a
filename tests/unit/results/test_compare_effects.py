"""Effects of one side against another, checked by hand."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from harness.cli.main import main
from harness.journal import JournalWriter, read_journal
from harness.record.run import Cell
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source
from harness.results.compare import Outcome, cliffs_delta, effect, narrowed, pair, pareto_views
from harness.results.derive import derive
from harness.soc import KvPrecision, Precision

CELL = Cell(model="m", precision=Precision.W8A16, kv=KvPrecision.KV8, part="SM8650")


def measured(metric, samples, *, serial="P1", value=None, cell=CELL, interval=None, refuted=(), run_ids=()):
    return Measurement(
        metric=metric,
        cell=cell,
        source=Source.PHONE,
        serial=serial,
        value=float(np.median(samples)) if value is None and samples else value,
        samples=tuple(samples),
        interval=interval,
        run_ids=tuple(run_ids),
        reason=None,
        refuted_by=tuple(refuted),
        error=None,
    )


def test_cliffs_delta_counts_pairs():
    """Of nine pairs 6 are larger, 2 smaller, 1 equal."""
    assert cliffs_delta([1, 2, 6], [2, 3, 9]) == pytest.approx((6 - 2) / 9)
    assert cliffs_delta([1, 2], [3, 4]) == 1.0
    assert cliffs_delta([3, 4], [1, 2]) == -1.0


def test_a_slower_side_is_worse_with_its_interval():
    first = [50.0, 50.2, 49.8, 50.1, 49.9, 50.0]
    found = effect(measured("decode_tps", first), measured("decode_tps", [x * 0.8 for x in first]))
    assert found.outcome is Outcome.WORSE
    assert found.relative == pytest.approx(-0.2)
    low, high = found.relative_interval
    assert -0.21 < low <= -0.2 <= high < -0.19
    assert found.cliffs_delta == -1.0
    assert found.delta_interval[0] == -1.0
    assert -1.0 < found.delta_interval[1] < 0.5


def test_a_smaller_latency_is_better():
    found = effect(measured("ttft_ms", [100, 101, 99, 100, 102]), measured("ttft_ms", [80, 81, 79, 80, 82]))
    assert found.outcome is Outcome.BETTER


def test_noise_is_undecided():
    first, second = [50, 52, 48, 51, 49, 50], [50.1, 52.2, 48.1, 50.9, 48.8, 50.2]
    found = effect(measured("decode_tps", first), measured("decode_tps", second))
    assert found.outcome is Outcome.UNDECIDED
    assert found.relative_interval[0] < 0 < found.relative_interval[1]
    assert found.delta_interval[0] < 0 < found.delta_interval[1]


def test_few_samples_claim_nothing():
    found = effect(measured("decode_tps", [50, 50, 50, 50]), measured("decode_tps", [10, 10, 10, 10]))
    assert found.outcome is Outcome.UNDECIDED
    assert found.relative_interval is None
    assert found.relative == pytest.approx(-0.8)


def test_a_refuted_figure_is_never_better():
    slow, fast = [50, 51, 49, 50, 52], [500, 510, 490, 500, 520]
    found = effect(measured("decode_tps", slow), measured("decode_tps", fast, refuted=["non_constant_output: all 7"]))
    assert found.outcome is Outcome.REFUTED
    assert "non_constant_output" in found.why


@pytest.mark.parametrize(
    ("metric", "first", "second", "intervals", "outcome"),
    [
        ("decode_snr_db", 42.0, 42.0, (None, None), Outcome.SAME),
        ("decode_snr_db", 42.0, 40.0, (None, None), Outcome.WORSE),
        ("perplexity", 10.0, 11.0, ((9.9, 10.1), (10.9, 11.1)), Outcome.WORSE),
        ("perplexity", 10.0, 10.1, ((9.9, 10.1), (10.0, 10.2)), Outcome.UNDECIDED),
        ("cpu_nodes", 3.0, 0.0, (None, None), Outcome.BETTER),
        ("epcontext_nodes_per_graph", 1.0, 2.0, (None, None), Outcome.MOVED),
    ],
)
def test_exact_metrics_are_compared_by_value_and_interval(metric, first, second, intervals, outcome):
    one = measured(metric, [first], interval=intervals[0])
    two = measured(metric, [second], interval=intervals[1])
    assert effect(one, two).outcome is outcome


def test_what_one_side_lacks_is_missing_and_not_zero():
    found = effect(measured("decode_tps", [1, 2]), None)
    assert (found.outcome, found.relative) == (Outcome.MISSING, None)


def test_the_same_samples_always_give_the_same_interval():
    one, two = measured("decode_tps", [50, 51, 49, 48, 53]), measured("decode_tps", [47, 49, 46, 45, 50])
    assert effect(one, two) == effect(one, two)


def test_one_phone_a_side_is_paired_whatever_its_serial_and_several_by_serial():
    a, b, c = (measured("decode_tps", [1], serial=s) for s in ("A", "B", "C"))
    assert pair([a], [b]) == [(a, b)]
    assert pair([a, b], [b, c]) == [(a, None), (b, b), (None, c)]


def test_two_cells_are_paired_by_metric_only_when_asked():
    other = dataclasses.replace(CELL, precision=Precision.FP16, kv=KvPrecision.KVFP16)
    a, b = measured("decode_tps", [1]), measured("decode_tps", [2], cell=other)
    assert len(pair([a], [b])) == 2
    assert pair([a], [b], same_cell=False) == [(a, b)]


def test_an_artifact_that_is_beaten_in_both_is_not_on_the_front(make, journals):
    """Perplexity gaps 1, 2, 3 % at 40, 50, 45 tokens/s: the third is beaten by the second, the others by none."""
    run = read_journal(journals / "perf_pass").runs[0]
    runs, items = [], []
    for name, gap, speed in (("a", 1.0, 40.0), ("b", 2.0, 50.0), ("c", 3.0, 45.0)):
        runs.append(dataclasses.replace(run, run_id=name, artifact_id=name * 16))
        items.append(measured("perplexity_over_fp32_percent", [gap], serial=name, run_ids=[name]))
        items.append(measured("decode_tps", [speed], serial=name, run_ids=[name]))
    (view,) = pareto_views([("first", items, runs)])
    assert (view.quality, view.cost) == ("perplexity_over_fp32_percent", "decode_tps")
    beaten = {c.serial: c.dominated_by for c in view.candidates}
    assert beaten == {"a": (), "b": (), "c": ("bbbbbbbbbbbbbbbb on b",)}


def test_a_refuted_speed_beats_no_other(make, journals):
    """The second is faster at the same quality, but its output is constant."""
    run = read_journal(journals / "perf_pass").runs[0]
    runs = [dataclasses.replace(run, run_id=name, artifact_id=name * 16) for name in ("a", "b")]
    items = [measured("perplexity_over_fp32_percent", [1.0], serial=name, run_ids=[name]) for name in ("a", "b")]
    items.append(measured("decode_tps", [40.0], serial="a", run_ids=["a"]))
    items.append(measured("decode_tps", [900.0], serial="b", run_ids=["b"], refuted=["non_constant_output: all 7"]))
    (view,) = pareto_views([("first", items, runs)])
    assert {c.serial: c.dominated_by for c in view.candidates} == {"a": (), "b": ()}


def test_narrowing_keeps_what_belongs_to_the_cell(journals):
    journal = read_journal(journals / "perf_pass")
    cell = str(journal.runs[0].cell)
    assert derive(narrowed(journal, cell=cell)) == derive(journal)
    with pytest.raises(Exception, match="has no phone NOBODY"):
        narrowed(journal, serial="NOBODY")


def test_perplexities_are_compared_window_by_window():
    """Each of 8 windows within a thousandth, up or down alike: undecided. All one percent higher: worse."""
    first = [10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0]
    noise = [x * (1 + 0.001 * (-1) ** i) for i, x in enumerate(first)]
    found = effect(measured("perplexity", first, value=16.0), measured("perplexity", noise, value=16.001))
    assert found.outcome is Outcome.UNDECIDED
    assert found.why == "paired over 8 windows, the 95 % interval of the ratio holds no change"
    higher = [x * 1.01 for x in noise]
    found = effect(measured("perplexity", first, value=16.0), measured("perplexity", higher, value=16.16))
    assert found.outcome is Outcome.WORSE


KINDS = {
    "phone": lambda run: dataclasses.replace(run, device=dataclasses.replace(run.device, serial="OTHER-1")),
    "artifact": lambda run: dataclasses.replace(run, artifact_id="f" * 16),
    "runtime": lambda run: dataclasses.replace(run, runtime="another"),
    "precision": lambda run: dataclasses.replace(run, cell=dataclasses.replace(run.cell, precision=Precision.FP16)),
    "SoC": lambda run: dataclasses.replace(
        run,
        cell=dataclasses.replace(run.cell, part="SM8750"),
        device=dataclasses.replace(run.device, part="SM8750", serial="OTHER-1"),
        log=dataclasses.replace(
            run.log, contexts=tuple(dataclasses.replace(context, dsp_arch=79) for context in run.log.contexts)
        ),
    ),
}
OPTIONS = {
    "phone": ["--serials", "SYNTHETIC-1", "OTHER-1"],
    "artifact": ["--artifact-ids", "0000", "ffff"],
    "runtime": ["--runtimes", "qnn", "another"],
    "precision": ["--cells", "synthetic-llama-w8a16-kv8-SM8650", "synthetic-llama-fp16-kv8-SM8650"],
    "SoC": ["--cells", "synthetic-llama-w8a16-kv8-SM8650", "synthetic-llama-w8a16-kv8-SM8750"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_of_each_kind_stand_side_by_side_out_of_one_journal(journals, tmp_path, kind):
    """The other phone, artifact, runtime, precision or SoC decodes at two thirds of the speed: 33.3 % slower."""
    fast = read_journal(journals / "perf_pass")
    slow = read_journal(journals / "perf_fail")
    writer = JournalWriter(tmp_path / "both" / "s.jsonl")
    others = [dataclasses.replace(KINDS[kind](run), session_id=fast.sessions[0].session_id) for run in slow.runs]
    for entry in (*fast.sessions, *fast.runs, *others):
        writer.append(entry)
    writer.close()
    command = ["report", "--compare", str(tmp_path / "both"), str(tmp_path / "both"), "--out", str(tmp_path)]
    assert main([*command, *OPTIONS[kind]]) == 0
    page = (tmp_path / "comparison.html").read_text()
    data = json.loads(re.search(r'id="snapgate-data">(.*?)</script>', page, re.S)[1])
    (decode,) = [e for e in data["effects"] if e["metric"] == "decode_tps"]
    assert decode["outcome"] == "worse"
    assert decode["relative"] == pytest.approx(-1 / 3)
    first, second = data["sides"]
    differing = {
        "phone": "phones",
        "artifact": "artifacts",
        "runtime": "runtimes",
        "precision": "cells",
        "SoC": "cells",
    }
    assert first[differing[kind]] != second[differing[kind]]
    assert (first["n_runs"], second["n_runs"]) == (3, 3)


def test_figures_of_two_runtimes_are_never_pooled(journals):
    journal = read_journal(journals / "perf_pass")
    last = dataclasses.replace(journal.runs[-1], runtime="another")
    mixed = dataclasses.replace(journal, runs=(*journal.runs[:-1], last))
    (decode,) = [m for m in derive(mixed) if m.metric == "decode_tps"]
    assert "mixed_runtimes: another, qnn" in decode.refuted_by
    assert not any("mixed" in text for m in derive(journal) for text in m.refuted_by)


def test_an_unknown_runtime_is_named(journals, tmp_path, capsys):
    command = ["report", "--compare", str(journals / "perf_pass"), str(journals / "perf_fail"), "--out", str(tmp_path)]
    assert main([*command, "--runtimes", "qnn", "llama.cpp"]) == 20
    assert "the journal has no runtime llama.cpp; expected: qnn" in capsys.readouterr().err.replace(" found: ", " ")


def test_the_command_writes_one_page(journals, tmp_path):
    command = ["report", "--compare", str(journals / "perf_pass"), str(journals / "perf_fail"), "--out", str(tmp_path)]
    assert main(command) == 0
    page = (tmp_path / "comparison.html").read_text()
    data = json.loads(re.search(r'id="snapgate-data">(.*?)</script>', page, re.S)[1])
    (decode,) = [e for e in data["effects"] if e["metric"] == "decode_tps"]
    assert decode["outcome"] == "worse"
    assert decode["relative"] == pytest.approx(-1 / 3)
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_redacted_comparison_holds_no_serial(journals, tmp_path):
    command = ["report", "--compare", str(journals / "perf_pass"), str(journals / "perf_fail"), "--out", str(tmp_path)]
    command += ["--serials", "SYNTHETIC-1", "SYNTHETIC-1", "--redact", "--redact-key", str(tmp_path / "key")]
    assert main(command) == 0
    page = (tmp_path / "comparison.html").read_text()
    assert "SYNTHETIC-1" not in page
    assert "phone-" in page


def test_a_cell_that_is_not_there_is_named(journals, tmp_path, capsys):
    command = ["report", "--compare", str(journals / "perf_pass"), str(journals / "perf_fail"), "--out", str(tmp_path)]
    assert main([*command, "--cells", "x", "y"]) == 20
    assert "the journal has no cell x" in capsys.readouterr().err
