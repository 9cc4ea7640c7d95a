"""Roofline: the bytes that a token has to move at least, and how near decoding comes to what the memory can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.journal import Journal
from harness.record.artifact import ArtifactManifest
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source
from harness.results.efficiency import roofline_frame
from reports.chart import Panel, Series, draw
from reports.drawing import Chart
from reports.overview import Figure, figure
from reports.text import clean, counted, number

_ROOF_POINTS: Final = 33
_LONGEST_WHY: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRow:
    cell: str
    phone: str
    source_kind: str
    weights: Figure
    kv: Figure
    activations: Figure
    total: Figure
    bandwidth: Figure
    roof_source: str
    """Of the bandwidth; empty: there is none"""
    roof: Figure
    decode: Figure
    efficiency: Figure
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineSection:
    rows: tuple[RooflineRow, ...]
    charts: tuple[Chart, ...]
    missing: str
    """Why there is no chart; empty when there is one"""


def roofline_section(
    journal: Journal,
    measurements: Sequence[Measurement],
    manifests: Sequence[ArtifactManifest],
    *,
    hover_points: int,
) -> RooflineSection:
    known = {manifest.artifact_id: manifest for manifest in manifests}
    speeds = {(str(m.cell), m.serial, str(m.source)): m for m in measurements if m.metric == "decode_tps"}
    frame = roofline_frame(journal, known)
    found = [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False, name=None)]
    rows = tuple(_row(item, speeds) for item in found)
    chart = _chart(found, speeds, hover_points=hover_points)
    missing = ""
    if chart is None:
        notes = dict.fromkeys(clean(f"{item['cell']}: {item['note']}")[:300] for item in found if item["note"])
        missing = "; ".join(notes) or "no decode speed was measured in this journal"
    return RooflineSection(rows=rows, charts=() if chart is None else (chart,), missing=missing)


def _row(item: dict[str, Any], speeds: dict[tuple[str, str | None, str], Measurement]) -> RooflineRow:
    speed = speeds[(item["cell"], item["serial"], item["source"])]
    ids = tuple(clean(run_id) for run_id in speed.run_ids)
    why = clean(item["note"]) or "not known"
    why = why if len(why) <= _LONGEST_WHY else f"{why[:_LONGEST_WHY]}…"

    def shown(name: str, unit: str, scale: float = 1.0, decimals: int | None = None) -> Figure:
        value = _number(item[name])
        return figure(None if value is None else value * scale, unit, why=why, decimals=decimals)

    return RooflineRow(
        cell=clean(item["cell"]),
        phone=clean(item["serial"] or "no phone"),
        source_kind=item["source"],
        weights=shown("weight_bytes", "MB", 1e-6, 2),
        kv=shown("kv_bytes", "MB", 1e-6, 2),
        activations=shown("activation_bytes", "MB", 1e-6, 2),
        total=shown("total_bytes", "MB", 1e-6, 2),
        bandwidth=shown("gb_per_s", "GB/s", decimals=1),
        roof_source=clean(item["roof"] or ""),
        roof=shown("roof_tps", "tokens/s", decimals=0),
        decode=figure(
            speed.value,
            "tokens/s",
            run_ids=ids,
            why=speed.reason or "",
            emulated=item["source"] == str(Source.VIRTUAL),
            interval=speed.interval,
        ),
        efficiency=shown("efficiency_percent", "%", decimals=1),
        note=clean(item["note"]),
    )


def _number(value: Any) -> float | None:
    """pandas gives NaN for None in a column of numbers."""
    return None if value is None or value != value else float(value)


def _chart(
    found: Sequence[dict[str, Any]],
    speeds: dict[tuple[str, str | None, str], Measurement],
    *,
    hover_points: int,
) -> Chart | None:
    """Speeds that nothing refutes, under the roof of their memory; no chart when there is none."""
    placed = [item for item in found if _number(item["efficiency_percent"]) is not None]
    if not placed:
        return None
    megabytes = [item["total_bytes"] / 1e6 for item in placed]
    low, high = min(megabytes) * 0.6, max(megabytes) * 1.6
    xs = tuple(low + (high - low) * i / (_ROOF_POINTS - 1) for i in range(_ROOF_POINTS))
    roofs = [
        Series(
            name=f"roof at {number(bandwidth, decimals=1)} GB/s",
            x=xs,
            y=tuple(bandwidth * 1e3 / x for x in xs),
            run_id=None,
            style=6,
        )
        for bandwidth in sorted({float(item["gb_per_s"]) for item in placed})
    ]
    points = []
    for style, item in enumerate(placed):
        speed = speeds[(item["cell"], item["serial"], item["source"])]
        points.append(
            Series(
                name=clean(f"{item['cell']} on {item['serial']}"),
                x=(item["total_bytes"] / 1e6,),
                y=(item["decode_tps"],),
                run_id=clean(speed.run_ids[0]),
                style=style % 6,
                dots=True,
                intervals=(speed.interval,),
                counts=(len(speed.samples),),
            )
        )
    return draw(
        chart_id="roofline-0",
        title="Decode speed under the memory's roof",
        subtitle="; ".join(sorted({str(item["roof"]) for item in placed})),
        summary=f"{counted(len(placed), 'speed')}: "
        + "; ".join(
            f"{clean(item['cell'])} {number(item['efficiency_percent'], decimals=1)} % of the roof" for item in placed
        )
        + ". Bars: 95 % interval of the median, BCa bootstrap over repetitions.",
        x_label="bytes a token moves at least",
        x_unit="MB (10⁶ bytes)",
        panels=(Panel(label="decode", unit="tok/s", series=(*roofs, *points), from_zero=True),),
        hover_points=hover_points,
        synthetic=any(item["source"] == str(Source.SYNTHETIC) for item in placed),
    )
