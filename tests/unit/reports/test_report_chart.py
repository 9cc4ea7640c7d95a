import pytest

from reports.chart import Band, Panel, Rule, Series, draw
from reports.paths import dots_path, line_path, simplified
from reports.scale import nice_ticks, padded_range, thinned
from reports.timeline import Bar, timeline


def one_line(y: tuple[float | None, ...], *, dots: bool = False, from_zero: bool = True):
    series = Series(name="line", x=tuple(float(i) for i in range(len(y))), y=y, run_id="run-a", style=0, dots=dots)
    return draw(
        chart_id="c",
        title="t",
        subtitle="s",
        summary="m",
        x_label="token",
        x_unit="",
        panels=(Panel(label="gap", unit="ms", series=(series,), from_zero=from_zero),),
    )


def test_ticks_are_round_and_inside_the_range() -> None:
    assert nice_ticks(0.0, 10.0, 5) == (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    assert nice_ticks(0.3, 1.1, 4) == pytest.approx((0.4, 0.6, 0.8, 1.0))


def test_ticks_of_a_count_are_whole_numbers() -> None:
    assert nice_ticks(2.0, 5.0, 8, whole=True) == (2.0, 3.0, 4.0, 5.0)


def test_a_constant_still_gets_a_range_around_it() -> None:
    low, high = padded_range([5.0, 5.0], from_zero=False)
    assert low < 5.0 < high


def test_a_range_from_zero_starts_at_zero() -> None:
    assert padded_range([90.0, 110.0], from_zero=True)[0] == 0.0


def test_first_and_last_point_are_kept_when_points_are_thinned() -> None:
    assert thinned(100, 4) == (0, 33, 66, 99)
    assert thinned(3, 10) == (0, 1, 2)


def test_the_first_value_lies_on_the_left_edge_and_the_last_on_the_right() -> None:
    chart = one_line((0.0, 50.0, 100.0))
    points = chart.panels[0].series[0].points
    assert (points[0].x, points[-1].x) == (chart.left, chart.right)
    assert points[0].y == chart.panels[0].bottom
    assert points[0].y > points[1].y > points[2].y > chart.panels[0].top


def test_a_missing_reading_breaks_the_line_and_is_no_zero() -> None:
    chart = one_line((10.0, 11.0, None, 12.0))
    series = chart.panels[0].series[0]
    assert series.path.count("M") == 2
    assert (series.n, len(series.points)) == (3, 3)
    data = chart.data["panels"][0]["series"][0]
    assert (data["x_range"], data["y"]) == ([0, 3], [10, 11, None, 12])


def test_every_dot_is_drawn_by_itself() -> None:
    series = one_line((1.0, 2.0, 3.0), dots=True).panels[0].series[0]
    assert (series.path.count("m"), series.path.count("h0")) == (3, 3)


def test_dots_that_touch_above_each_other_are_one_stroke() -> None:
    assert dots_path([(500, 100), (500, 110), (500, 120), (500, 140), (530, 90)]) == "m50 10v2m0 2h0m3-5h0"


def test_the_run_of_each_point_is_in_its_hover_text_and_in_the_data() -> None:
    line = Series(name="load", x=(1.0, 2.0), y=(5.0, None), run_id=None, style=0, runs=("run-a", "run-b"))
    chart = draw(
        chart_id="c",
        title="t",
        subtitle="",
        summary="",
        x_label="run",
        x_unit="",
        panels=(Panel(label="load", unit="ms", series=(line,)),),
    )
    assert chart is not None
    assert [point.hover for point in chart.panels[0].series[0].points] == ["load: 5.0 ms at run 1, run run-a"]
    assert chart.data["panels"][0]["series"][0]["run_ids"] == ["run-a", "run-b"]


def test_a_hover_text_says_value_unit_and_place() -> None:
    assert one_line((1.0, 2.5)).panels[0].series[0].points[1].hover == "line: 2.5 ms at token 1"


def test_no_chart_is_drawn_of_nothing() -> None:
    assert one_line((None, None)) is None
    assert one_line(()) is None


def test_an_empty_panel_is_left_out() -> None:
    full = Series(name="a", x=(0.0,), y=(1.0,), run_id=None, style=0)
    empty = Series(name="b", x=(), y=(), run_id=None, style=1)
    chart = draw(
        chart_id="c",
        title="t",
        subtitle="",
        summary="",
        x_label="time",
        x_unit="s",
        panels=(Panel(label="one", unit="", series=(full,)), Panel(label="two", unit="", series=(empty,))),
    )
    assert [panel.label for panel in chart.panels] == ["one"]


def test_bands_and_rules_are_placed_on_the_same_scale_as_the_line() -> None:
    series = Series(name="a", x=(0.0, 10.0), y=(0.0, 100.0), run_id=None, style=0)
    chart = draw(
        chart_id="c",
        title="t",
        subtitle="",
        summary="",
        x_label="time",
        x_unit="s",
        panels=(Panel(label="p", unit="", series=(series,), from_zero=True, rules=(Rule(y=100.0, label="r"),)),),
        bands=(Band(start=0.0, end=5.0, kind="prefill"),),
    )
    assert chart.bands[0].path == "M50 22h268V192h-268z"
    assert chart.panels[0].rules[0].y == chart.panels[0].series[0].points[1].y


def test_a_phase_twice_as_long_is_drawn_twice_as_wide() -> None:
    bars = (
        Bar(name="a", detail="", start_ms=0.0, end_ms=100.0),
        Bar(name="b", detail="", start_ms=100.0, end_ms=300.0),
    )
    chart = timeline(chart_id="t", title="t", subtitle="", run_id="r", bars=bars, emulated=False, synthetic=False)
    first, second = chart.bars
    assert second.width == pytest.approx(2 * first.width, abs=0.2)
    assert second.x == pytest.approx(first.x + first.width, abs=0.2)
    assert [bar.text for bar in chart.bars] == ["100.0 ms", "200.0 ms"]
    assert chart.summary == "2 load phases in 300.0 ms; the longest is b with 200.0 ms."


def test_phases_of_one_name_are_numbered() -> None:
    bars = tuple(Bar(name="read", detail=f"{i}.bin", start_ms=i, end_ms=i + 1) for i in (0.0, 1.0))
    chart = timeline(chart_id="t", title="t", subtitle="", run_id="r", bars=bars, emulated=False, synthetic=False)
    assert [bar.name for bar in chart.bars] == ["read 1 of 2", "read 2 of 2"]


def test_a_line_is_written_as_short_relative_moves_in_tenths_of_a_pixel() -> None:
    assert line_path([[(500, 100), (537, 98), (537, 400)], [(600, 5)]]) == "M50 10l3.7-.2 0 30.2M60 .5h0"


def test_points_that_the_eye_cannot_tell_from_a_straight_line_are_dropped() -> None:
    assert simplified([(0, 0), (50, 1), (100, 0)], tolerance=2.5) == [(0, 0), (100, 0)]
    assert simplified([(0, 0), (50, 30), (100, 0)], tolerance=2.5) == [(0, 0), (50, 30), (100, 0)]


def test_a_line_that_comes_back_to_its_start_keeps_its_far_point() -> None:
    assert simplified([(0, 0), (50, 40), (0, 0)], tolerance=2.5) == [(0, 0), (50, 40), (0, 0)]
