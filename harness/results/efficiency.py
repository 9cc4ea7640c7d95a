"""Decode speed of a journal as a share of the memory's roof, per cell and phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from harness.errors import ArtifactError
from harness.journal import Journal
from harness.measure.roofline import Roof, bytes_per_token, fault
from harness.record.artifact import ArtifactManifest
from harness.results.derive import derive
from harness.soc import BY_PART

ROOFLINE_COLUMNS: Final = (
    "cell", "serial", "source", "artifact_id", "weight_bytes", "kv_bytes", "activation_bytes", "total_bytes",
    "dram_gb_per_s", "roof", "roof_tps", "decode_tps", "efficiency_percent", "note",
)  # fmt: skip
PEAK: Final = "peak of the SoC's DRAM, not measured on this phone"


def roofline_frame(journal: Journal, manifests: Mapping[str, ArtifactManifest]) -> pd.DataFrame:
    """One row per measured decode speed; ``manifests`` by artifact id. What is unknown is None, and ``note`` says why.

    ``efficiency_percent`` is a floor: of the bytes that have to move at least, against a peak no phone reaches. A
    refuted speed, an emulated one among them, has none.
    """

    def rows() -> Iterator[dict[str, Any]]:
        artifacts = {run.run_id: run.artifact_id for run in journal.runs}
        for m in derive(journal):
            if m.metric != "decode_tps" or m.value is None:
                continue
            artifact_id = artifacts[m.run_ids[0]]
            row: dict[str, Any] = dict.fromkeys(ROOFLINE_COLUMNS)
            row.update(cell=str(m.cell), serial=m.serial, source=str(m.source), artifact_id=artifact_id)
            row.update(decode_tps=m.value, roof=PEAK)
            notes = list(m.refuted_by)
            manifest = manifests.get(artifact_id)
            soc = BY_PART.get(m.cell.part)
            moved = None
            if manifest is None:
                notes.append("the artifact is not at hand: name its folder with --artifacts")
            else:
                try:
                    moved = bytes_per_token(manifest)
                except ArtifactError as exc:
                    notes.append(exc.what)
            if moved is not None:
                row.update(weight_bytes=moved.weights, kv_bytes=moved.kv, activation_bytes=moved.activations)
                row["total_bytes"] = moved.total
                if soc is None or soc.dram_gb_per_s is None:
                    row["roof"] = None
                    notes.append(f"no DRAM bandwidth is known for {m.cell.part}")
                else:
                    roof = Roof(gb_per_s=soc.dram_gb_per_s, source=PEAK)
                    row.update(dram_gb_per_s=roof.gb_per_s, roof=roof.source, roof_tps=roof.fastest_tps(moved))
                    if not m.refuted_by:
                        share = roof.efficiency_percent(moved, m.value)
                        row["efficiency_percent"] = share
                        notes += [text for text in [fault(share)] if text]
            row["note"] = "; ".join(notes)
            yield row

    return pd.DataFrame([[row[name] for name in ROOFLINE_COLUMNS] for row in rows()], columns=list(ROOFLINE_COLUMNS))
