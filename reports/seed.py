"""The figures of the article this project began with, beside what was measured here.

The figures are one author's, for LLaMA-7B on one Snapdragon 8 Gen 2 phone. They are shown for comparison, never judged
by, and they disagree with each other in places (``INCONSISTENCIES``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.journal import Journal
from harness.measure.timing import comparable_repetitions, load_phase_ms
from harness.record.artifact import ArtifactManifest
from harness.record.run import Cell, RunRecord
from harness.record.verdict import Measurement
from harness.record.vocabulary import Source
from harness.results.speed import headline_runs
from reports.overview import Figure, cell_label, figure
from reports.text import clean, number

LABEL: Final = "One author's figures, LLaMA-7B on Snapdragon 8 Gen 2 (12 GB); not a truth"

INCONSISTENCIES: Final = (
    "22 tok/s (start-up table) and 13.5 tok/s (configuration table) are given for the same choice of configuration.",
    "7 billion parameters in 4.3 GB or 4.1 GB cannot be INT8 throughout, which alone would take 7 GB.",
    "The start-up table speaks of a Q4 model of about 4.4 GB, the configuration table of INT8.",
)

MAX_COLUMNS: Final = 4
"""Measured cells that are set beside the start-up table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupRow:
    phase: str
    seed: str
    unit: str
    counterpart: str
    """What is measured here in its place"""
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupTable:
    columns: tuple[str, ...]
    rows: tuple[StartupRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    configuration: str
    measured: bool
    size: Figure
    prefill: Figure
    prefill_tokens: str
    decode: Figure
    longest: Figure
    note: str


_Key = tuple[Cell, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One cell on one phone with its runs and measurements."""

    cell: Cell
    serial: str
    runs: tuple[RunRecord, ...]
    measured: dict[str, Measurement]

    @property
    def emulated(self) -> bool:
        return any(run.source is Source.VIRTUAL for run in self.runs)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(clean(run.run_id) for run in self.runs)

    def metric(self, name: str, unit: str, *, factor: float = 1.0) -> Figure:
        item = self.measured.get(name)
        if item is None:
            return figure(None, unit, why="no run of this cell measures it")
        value = None if item.value is None else item.value * factor
        ids = tuple(clean(run_id) for run_id in item.run_ids)
        return figure(value, unit, run_ids=ids, why=item.reason or "", emulated=self.emulated)

    def phases(self, names: Sequence[str]) -> Figure:
        """Median over runs is left to ``load_*``; here the first run that loaded stands, and is named."""
        for run in self.runs:
            took = load_phase_ms(run.log.phases)
            if any(name in took for name in names):
                total = sum(took.get(name, 0.0) for name in names)
                return figure(total, "ms", run_ids=(clean(run.run_id),), emulated=self.emulated)
        return figure(None, "ms", why="no load phase was recorded")

    def push(self) -> Figure:
        pushed = [run for run in self.runs if run.bytes_pushed > 0]
        if not pushed:
            return figure(None, "s", why="every file was on the phone already")
        run = max(pushed, key=lambda r: r.bytes_pushed)
        return figure(run.push_s, "s", run_ids=(clean(run.run_id),), emulated=self.emulated)

    def prompt_tokens(self) -> int | None:
        lengths = [g.n_prompt for run in self.runs for g in comparable_repetitions(run.log.generations)]
        return max(lengths, default=None)


def _places(journal: Journal, measurements: Sequence[Measurement]) -> list[_Place]:
    groups: dict[_Key, list[RunRecord]] = {}
    for run in journal.runs:
        groups.setdefault((run.cell, run.device.serial), []).append(run)
    return [
        _Place(
            cell=cell,
            serial=serial,
            runs=headline_runs(runs) or tuple(runs),
            measured={m.metric: m for m in measurements if m.cell == cell and m.serial == serial},
        )
        for (cell, serial), runs in groups.items()
    ]


def startup_table(journal: Journal, measurements: Sequence[Measurement]) -> StartupTable:
    places = _places(journal, measurements)
    shown = places[:MAX_COLUMNS]
    backend = ("open_libraries", "backend", "device")
    graph = ("read", "verify", "context_create", "graph_retrieve", "buffers")

    def row(phase: str, seed: str, unit: str, counterpart: str, figures: Sequence[Figure]) -> StartupRow:
        return StartupRow(phase=phase, seed=seed, unit=unit, counterpart=counterpart, figures=tuple(figures))

    lengths = dict.fromkeys(str(n) for p in shown if (n := p.prompt_tokens()) is not None)
    tokens = f"{' or '.join(lengths)} tokens" if lengths else "the longest prompt"
    return StartupTable(
        columns=tuple(clean(f"{cell_label(p.cell)} on {p.serial}") for p in shown),
        left_out=len(places) - len(shown),
        rows=(
            row(
                "copy the model from assets to private storage, first start only", "3.2", "s",
                "push over adb of what the phone did not have", [p.push() for p in shown],
            ),
            row(
                "QNN backend initialisation", "280", "ms",
                "open libraries, backend and device", [p.phases(backend) for p in shown],
            ),
            row(
                "graph load and compile", "2100", "ms",
                "read, verify, create context, retrieve graphs, buffers (compiled beforehand)",
                [p.phases(graph) for p in shown],
            ),
            row(
                "prefill of 2048 tokens, to the first token", "3400", "ms",
                f"time to first token, {tokens}", [p.metric("ttft_ms", "ms") for p in shown],
            ),
            row(
                "each further token", "45", "ms",
                "mean gap between tokens", [p.metric("tpot_ms", "ms") for p in shown],
            ),
        ),
    )  # fmt: skip


def _seed_row(
    name: str, size_gb: float, prefill_s: float, tps: float, longest: int | None, note: str
) -> ConfigurationRow:
    return ConfigurationRow(
        configuration=name,
        measured=False,
        size=figure(size_gb, "GB", decimals=1),
        prefill=figure(prefill_s, "s", decimals=1),
        prefill_tokens="1024",
        decode=figure(tps, "tokens/s", decimals=1),
        longest=figure(longest, "count")
        if longest is not None
        else Figure(value=None, text="does not run long", unit="tokens", why="the article's words"),
        note=note,
    )


SEED_CONFIGURATIONS: Final = (
    _seed_row("FP16 ONNX", 14.4, 6.8, 4.5, None, ""),
    _seed_row("INT8 QDQ (weights)", 7.2, 4.1, 9.2, 512, ""),
    _seed_row("INT8 QDQ + FP16 attention", 4.3, 2.8, 13.5, 2048, "its choice; about 95 % of FP16 quality"),
    _seed_row("all INT8", 4.1, 2.1, 18.7, 2048, ""),
)


def configuration_rows(
    journal: Journal, measurements: Sequence[Measurement], manifests: Sequence[ArtifactManifest]
) -> tuple[ConfigurationRow, ...]:
    """The article's four rows, then one per measured cell and phone in the same units. Sizes are decimal GB."""
    known = {manifest.artifact_id: manifest for manifest in manifests}
    rows = list(SEED_CONFIGURATIONS)
    for place in _places(journal, measurements):
        manifest = next((known[r.artifact_id] for r in place.runs if r.artifact_id in known), None)
        n_prompt = place.prompt_tokens()
        contexts = next((r.log.contexts for r in place.runs if r.log.contexts), ())
        size = (
            sum(c.n_bytes for c in manifest.contexts)
            if manifest is not None
            else sum(c.n_bytes for c in contexts)
            if contexts
            else None
        )
        rows.append(
            ConfigurationRow(
                configuration=clean(f"{cell_label(place.cell)} on {place.serial}"),
                measured=True,
                size=figure(
                    None if size is None else size / 1e9, "GB", run_ids=place.ids[:1], why="no context was loaded"
                ),
                prefill=place.metric("ttft_ms", "s", factor=1e-3),
                prefill_tokens="not measured" if n_prompt is None else str(n_prompt),
                decode=place.metric("decode_tps", "tokens/s"),
                longest=figure(
                    None if manifest is None else manifest.recipe.context_length,
                    "count",
                    why="the artifact's manifest was not given to the report",
                ),
                note=""
                if manifest is None
                else f"{number(manifest.model.n_parameters / 1e6, decimals=1)} million parameters",
            )
        )
    return tuple(rows)
