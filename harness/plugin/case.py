"""A case: one cell of the test plan, on any matching phone or on a given one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from harness.plugin.options import Settings, Spread
from harness.plugin.phones import PhoneList
from harness.record.run import Cell
from harness.soc import BY_PART


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    cell: Cell
    serial: str | None
    """None: any phone of the cell's SoC."""

    @property
    def id(self) -> str:
        cell = self.cell
        marker = BY_PART[cell.part].marker
        name = f"{cell.model}-{cell.precision}-{cell.kv}-{marker}"
        return name if self.serial is None else f"{name}-{self.serial}"


def cases(cells: Iterable[Cell], settings: Settings, phones: PhoneList) -> Iterator[Case]:
    """Every cell once, or with ``--spread each`` once per matching phone. A cell without a phone stays, to be named."""
    for cell in cells:
        matching = phones.matching(cell.part) if settings.spread is Spread.EACH else ()
        if matching:
            for phone in matching:
                yield Case(cell=cell, serial=phone.serial)
        else:
            yield Case(cell=cell, serial=None)


def parametrize(metafunc: pytest.Metafunc, all_cases: Iterator[Case]) -> None:
    """One test per case, marked with the SoC's marker."""
    metafunc.parametrize(
        "case",
        [
            pytest.param(
                case,
                id=case.id,
                marks=[getattr(pytest.mark, BY_PART[case.cell.part].marker)],
            )
            for case in all_cases
        ],
        scope="session",
    )
