"""``make bench-phones``: every fault at every stage over the real adb wire; writes docs/fault-matrix.md.

``--cases N`` takes N of them by the seed, and a random schedule of pairs beside them; the default is a short sample.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from phones_faults import STAGES, Matrix, Outcome, all_cases, random_cases
from phones_standin import make_model

from harness.virtual.lab import PhoneSpec, VirtualLab

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "fault-matrix.md"


def run(n_cases: int | None, n_random: int, seed: int, log: Path) -> list[Outcome]:
    cases = list(all_cases())
    if n_cases is not None and n_cases < len(cases):
        cases = sorted(random.Random(seed).sample(cases, n_cases), key=lambda case: case.number)  # noqa: S311
    cases += random_cases(n_random, seed)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="bench-phones-") as name:
        folder = Path(name)
        (folder / "model").mkdir()
        model = make_model(folder / "model")
        with VirtualLab.start(folder / "lab", [PhoneSpec(marker="gen3")]) as lab, log.open("w") as out:
            matrix = Matrix(lab, folder / "lab", model, folder, seed=seed)
            for k, case in enumerate(cases):
                outcome = matrix.carry_out(case)
                outcomes.append(outcome)
                line = {
                    "case": case.name, "stage": case.stage, "ended": outcome.ended, "attempts": outcome.attempts,
                    "seconds": round(outcome.seconds, 1), "said": outcome.said, "wrong": outcome.wrong,
                }  # fmt: skip
                out.write(json.dumps(line) + "\n")
                out.flush()
                mark = "WRONG" if outcome.wrong else "ok"
                sys.stdout.write(f"{k + 1}/{len(cases)} {mark:5} {case.stage:9} {case.name:40} {outcome.ended}\n")
                sys.stdout.flush()
    return outcomes


def table(outcomes: list[Outcome], seconds: float, seed: int) -> str:
    single = [outcome for outcome in outcomes if len(outcome.case.faults) == 1]
    pairs = [outcome for outcome in outcomes if len(outcome.case.faults) > 1]

    def count(words: str) -> int:
        return sum(any(words in text for text in outcome.wrong) for outcome in outcomes)

    lines = [
        "# Faults of phones",
        "",
        f"`make bench-phones`, seed {seed}: {len(outcomes)} cases in {seconds / 60:.0f} min on {os.cpu_count()} CPUs "
        f"(load {os.getloadavg()[0]:.1f} at the end), over the real adb,",
        "the runner on the stand-in QNN library. After each case the fault is cleared and a second run must be whole",
        "and equal to the clean one.",
        "",
        "| | |",
        "|---|---|",
        f"| cases with anything wrong | {sum(bool(outcome.wrong) for outcome in outcomes)} |",
        f"| false PASS | {count('false PASS')} |",
        f"| model FAIL caused by infrastructure | {count('model' + chr(39) + 's failure')} |",
        f"| records lost or double | {count('disagree')} |",
        f"| stray processes, files or locks | {count('left')} |",
        f"| cause not named | {count('not named')} |",
        f"| next run not whole | {count('next run')} |",
        "",
        "How a run ends when one fault strikes: `whole` (2: in the second try), `INFRA`, or `refused` before",
        "it began.",
        "",
        "| fault | " + " | ".join(STAGES) + " |",
        "|---|" + "---|" * len(STAGES),
    ]
    for name in dict.fromkeys(outcome.case.name for outcome in single):
        cells = {o.case.stage: o for o in single if o.case.name == name}
        row = [_cell(cells[stage]) if stage in cells else "not run" for stage in STAGES]
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    if pairs:
        ends = {end: sum(o.ended == end for o in pairs) for end in dict.fromkeys(o.ended for o in pairs)}
        lines += ["", f"Two faults at random moments, {len(pairs)} cases: "
                  + ", ".join(f"{n} {end}" for end, n in sorted(ends.items())) + "."]  # fmt: skip
    bad = [outcome for outcome in outcomes if outcome.wrong]
    if bad:
        lines += ["", "What went wrong:", ""]
        lines += [f"- {o.case.name} at {o.case.stage}: {'; '.join(o.wrong)[:400]}" for o in bad]
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome) -> str:
    if outcome.wrong:
        return "**wrong**"
    return "whole (2)" if outcome.ended == "whole" and outcome.attempts == 2 else outcome.ended


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=40, help="so many single faults (default 40; 0: all)")
    parser.add_argument("--random", type=int, default=10, help="cases of two faults at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help=f"write the table here, such as {DOCUMENT.name}")
    parser.add_argument("--log", type=Path, default=Path("build/bench-phones.jsonl"))
    options = parser.parse_args()
    began = time.monotonic()
    outcomes = run(options.cases or None, options.random, options.seed, options.log)
    text = table(outcomes, time.monotonic() - began, options.seed)
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
