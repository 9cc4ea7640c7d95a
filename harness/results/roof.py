"""Speed as a share of what memory and processor allow, per run: bandwidth and bytes are of the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.measure.roofline import Roof, fault
from harness.record.run import RunRecord
from harness.results.figure import Figure, median_figure, missing, present
from harness.results.speed import headline_runs, speed_figures
from harness.soc import BY_PART

EFFICIENCIES: Final = frozenset({"decode_efficiency_percent", "prefill_efficiency_percent"})
MEASURED: Final = "memory bandwidth, measured right after the run"
PEAK: Final = "peak of the SoC's DRAM, not measured on this phone"


def roof_figures(runs: Sequence[RunRecord]) -> dict[str, Figure]:
    """Of runs that ended well. Without a measured bandwidth, or a published peak, there is a reason and no share."""
    runs = headline_runs(runs)
    measured = [run for run in runs if run.bandwidth is not None]
    found: list[tuple[str, Figure | None]] = [
        ("memory_gb_per_s", median_figure([(r.run_id, r.bandwidth.gb_per_s) for r in measured if r.bandwidth]))
    ]
    decode = [
        (run.run_id, Roof(gb_per_s=run.bandwidth.gb_per_s, source=MEASURED).efficiency_percent(run.moved, tps))
        for run in measured
        if run.bandwidth is not None and run.moved is not None
        for tps in _samples(run, "decode_tps")
    ]
    found.append(("decode_efficiency_percent", median_figure(decode)))
    prefill = []
    unknown: dict[str, str] = {}
    for run in runs:
        tps = _samples(run, "prefill_tps")
        if run.operations_per_token is None or not tps:
            continue
        soc = BY_PART.get(run.cell.part)
        peak = soc.peak_tops(run.cell.precision) if soc is not None else None
        if peak is None:
            unknown[run.run_id] = f"no peak of {run.cell.part} is published for {run.cell.precision}"
        else:
            prefill += [(run.run_id, 100.0 * value * run.operations_per_token / (peak * 1e12)) for value in tps]
    if unknown and not prefill:
        found.append(("prefill_efficiency_percent", missing(unknown, next(iter(unknown.values())))))
    else:
        found.append(("prefill_efficiency_percent", median_figure(prefill)))
    return present(found)


def _samples(run: RunRecord, metric: str) -> tuple[float, ...]:
    figure = speed_figures([run]).get(metric)
    return () if figure is None else figure.samples


def over_the_roof(name: str, figure: Figure, runs: Sequence[RunRecord]) -> str | None:
    """Why a figure cannot be: a share over 100 %, or a decode speed that even the DRAM's peak cannot feed."""
    if figure.value is None:
        return None
    if name in EFFICIENCIES:
        return fault(figure.value)
    if name != "decode_tps":
        return None
    for run in runs:
        soc = BY_PART.get(run.cell.part)
        if run.moved is not None and soc is not None and soc.dram_gb_per_s is not None:
            share = Roof(gb_per_s=soc.dram_gb_per_s, source=PEAK).efficiency_percent(run.moved, figure.value)
            if (why := fault(share)) is not None:
                return f"{why} ({share:.0f} % of the peak of {soc.part})"
    return None
