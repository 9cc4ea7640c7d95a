"""SIGKILL of the harness at random moments of a run: the next run must be whole, and nothing lost or stuck.

Part of ``make bench-phones``; alone: ``python benchmarks/phones_kills.py --kills 100``.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from phones_faults import STAGES
from phones_matrix import Matrix
from phones_standin import make_model

from harness.journal import read_journal
from harness.virtual.lab import PhoneSpec, VirtualLab

_VICTIM: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from types import SimpleNamespace
from phones_faults import Case
from phones_matrix import Matrix
from phones_standin import make_model
folder = Path(sys.argv[2])
(folder / "model").mkdir(parents=True, exist_ok=True)
phone = SimpleNamespace(transport=sys.argv[4], serial=sys.argv[5])
lab = SimpleNamespace(adb_host="127.0.0.1", adb_port=int(sys.argv[3]), phones=(phone,))
model = make_model(folder / "model")
matrix = Matrix(lab, Path(sys.argv[7]), model, Path(sys.argv[6]), seed=0, number=int(sys.argv[8]))
matrix.run(Case(number=0, faults=(), stage="decode"), lambda stage: print(stage, flush=True))
"""
_LONGEST_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """``stages``: how many struck after each stage had begun. ``wrong``: what went wrong, a line each."""

    killed: int
    stages: dict[str, int]
    wrong: tuple[str, ...]
    seconds: float


class _Victim:
    """A process that makes one run, slowly, and says which stage it has reached."""

    def __init__(self, lab: VirtualLab, folder: Path, number: int) -> None:
        phone = lab.phones[0]
        victim = folder / "victim"
        arguments = [Path(__file__).parent, victim, lab.adb_port, phone.transport, phone.serial, folder, folder / "lab"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _VICTIM, *map(str, arguments), str(10_000 + number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        first = self._process.stdout.readline() if self._process.stdout is not None else ""
        if first.strip() != STAGES[0]:
            raise RuntimeError(f"a run did not begin: {first!r}")
        self._began = time.monotonic()

    def whole(self) -> float:
        """Seconds that it takes."""
        self._process.communicate(timeout=_LONGEST_S)
        if self._process.returncode != 0:
            raise RuntimeError("a run that nobody kills does not end")
        return time.monotonic() - self._began

    def kill(self, after_s: float) -> str | None:
        """The stage that it was in; None: it had ended."""
        time.sleep(max(0.0, self._began + after_s - time.monotonic()))
        ended = self._process.poll() is not None
        self._process.send_signal(signal.SIGKILL)
        said = [STAGES[0], *self._process.communicate()[0].split()]
        return None if ended else said[-1]


def kill_at_random_moments(n_kills: int, seed: int) -> Kills:
    """Kills until ``n_kills`` have found a run at work; a run that ended before its kill is one more whole one."""
    rng = random.Random(seed)  # noqa: S311
    wrong: list[str] = []
    stages: Counter[str] = Counter()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-kills-") as name:
        folder = Path(name)
        (folder / "model").mkdir()
        model = make_model(folder / "model")
        with VirtualLab.start(folder / "lab", [PhoneSpec(marker="gen3")]) as lab:
            matrix = Matrix(lab, folder / "lab", model, folder, seed=seed)
            run_s = _Victim(lab, folder, 0).whole()
            whole, number = 2, 0
            while stages.total() < n_kills:
                number += 1
                stage = _Victim(lab, folder, number).kill(rng.uniform(0, run_s))
                if stage is not None:
                    stages[stage] += 1
                record, refusal = matrix.run(None, lambda _: None)
                if record is None or record.error is not None or matrix.essence(record) != matrix.reference:
                    wrong.append(
                        f"{number}, {stage}: the next run is not whole: {refusal or (record and record.error)}"
                    )
                if left := matrix.left_on_phone():
                    wrong.append(f"{number}, {stage}: left on the phone: {left!r}")
                whole += 1 + (stage is None)
                ids = [run.run_id for run in read_journal(folder / "out/journal").runs]
                if len(set(ids)) != len(ids) or len(ids) < whole:
                    wrong.append(f"{number}, {stage}: {len(ids)} runs in the journal, at least {whole} were made")
                whole = len(ids)
                sys.stdout.write(f"{stages.total()}/{n_kills} {stage or 'ended before'}\n")
                sys.stdout.flush()
    return Kills(
        killed=stages.total(),
        stages={stage: stages[stage] for stage in STAGES},
        wrong=tuple(wrong),
        seconds=time.monotonic() - started,
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("build/bench-phones-kills.json"))
    options = parser.parse_args()
    kills = kill_at_random_moments(options.kills, options.seed)
    options.log.parent.mkdir(exist_ok=True)
    options.log.write_text(json.dumps(asdict(kills), indent=1) + "\n", encoding="utf-8")
    struck = ", ".join(f"{n} in {stage}" for stage, n in kills.stages.items())
    sys.stdout.write("".join(f"{line}\n" for line in kills.wrong))
    sys.stdout.write(f"{kills.killed} kills ({struck}), {len(kills.wrong)} things wrong, {kills.seconds:.0f} s\n")
    return 1 if kills.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
