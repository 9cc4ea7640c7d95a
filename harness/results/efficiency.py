"""Decode speed of a journal as a share of the memory's roof, per cell and phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

import pandas as pd

from harness.errors import ArtifactError
from harness.journal import Journal
from harness.measure.roofline import Roof, fault
from harness.record.artifact import ArtifactManifest
from harness.record.moved import BytesPerToken, bytes_per_token
from harness.record.run import RunRecord
from harness.results.derive import derive
from harness.results.roof import MEASURED, PEAK
from harness.soc import BY_PART

ROOFLINE_COLUMNS: Final = (
    "cell", "serial", "source", "artifact_id", "weight_bytes", "kv_bytes", "activation_bytes", "total_bytes",
    "gb_per_s", "roof", "roof_tps", "decode_tps", "efficiency_percent", "note",
)  # fmt: skip


def roofline_frame(journal: Journal, manifests: Mapping[str, ArtifactManifest]) -> pd.DataFrame:
    """One row per measured decode speed. What is unknown is None, and ``note`` says why.

    Bandwidth and bytes are those of the runs; for journals without them, the peak of the SoC's DRAM and the artifact in
    ``manifests`` (by artifact id). ``efficiency_percent`` is then a floor: against a peak no phone reaches. A refuted
    speed, an emulated one among them, has none.
    """
    runs = {run.run_id: run for run in journal.runs}

    def rows() -> Iterator[dict[str, Any]]:
        for m in derive(journal):
            if m.metric != "decode_tps" or m.value is None:
                continue
            of = [runs[run_id] for run_id in m.run_ids]
            row: dict[str, Any] = dict.fromkeys(ROOFLINE_COLUMNS)
            row.update(cell=str(m.cell), serial=m.serial, source=str(m.source), artifact_id=of[0].artifact_id)
            row.update(decode_tps=m.value)
            notes = list(m.refuted_by)
            moved = _moved(of[0], manifests, notes)
            if moved is not None:
                row.update(weight_bytes=moved.weights, kv_bytes=moved.kv, activation_bytes=moved.activations)
                row["total_bytes"] = moved.total
                roof = _roof(of)
                if roof is None:
                    notes.append(f"no DRAM bandwidth is known for {m.cell.part}, and none was measured")
                else:
                    row.update(gb_per_s=roof.gb_per_s, roof=roof.source, roof_tps=roof.fastest_tps(moved))
                    if not m.refuted_by:
                        share = roof.efficiency_percent(moved, m.value)
                        row["efficiency_percent"] = share
                        notes += [text for text in [fault(share)] if text]
            row["note"] = "; ".join(notes)
            yield row

    return pd.DataFrame([[row[name] for name in ROOFLINE_COLUMNS] for row in rows()], columns=list(ROOFLINE_COLUMNS))


def _moved(run: RunRecord, manifests: Mapping[str, ArtifactManifest], notes: list[str]) -> BytesPerToken | None:
    if run.moved is not None:
        return run.moved
    manifest = manifests.get(run.artifact_id)
    if manifest is None:
        notes.append("the artifact is not at hand: name its folder with --artifacts")
        return None
    try:
        return bytes_per_token(manifest)
    except ArtifactError as exc:
        notes.append(exc.what)
        return None


def _roof(runs: list[RunRecord]) -> Roof | None:
    measured = [run.bandwidth.gb_per_s for run in runs if run.bandwidth is not None]
    if measured:
        return Roof(gb_per_s=median(measured), source=MEASURED)
    soc = BY_PART.get(runs[0].cell.part)
    if soc is None or soc.dram_gb_per_s is None:
        return None
    return Roof(gb_per_s=soc.dram_gb_per_s, source=PEAK)
