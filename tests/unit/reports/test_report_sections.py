"""Windows and throttle marks, energy, roofline, layers and first divergence: drawn where measured, else why not."""

from __future__ import annotations

import dataclasses

import pytest

from harness.record.artifact import ContextFile, GraphSpec, TensorSpec
from harness.record.run import SensorSeries
from harness.record.vocabulary import DType, Source
from harness.results.derive import derive
from reports.divergence import divergence_rows, layer_charts
from reports.energy import battery_watts, energy_section, not_measurable
from reports.roofline import roofline_section
from reports.thermal import thermal_charts

MS = 1_000_000


def battery(unit: str, values: tuple[float | None, ...], state: str = "ok") -> SensorSeries:
    return SensorSeries(
        name=f"battery {unit}",
        domain="battery",
        unit=unit,
        state=state,
        monotonic_ns=tuple((2_000 + 1_000 * i) * MS for i in range(len(values))),
        values=values,
    )


@pytest.fixture
def throttling(journals):
    """400 gaps of 10 ms, then 400 of 20 ms, while the skin warms by 10 °C."""
    made = journals.generation(gaps_ms=(10.0,) * 400 + (20.0,) * 400)
    heat = SensorSeries(
        name="skin",
        domain="skin",
        unit="celsius",
        state="ok",
        monotonic_ns=tuple((5_000 + 1_000 * i) * MS for i in range(14)),
        values=tuple(30.0 + min(i, 10) for i in range(14)),
    )
    run = journals.run("run-t", source=Source.PHONE, serial="P1", generations=(made,), sensors=(heat,))
    return dataclasses.replace(journals.passing(), runs=(run,))


def test_windows_are_labelled_and_throttling_is_marked_on_the_time_axis(throttling):
    """The runner starts at 1 s, the first token comes at 5.4 s, token 401 at 9.4 s: 8.4 s on the axis."""
    (chart,) = thermal_charts(throttling, hover_points=10)
    assert [span.kind for span in chart.spans] == ["steady", "throttled"] or [s.kind for s in chart.spans] == [
        "warming",
        "throttled",
    ]
    (label, at) = chart.data["marks"][0]
    assert at == pytest.approx(8.4, abs=0.05)
    n_tokens = int(label.removeprefix("throttled after ").removesuffix(" tokens"))
    assert n_tokens == pytest.approx(401, abs=4)
    first, second = chart.data["spans"]
    assert first[2] == pytest.approx(8.4, abs=0.05)
    assert second[1:] == pytest.approx([8.4, 16.4], abs=0.05)
    assert "100.00 tok/s" in chart.spans[0].hover
    assert "1 throttle mark" in chart.summary


def test_repetitions_too_short_to_label_are_counted(journals):
    (chart,) = thermal_charts(journals.passing(), hover_points=10)
    assert chart.spans == ()
    assert chart.summary.endswith("3 repetitions too short to label: 256 gaps are needed.")


def test_power_is_current_times_voltage_whatever_the_sign(journals):
    run = journals.run(
        "run-p",
        source=Source.PHONE,
        sensors=(battery("ua", (-500_000.0, None, 1_000_000.0)), battery("uv", (4_000_000.0,) * 3)),
    )
    assert [watts for _, watts in battery_watts(run)] == [2.0, None, 4.0]
    journal = dataclasses.replace(journals.passing(), runs=(run,))
    section = energy_section(journal, derive(journal), {}, hover_points=10)
    (chart,) = section.charts
    assert chart.data["panels"][0]["unit"] == "W"
    assert "n = 2 readings; smallest 2.00 W, largest 4.00 W" in chart.summary


def test_why_energy_is_not_measured_comes_from_the_run(journals):
    bare = journals.run("a", source=Source.PHONE, sensors=())
    assert not_measurable(bare) == (
        "on external power: the battery's current is not what the phone uses",
        "the phone shows no battery current to its shell",
        "the phone shows no battery voltage to its shell",
    )
    quiet = dataclasses.replace(bare.conditions, charging=False)
    sensors = (battery("ua", (1.0, 2.0), "suspect"), battery("uv", (4_000_000.0,) * 2))
    assert not_measurable(dataclasses.replace(bare, conditions=quiet, sensors=sensors)) == (
        "battery current: sensor suspect",
    )
    whole = (battery("ua", (1.0, 2.0)), battery("uv", (4_000_000.0,) * 2))
    assert not_measurable(dataclasses.replace(bare, conditions=quiet, sensors=whole)) == (
        "2 readings of the current, and no idle block before or after to subtract",
    )
    assert "a virtual phone has no battery" in not_measurable(journals.passing().runs[0])[0]


@pytest.fixture
def real_phone(journals):
    """A phone without external power that decodes 10 tokens/s, and an artifact whose token moves 1.8 MB and more."""
    run = journals.run("run-r", source=Source.PHONE, serial="P1")
    run = dataclasses.replace(run, conditions=dataclasses.replace(run.conditions, charging=False))
    spec = TensorSpec(name="past_key_0", dtype=DType.UFIXED8, shape=(1, 2, 32, 511))
    graph = GraphSpec(name="ar1", n_tokens=1, inputs=(spec,), outputs=(), epcontext_nodes=1, cpu_nodes=0)
    manifest = journals.manifest()
    context = ContextFile(file="ar1.bin", sha256=journals.HASH, n_bytes=1, graphs=(graph,))
    manifest = dataclasses.replace(manifest, contexts=(context,))
    run = dataclasses.replace(run, artifact_id=manifest.artifact_id)
    journal = dataclasses.replace(journals.passing(), runs=(run,), logits=(), windows=(), self_checks=())
    return journal, manifest


def test_a_speed_that_nothing_refutes_stands_under_its_roof(real_phone):
    """1.8 million weights of a byte and 2 x 32 x 511 bytes of cache, at 76.8 GB/s: at most 41 900 tokens/s."""
    journal, manifest = real_phone
    section = roofline_section(journal, derive(journal), (manifest,), hover_points=10)
    (row,) = section.rows
    moved = 1_800_000 + 2 * 32 * 511
    assert row.total.value == pytest.approx(moved / 1e6)
    assert row.roof.value == pytest.approx(76.8e9 / moved)
    assert row.efficiency.value == pytest.approx(100 * 10 * moved / 76.8e9, rel=1e-3)
    (chart,) = section.charts
    roof, speed = chart.data["panels"][0]["series"]
    assert speed["y"] == [10]
    assert roof["x"][0] * roof["y"][0] == pytest.approx(76.8e3, rel=1e-4)


def test_without_an_artifact_or_on_an_emulator_the_roofline_says_why(journals, real_phone):
    journal, manifest = real_phone
    assert "the artifact is not at hand" in roofline_section(journal, derive(journal), (), hover_points=0).missing
    emulated = journals.passing()
    section = roofline_section(emulated, derive(emulated), (manifest,), hover_points=0)
    assert section.charts == ()
    assert "emulated" in section.missing
    none = dataclasses.replace(journal, runs=())
    assert "no decode speed was measured" in roofline_section(none, derive(none), (), hover_points=0).missing
    plain = journals.manifest()
    run = dataclasses.replace(journal.runs[0], artifact_id=plain.artifact_id)
    other = dataclasses.replace(journal, runs=(run,))
    assert "has no AR-1 graph" in roofline_section(other, derive(other), (plain,), hover_points=0).missing


def test_the_first_differing_step_is_counted_from_one_with_its_margin(journals):
    """The phone's fourth decode position, 7, is wrong by a margin of 0.05; the graph never is."""
    graph, phone = divergence_rows(journals.passing())
    assert (graph.leg, graph.n_diverged, graph.step.text) == ("graph, host", 0, "not measured")
    assert (phone.n_diverged, phone.n_prompts, phone.n_steps) == (1, 1, 4)
    assert (phone.step.value, phone.position.value, phone.margin.value) == (4, 7, 0.05)


def test_layers_are_drawn_from_the_manifest_and_missing_ones_named(journals):
    manifest = journals.manifest()
    (chart,), missing = layer_charts((manifest,), hover_points=10)
    assert chart.data["panels"][0]["series"][0]["y"] == [45, 44.25]
    assert "worst 44.2 dB behind layer 1" in chart.summary
    assert "(512 positions)" in chart.panels[0].series[0].name
    assert missing == ""
    bare = dataclasses.replace(manifest, accuracy=None)
    charts, missing = layer_charts((bare,), hover_points=10)
    assert charts == ()
    assert "has no per-layer figures" in missing
    assert layer_charts((), hover_points=10) == ((), "no manifest of an artifact that ran is at hand")
