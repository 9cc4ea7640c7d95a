"""Which operators take the cycles of the HTP, of the runs that profile; nothing of it is a speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.journal import Journal
from harness.record.run import RunRecord
from harness.record.vocabulary import Source, Suite
from harness.results.operators import operators_of
from reports.overview import cell_label
from reports.text import clean, counted, number

SHOWN: Final = 15
"""Operators of a graph; the rest is summed in one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    operator: str
    cycles: str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    title: str
    run_id: str
    emulated: bool
    rows: tuple[OperatorRow, ...]


def operator_tables(journal: Journal) -> tuple[OperatorTable, ...]:
    """One for each graph of each profiled run, the dearest operator first."""
    runs = [run for run in journal.runs if run.workload == Suite.OPERATORS and run.error is None]
    return tuple(table for run in runs for table in _tables(run))


def _tables(run: RunRecord) -> Sequence[OperatorTable]:
    position = {profile.graph: profile.position for profile in run.log.profiles}
    found = operators_of(run.log.profiles)
    tables = []
    for graph in sorted(position, key=lambda name: position[name]):
        mine = [operator for operator in found if operator.graph == graph]
        rows = [
            OperatorRow(
                operator=clean(operator.operator),
                cycles=number(operator.cycles, decimals=0),
                share=number(100 * operator.share, decimals=1),
            )
            for operator in mine[:SHOWN]
        ]
        if rest := mine[SHOWN:]:
            rows.append(
                OperatorRow(
                    operator=f"{counted(len(rest), 'other operator')}",
                    cycles=number(sum(operator.cycles for operator in rest), decimals=0),
                    share=number(100 * sum(operator.share for operator in rest), decimals=1),
                )
            )
        if rows:
            title = f"{cell_label(run.cell)} · {run.device.serial} · {graph}, step at position {position[graph]}"
            tables.append(
                OperatorTable(
                    title=clean(title),
                    run_id=clean(run.run_id),
                    emulated=run.source is Source.VIRTUAL or run.device.virtual,
                    rows=tuple(rows),
                )
            )
    return tables
