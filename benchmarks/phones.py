"""``make bench-phones``: every fault at every stage over the real adb wire; writes docs/fault-matrix.md.

``--cases N`` takes N of them by the seed, and a random schedule of pairs beside them; the default is a short sample.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from phones_faults import STAGES, all_cases, random_cases, sampled_cases
from phones_matrix import Matrix, shorter_limits
from phones_standin import make_model

from harness.virtual.lab import PhoneSpec, VirtualLab

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "fault-matrix.md"


Line = dict[str, Any]
"""One case as it is logged"""


def run(n_cases: int | None, n_random: int, seed: int, log: Path, part: tuple[int, int]) -> list[Line]:
    cases = list(all_cases())
    if n_cases is not None and n_cases < len(cases):
        cases = list(sampled_cases(n_cases, seed))
    cases = [*cases, *random_cases(n_random, seed)][part[0] - 1 :: part[1]]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="bench-phones-") as name:
        folder = Path(name)
        (folder / "model").mkdir()
        model = make_model(folder / "model")
        phones = [PhoneSpec(marker="gen3")]
        with VirtualLab.start(folder / "lab", phones) as lab, log.open("w") as out, shorter_limits():
            matrix = Matrix(lab, folder / "lab", model, folder, seed=seed)
            for k, case in enumerate(cases):
                outcome = matrix.carry_out(case)
                line = {
                    "case": case.name,
                    "n_faults": len(case.faults),
                    "stage": case.stage,
                    "ended": outcome.ended,
                    "attempts": outcome.attempts,
                    "seconds": round(outcome.seconds, 1),
                    "said": outcome.said,
                    "wrong": outcome.wrong,
                }
                outcomes.append(line)
                out.write(json.dumps(line) + "\n")
                out.flush()
                mark = "WRONG" if outcome.wrong else "ok"
                sys.stdout.write(f"{k + 1}/{len(cases)} {mark:5} {case.stage:9} {case.name:40} {outcome.ended}\n")
                sys.stdout.flush()
    return outcomes


def table(lines: list[Line], seed: int) -> str:
    single = [line for line in lines if line["n_faults"] == 1]
    pairs = [line for line in lines if line["n_faults"] > 1]

    minutes = sum(line["seconds"] for line in lines) / 60

    def count(words: str) -> int:
        return sum(any(words in text for text in line["wrong"]) for line in lines)

    text = [
        "# Faults of phones",
        "",
        f"`make bench-phones`, seed {seed}: {len(lines)} cases, {len(single)} of one fault (of {len(all_cases())}) and",
        f"{len(pairs)} of two at random moments, {minutes:.0f} min in all, over the real adb, the runner on the",
        "stand-in QNN library. After each case the fault is cleared; a second run must then be whole and equal to the",
        "clean one.",
        "",
        "| | cases |",
        "|---|---|",
        f"| with anything wrong | {sum(bool(line['wrong']) for line in lines)} |",
        f"| false PASS | {count('false PASS')} |",
        f"| model FAIL caused by infrastructure | {count('the model')} |",
        f"| runs lost from the journal, or twice in it | {count('disagree')} |",
        f"| stray processes, files or locks | {count('left')} |",
        f"| cause not named | {count('not named')} |",
        f"| next run not whole | {count('next run')} |",
        "",
        "How a run ends when one fault strikes: `whole` (2: in the second try), `INFRA`, or `refused` before it began.",
        "A fault that finds nothing more to spoil, such as a push that fails after all is pushed, leaves it whole.",
        "",
        "| fault | " + " | ".join(STAGES) + " |",
        "|---|" + "---|" * len(STAGES),
    ]
    for name in dict.fromkeys(case.name for case in all_cases()):
        cells = {line["stage"]: line for line in single if line["case"] == name}
        text.append(f"| {name} | " + " | ".join(_cell(cells.get(stage)) for stage in STAGES) + " |")
    if pairs:
        ends = Counter(line["ended"] for line in pairs)
        text += [
            "",
            "Two faults at random moments: " + ", ".join(f"{n} {end}" for end, n in sorted(ends.items())) + ".",
        ]
    bad = [line for line in lines if line["wrong"]]
    if bad:
        text += ["", "What went wrong:", ""]
        text += [f"- {line['case']} at {line['stage']}: {'; '.join(line['wrong'])[:400]}" for line in bad]
    return "\n".join(text) + "\n"


def _cell(line: Line | None) -> str:
    if line is None:
        return "not run"
    if line["wrong"]:
        return "**wrong**"
    return "whole (2)" if line["ended"] == "whole" and line["attempts"] == 2 else str(line["ended"])


def _part(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N")
    return int(number), int(of)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=40, help="so many single faults (default 40; 0: all)")
    parser.add_argument("--random", type=int, default=10, help="cases of two faults at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help=f"write the table here, such as {DOCUMENT.name}")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="every Nth case, from the Kth")
    parser.add_argument("--log", type=Path, default=Path("build/bench-phones.jsonl"))
    parser.add_argument("--tabulate", type=Path, nargs="+", metavar="LOG", help="run nothing; a table of these logs")
    options = parser.parse_args()
    if options.tabulate:
        outcomes = [json.loads(line) for log in options.tabulate for line in log.read_text().splitlines()]
    else:
        outcomes = run(options.cases or None, options.random, options.seed, options.log, options.part)
    text = table(outcomes, options.seed)
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return 1 if any(line["wrong"] for line in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
