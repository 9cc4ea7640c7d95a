"""SIGKILL of the harness at random moments of a run: the next run must be whole, and nothing lost or stuck.

Part of ``make bench-phones``; alone: ``python benchmarks/phones_kills.py --kills 100``.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from phones_faults import Matrix
from phones_standin import make_model

from harness.device.store import ROOT
from harness.journal import read_journal
from harness.virtual.lab import PhoneSpec, VirtualLab

_VICTIM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from types import SimpleNamespace
from phones_faults import Case, Matrix
from phones_standin import make_model
folder = Path(sys.argv[2])
(folder / "model").mkdir(parents=True, exist_ok=True)
phone = SimpleNamespace(transport=sys.argv[4], serial=sys.argv[5])
lab = SimpleNamespace(adb_host="127.0.0.1", adb_port=int(sys.argv[3]), phones=(phone,))
matrix = Matrix(lab, folder, make_model(folder / "model"), Path(sys.argv[6]), seed=0, number=int(sys.argv[7]))
print("begin", flush=True)
matrix._run(Case(number=0, faults=(), stage="none"), lambda _: None)
"""


def kill_at_random_moments(n_kills: int, seed: int) -> list[str]:
    """What went wrong, a line each."""
    rng = random.Random(seed)  # noqa: S311
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-kills-") as name:
        folder = Path(name)
        (folder / "model").mkdir()
        model = make_model(folder / "model")
        with VirtualLab.start(folder / "lab", [PhoneSpec(marker="gen3")]) as lab:
            matrix = Matrix(lab, folder / "lab", model, folder, seed=seed)
            whole = 1
            for number in range(n_kills):
                finished = _kill_one(lab, folder, number, rng.uniform(0, 4.0))
                whole += 1
                record, refusal = matrix._run(None, lambda _: None)
                if record is None or record.error is not None or matrix._essence(record) != matrix._reference:
                    wrong.append(f"kill {number}: the next run is not whole: {refusal or (record and record.error)}")
                left = matrix.device.script('ls "$1/runs"; ls "$1/changed" 2>/dev/null', ROOT, what="look").text.strip()
                if left:
                    wrong.append(f"kill {number}: left on the phone: {left!r}")
                journal = read_journal(folder / "out/journal")
                ids = [run.run_id for run in journal.runs]
                if len(set(ids)) != len(ids) or len(ids) < whole + finished:
                    wrong.append(
                        f"kill {number}: {len(ids)} runs in the journal, at least {whole + finished} were made"
                    )
                whole = len(ids)
                sys.stdout.write(f"{number + 1}/{n_kills} {'ran to its end' if finished else 'killed'}\n")
                sys.stdout.flush()
    return wrong


def _kill_one(lab: VirtualLab, folder: Path, number: int, after_s: float) -> bool:
    """Whether the victim had ended by itself before it was to be killed."""
    phone = lab.phones[0]
    arguments = [str(Path(__file__).parent), str(folder / "victim"), str(lab.adb_port), phone.transport, phone.serial]
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, *arguments, str(folder), str(10_000 + number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if victim.stdout is not None:
        victim.stdout.readline()
    time.sleep(after_s)
    finished = victim.poll() is not None
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    return finished and victim.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = kill_at_random_moments(options.kills, options.seed)
    sys.stdout.write("".join(f"{line}\n" for line in wrong) + f"{options.kills} kills, {len(wrong)} things wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
