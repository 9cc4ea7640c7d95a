"""Synthetic journals of A/B comparisons. Nothing in them was measured; every number follows from the arguments.

``python tests/data/make_ab_journals.py FOLDER`` writes one folder per entry of ``JOURNALS``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

from harness.journal import Journal, JournalWriter
from harness.measure.paired import arm_order
from harness.record.ab import ArmRun
from harness.record.run import RunError, RunRecord
from harness.record.vocabulary import Status

A_ID, B_ID = "a" * 16, "b" * 16
JOURNALS = {
    "ab_pass": {"noise": 0.002},
    "ab_fail": {"noise": 0.01, "slower": 0.03},
    "ab_faster": {"noise": 0.002, "slower": -0.05},
    "ab_inconclusive": {"noise": 0.02},
    "ab_short": {"noise": 0.01, "slower": 0.03, "n_pairs": 7},
    "ab_invalid_emulated": {"noise": 0.002, "virtual": True},
    "ab_invalid_constant": {"noise": 0.002, "constant_b": True},
    "ab_infra": {"noise": 0.002, "lost": True},
}


def _builders() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_journals", Path(__file__).with_name("make_journals.py"))
    if spec is None or spec.loader is None:
        raise FileNotFoundError("make_journals.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


make = _builders()


def arm_run(
    rng: random.Random,
    run_id: str,
    session: str,
    arm: str,
    *,
    gap_ms: float,
    virtual: bool = False,
    constant: bool = False,
) -> RunRecord:
    """One run of an arm; ``gap_ms``: between tokens."""
    tokens = [7] * 17 if constant else [3 + 5 * i % 97 for i in range(17)]
    generations = [
        make.generation(rng, gap_ms=gap_ms, tokens=tokens),
        make.generation(rng, prompt_id="short", n_prompt=16, start_ns=20_000 * make.MS, tokens=tokens[::-1]),
    ]
    record: RunRecord = make.run_record(
        run_id, make.runner_log(run_id, generations), session_id=session, virtual=virtual
    )
    return dataclasses.replace(record, artifact_id=A_ID if arm == "A" else B_ID, sensors=())


def comparison(
    name: str,
    *,
    noise: float,
    slower: float = 0.0,
    n_pairs: int = 12,
    virtual: bool = False,
    constant_b: bool = False,
    lost: bool = False,
    drift: float = 0.0,
    seed: int = 1,
) -> Journal:
    """``noise``: standard deviation of the logarithm of each run's speed. ``slower``: how much longer B takes.
    ``drift``: how much longer each run takes than the one before."""
    rng = random.Random(seed)
    runs: list[RunRecord] = []
    arms: list[ArmRun] = []
    for position, arm in enumerate(arm_order(n_pairs)):
        run_id = f"{name}-{position:02}"
        factor = 2.718281828459045 ** rng.gauss(0.0, noise) * (1 + drift) ** position
        gap = 20.0 * factor * (1 + slower if arm == "B" else 1.0)
        record = arm_run(rng, run_id, name, arm, gap_ms=gap, virtual=virtual, constant=constant_b and arm == "B")
        error = RunError(status=Status.INFRA, kind="PhoneLostError", message="the phone went away") if lost else None
        runs.append(dataclasses.replace(record, error=error))
        arms.append(ArmRun(session_id=name, comparison="latency", position=position, arm=arm, run_id=run_id))
    return Journal(sessions=(make.session(name),), runs=tuple(runs), arms=tuple(arms))


def write(folder: Path) -> None:
    for name, arguments in JOURNALS.items():
        path = folder / name / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        journal = comparison(name, **arguments)
        writer = JournalWriter(path)
        for entry in (*journal.sessions, *journal.runs, *journal.arms):
            writer.append(entry)
        writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
