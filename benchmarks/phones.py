"""``make bench-phones``: pushes and eight phones at once, then every fault at every stage of a run and SIGKILLs.

All over the real adb wire. Writes docs/fault-matrix.md. The speeds are measured first, with nothing else at work; then
``--jobs`` phones share the faults, and the kills have one more. ``--cases N`` takes N single faults by the seed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from phones_faults import STAGES, all_cases, random_cases, sampled_cases
from phones_matrix import Matrix, shorter_limits
from phones_speed import Many, Pushes, lines
from phones_standin import make_model

from harness.virtual.lab import PhoneSpec, VirtualLab

FOLDER = Path(__file__).resolve().parent
DOCUMENT = FOLDER.parent / "docs" / "fault-matrix.md"


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


def table(cases: list[Line], seed: int, *, minutes: float | None, kills: Line | None, speed: Line | None) -> str:
    """The page. ``minutes``: wall time of the whole benchmark, None if its parts were run apart."""
    single = [line for line in cases if line["n_faults"] == 1]
    pairs = [line for line in cases if line["n_faults"] > 1]
    took = sum(line["seconds"] for line in cases) / 60
    whole = "its parts run apart" if minutes is None else f"{minutes:.0f} min for this whole page"

    def count(words: str) -> int:
        return sum(any(words in text for text in line["wrong"]) for line in cases)

    text = [
        "# Faults of phones",
        "",
        f"`make bench-phones`, seed {seed}: {len(cases)} cases, {len(single)} of one fault (of {len(all_cases())}) and",
        f"{len(pairs)} of two at random moments, {took:.0f} min of work, {whole}, over the real adb, the",
        "runner on the stand-in QNN library. After each case the fault is cleared; a second run must then be whole and",
        "equal to the clean one. The record must name the fault itself, in words that fit no other: a phone that went",
        "away is said to have rebooted or not, a file that arrived wrong to be cut short or damaged. What looks the",
        "same from the host (a pulled cable, an offline phone, bytes of nobody) is named the same.",
        "",
        "| | cases |",
        "|---|---|",
        f"| with anything wrong | {sum(bool(line['wrong']) for line in cases)} |",
        f"| false PASS | {count('false PASS')} |",
        f"| model FAIL caused by infrastructure | {count('of the lab is the model')} |",
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
    bad = [line for line in cases if line["wrong"]]
    if bad:
        text += ["", "What went wrong:", ""]
        text += [f"- {line['case']} at {line['stage']}: {'; '.join(line['wrong'])[:400]}" for line in bad]
    if kills is not None:
        struck = ", ".join(f"{n} in {stage}" for stage, n in kills["stages"].items())
        text += [
            "",
            "## SIGKILL of the harness",
            "",
            f"At {kills['killed']} random moments of a run ({struck});",
            "then the next run must be whole, nothing be left on the phone, and no run be lost from the journal or",
            f"twice in it: {len(kills['wrong'])} things wrong.",
        ]
        text += [f"- {line[:400]}" for line in kills["wrong"]]
    if speed is not None:
        pushes, many = speed["pushes"], speed["many"]
        text += ["", "## Speed", "", "Of several tries the best; the phone and its storage are this host's.", ""]
        text += lines(pushes and Pushes(**pushes), many and Many(**many))
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


def run_all(options: argparse.Namespace, folder: Path) -> tuple[list[Path], Path, Path]:
    """Logs of the cases, of the kills and of the speeds; each is a program of its own."""
    python = [sys.executable, "-u"]
    speed, kills = folder / "bench-phones-speed.json", folder / "bench-phones-kills.json"
    speed.unlink(missing_ok=True)
    subprocess.run([*python, FOLDER / "phones_speed.py", "--log", speed], check=False)
    cases = [folder / f"bench-phones-{k + 1}.jsonl" for k in range(options.jobs)]
    shared = ["--cases", str(options.cases), "--random", str(options.random), "--seed", str(options.seed)]
    programs = [
        [*python, __file__, *shared, "--part", f"{k + 1}/{options.jobs}", "--log", log] for k, log in enumerate(cases)
    ]
    programs.append([*python, FOLDER / "phones_kills.py", "--kills", str(options.kills), "--log", kills])
    for stale in (*cases, kills):
        stale.unlink(missing_ok=True)
    running = [subprocess.Popen([str(word) for word in program]) for program in programs]
    for program in running:
        program.wait()
    return cases, kills, speed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=0, help="so many single faults (default 0: all)")
    parser.add_argument("--random", type=int, default=30, help="cases of two faults at once")
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs of the harness")
    parser.add_argument("--jobs", type=int, default=3, help="phones that share the cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help=f"write the page here, such as {DOCUMENT.name}")
    parser.add_argument("--part", type=_part, default=None, metavar="K/N", help="only every Nth case, from the Kth")
    parser.add_argument("--log", type=Path, default=Path("build/bench-phones.jsonl"), help="of --part")
    parser.add_argument("--tabulate", type=Path, nargs="+", metavar="LOG", help="run nothing; a page of these logs")
    parser.add_argument("--kills-log", type=Path, default=None, help="with --tabulate")
    parser.add_argument("--speed-log", type=Path, default=None, help="with --tabulate")
    options = parser.parse_args()
    if options.part is not None:
        options.log.parent.mkdir(exist_ok=True)
        cases = run(options.cases or None, options.random, options.seed, options.log, options.part)
        return 1 if any(line["wrong"] for line in cases) else 0
    began, minutes = time.monotonic(), None
    logs, kills_log, speed_log = options.tabulate, options.kills_log, options.speed_log
    if logs is None:
        folder = Path("build")
        folder.mkdir(exist_ok=True)
        logs, kills_log, speed_log = run_all(options, folder)
        minutes = (time.monotonic() - began) / 60
    lost = [str(log) for log in (*logs, kills_log, speed_log) if log is not None and not log.exists()]
    if lost:
        sys.stderr.write(f"a part of the benchmark broke off before it wrote {', '.join(lost)}\n")
        return 1
    cases = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    kills, speed = (None if log is None else json.loads(log.read_text()) for log in (kills_log, speed_log))
    text = table(cases, options.seed, minutes=minutes, kills=kills, speed=speed)
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    bad = any(line["wrong"] for line in cases) or (kills is not None and kills["wrong"]) or "does not hold" in text
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
