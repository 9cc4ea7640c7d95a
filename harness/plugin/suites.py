"""The suites that make runs of their own, each run once per case: what runs, in which order, and what is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.journal import Entry
from harness.measure.quality import compare_logits, raw_logits, real_logits
from harness.measure.selfcheck import TOY_GRAPH, record_checks
from harness.measure.timing import timing_of
from harness.model.reference import load_reference, reference_facts, require_references
from harness.plugin import suite_runs, toy
from harness.plugin.case import Case
from harness.plugin.tasks import host_scores, phone_scores, questions, tasks_workload
from harness.record.artifact import Artifact
from harness.record.comparison import EDGE_PREFIX, Leg, SelfCheck
from harness.record.run import Cell, RunRecord
from harness.record.vocabulary import Status, Suite
from harness.results.sustained import still_changing
from harness.run.workload import Workload
from harness.spec.models import Catalogue, ModelSpec

SUITES: Final[Mapping[str, tuple[Suite, ...]]] = {
    "smoke": (Suite.TOY, Suite.SMOKE),
    "edges": (Suite.EDGES,),
    "tasks": (Suite.TASKS,),
    "sweep": (Suite.SWEEP, Suite.IDLE, Suite.PAUSES, Suite.LONGEST),
    "operators": (Suite.OPERATORS,),
    "sustained": (Suite.SUSTAINED, Suite.COOLDOWN, Suite.PACED),
    "endurance": (Suite.ENDURANCE,),
}
"""Name of a suite to the workloads that it runs, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a suite needs of the lab."""

    case: Case
    virtual: bool
    model: ModelSpec
    catalogue: Catalogue
    results: Path
    artifacts: Path
    artifact: Callable[[], Artifact]
    once: Callable[[str, Callable[[], RunRecord]], RunRecord]
    """Makes a run under a name, unless it was made before or is recalled."""
    run: Callable[[Artifact, Workload, str | None, Cell | None], RunRecord]
    """On a phone, preferably the one with this serial; journals the record."""
    append: Callable[[Entry], None]
    say: Callable[[str], None]

    @property
    def size(self) -> suite_runs.Size:
        return suite_runs.size_for(virtual=self.virtual)

    def tokens(self, n: int) -> tuple[int, ...]:
        return suite_runs.text_tokens(self.artifact(), self.model, self.catalogue, n)

    def measure(self, name: str, workload: Workload, *, serial: str | None = None) -> RunRecord:
        """One run of the artifact, with the self-checks that its record allows."""

        def make() -> RunRecord:
            record = self.run(self.artifact(), workload, serial, None)
            for check in record_checks(record):
                self.append(check)
            return record

        return self.once(name, make)


def run_suite(bench: Bench, name: str) -> RunRecord | None:
    """All runs of a suite; returns the last. A run that failed ends it: what would follow could not be compared.

    None: the suite has nothing to run for this model.
    """
    record: RunRecord | None = None
    for record in _RUNS[name](bench):
        if record.error is not None:
            break
    return record


def _smoke(bench: Bench) -> Iterator[RunRecord]:
    stand_in = toy.toy_artifact(bench.artifacts, part=bench.case.cell.part, say=bench.say)
    if stand_in is not None:

        def make() -> RunRecord:
            record = bench.run(stand_in.artifact, toy.workload(virtual=bench.virtual), None, bench.case.cell)
            said = sorted({g.token_ids for g in record.log.generations})
            bench.append(
                SelfCheck(
                    run_id=record.run_id,
                    cell=record.cell,
                    name=TOY_GRAPH,
                    passed=stand_in.is_answered_by(record.log.generations),
                    detail=f"generated {said}, fp32 begins {stand_in.answer}",
                )
            )
            return record

        yield bench.once(Suite.TOY, make)
    yield bench.measure(Suite.SMOKE, suite_runs.smoke(bench.tokens(4), bench.size))


def _edges(bench: Bench) -> Iterator[RunRecord]:
    artifact = bench.artifact()
    tokens = bench.tokens(max(suite_runs.edge_lengths(artifact)))

    def make() -> RunRecord:
        require_references(artifact, Leg.FP32)
        record = bench.run(artifact, suite_runs.edges(tokens, artifact, bench.size), None, None)
        for check in record_checks(record):
            bench.append(check)
        for entry in _edge_comparisons(artifact, tokens, record, bench.results):
            bench.append(entry)
        return record

    yield bench.once(Suite.EDGES, make)


def _edge_comparisons(artifact: Artifact, tokens: tuple[int, ...], record: RunRecord, results: Path) -> Iterator[Entry]:
    file = next((name for name in record.files_sha256 if name.endswith("/logits.bin")), None)
    if file is None or record.error is not None:
        return
    data = (results / file).read_bytes()
    decoder, facts = load_reference(artifact, Leg.FP32), reference_facts(artifact)
    yield facts
    for g in record.log.generations:
        if not g.prompt_id.startswith(EDGE_PREFIX) or g.logits is None:
            continue
        _, wanted = decoder.generate(tokens[: g.n_prompt], 1, ignore_eos=True)
        rows = real_logits(raw_logits(data, g.logits), g.logits)
        yield compare_logits(
            decoder.real(wanted),
            rows,
            run_id=record.run_id,
            reference_id=facts.reference_id,
            cell=record.cell,
            leg=Leg.PHONE,
            prompt_id=g.prompt_id,
            phase="prefill",
            positions=range(len(rows)),
        )


def _tasks(bench: Bench) -> Iterator[RunRecord]:
    artifact = bench.artifact()
    asked = questions(bench.catalogue.tasks(bench.model), artifact)
    if not asked:
        bench.say(f"model {bench.model.name} has no task set: name some in the catalogue (docs/suites.md)")
        return

    def make() -> RunRecord:
        require_references(artifact, Leg.FP32)
        record = bench.run(artifact, tasks_workload(asked, bench.size), None, None)
        facts = reference_facts(artifact)
        bench.append(facts)
        for check in record_checks(record):
            bench.append(check)
        decoder = load_reference(artifact, Leg.FP32)
        for score in host_scores(asked, decoder, reference_id=facts.reference_id, cell=record.cell):
            bench.append(score)
        for score in phone_scores(asked, record, reference_id=facts.reference_id):
            bench.append(score)
        return record

    yield bench.once(Suite.TASKS, make)


def _sweep(bench: Bench) -> Iterator[RunRecord]:
    tokens = bench.tokens(max(*bench.size.lengths, 8))
    yield bench.measure(Suite.SWEEP, suite_runs.sweep(tokens, bench.artifact(), bench.size))
    yield bench.measure(Suite.IDLE, suite_runs.idle(tokens, bench.size))
    yield bench.measure(Suite.PAUSES, suite_runs.pauses(tokens, bench.size))
    yield _longest(bench)


def _longest(bench: Bench) -> RunRecord:
    """The longest text, by bisection below the context; the run of it, or the last one where the lab failed or no
    length works."""
    recipe = bench.artifact().manifest.recipe
    tokens = bench.tokens(recipe.context_length)

    def probe(n: int) -> RunRecord:
        return bench.measure(f"{Suite.LONGEST}-{n}", suite_runs.longest(tokens, n, bench.size))

    return longest_text(probe, recipe.context_length, step=recipe.prefill_tokens, say=bench.say)


def longest_text(
    probe: Callable[[int], RunRecord], context: int, *, step: int, say: Callable[[str], None]
) -> RunRecord:
    """``probe(n)`` runs a text of n tokens. The whole context is tried first: on most phones that is all."""
    record = best = probe(context)
    if record.error is None or record.error.status is Status.INFRA:
        return record
    good, bad = 0, context
    while bad - good > step:
        n = (good + bad) // 2
        say(f"longest text: {bad} tokens fail, {good} work; trying {n}")
        record = probe(n)
        if record.error is None:
            good, best = n, record
        elif record.error.status is Status.INFRA:
            return record
        else:
            bad = n
    return best


def _operators(bench: Bench) -> Iterator[RunRecord]:
    artifact = bench.artifact()
    tokens = bench.tokens(artifact.manifest.recipe.prefill_tokens)
    yield bench.measure(Suite.OPERATORS, suite_runs.operators(tokens, artifact, bench.size))


def _sustained(bench: Bench) -> Iterator[RunRecord]:
    """At full speed leg after leg until the phone is in a steady state or the bound is reached; then cooling down; then
    as long held to 70 % of that speed. All on one phone."""
    artifact, size, tokens = bench.artifact(), bench.size, bench.tokens(16)
    legs: list[RunRecord] = []
    for number in range(size.legs):
        serial = legs[0].device.serial if legs else None
        leg = bench.measure(f"{Suite.SUSTAINED}-{number}", suite_runs.sustained(tokens, artifact, size), serial=serial)
        yield leg
        legs.append(leg)
        why = still_changing(legs)
        bench.say(f"sustained load: {len(legs)} of at most {size.legs} legs: {why or 'steady'}")
        if why is None:
            break
    hot = legs[-1]
    serial = hot.device.serial
    yield bench.measure(Suite.COOLDOWN, suite_runs.cooldown(tokens, size), serial=serial)
    speeds = [speed for g in hot.log.generations if (speed := timing_of(g).decode_tps) is not None]
    if speeds:
        pace = suite_runs.PACE_SHARE * speeds[-1]
        workload = suite_runs.sustained(tokens, artifact, size, legs=len(legs), pace_tps=pace)
        yield bench.measure(Suite.PACED, workload, serial=serial)


def _endurance(bench: Bench) -> Iterator[RunRecord]:
    tokens, serial = bench.tokens(32), None
    for number in range(bench.size.rounds):
        workload = suite_runs.endurance(tokens, number, bench.size)
        record = bench.measure(f"{Suite.ENDURANCE}-{number}", workload, serial=serial)
        serial = record.device.serial
        yield record


_RUNS: Final[Mapping[str, Callable[[Bench], Iterator[RunRecord]]]] = {
    "smoke": _smoke,
    "edges": _edges,
    "tasks": _tasks,
    "sweep": _sweep,
    "operators": _operators,
    "sustained": _sustained,
    "endurance": _endurance,
}
