"""Pushes beside plain ``adb push``, and eight phones at once. Part of ``make bench-phones``; alone: run this file.

The bytes on the wire are those that the kernel counts on the adb server's connection to the phone, both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from phones_standin import make_model

from harness.device.adb import Adb, AdbDevice
from harness.device.store import ROOT, PhoneStore, PushReport, StoredFile
from harness.errors import HostError
from harness.pool.local import discover
from harness.virtual.adb_server import find_adb
from harness.virtual.lab import PhoneSpec, VirtualLab

_PIECE: Final = 16 * 1024 * 1024
_N_SPANS: Final = 10
_LINK_BYTES_PER_S: Final = 40e6
_N_PHONES: Final = 8
_PHONE_TEST: Final = """
import os, sys, time
sys.path.insert(0, os.environ["BENCH_FOLDER"])
from pathlib import Path
import pytest
from phones_matrix import WORKLOAD
from phones_standin import make_model
from dataclasses import replace
from harness.journal import JournalWriter
from harness.pool.local import acquire, discover
from harness.run.execute import execute

PORT = int(os.environ["BENCH_PORT"])

@pytest.mark.parametrize("serial", os.environ["BENCH_SERIALS"].split(","))
def test_one(serial, tmp_path):
    found = {info.facts.serial: info.facts for info in discover("127.0.0.1", PORT) if info.facts is not None}
    facts = found[serial]
    with acquire(facts, holder=serial, adb_port=PORT, state_dir=Path(os.environ["BENCH_STATE"])) as phone:
        if os.environ["BENCH_SLEEP"]:
            time.sleep(float(os.environ["BENCH_SLEEP"]))
            return
        model = make_model(tmp_path)
        workload = replace(WORKLOAD, deadline_s=120, stall_s=60)
        journal = JournalWriter(tmp_path / "out/journal/one.jsonl")
        record = execute(phone, model.artifact, workload, session_id="s1", journal=journal,
                         results_dir=tmp_path / "out", runtime=model.runtime())
        assert record.error is None, record.error
        assert record.device.serial == serial
        assert len(record.log.generations[0].token_ids) == 4
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushes:
    """Seconds; of several tries the least. ``wire``: bytes both ways."""

    n_bytes: int
    plain_s: float
    transfer_s: float
    verify_s: float
    again_s: float
    changed_bytes: int
    changed_wire: int
    changed_s: float
    slow_first_s: float
    slow_changed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """Walls are of whole pytest sessions."""

    n_phones: int
    discover_s: float
    measured_s: float
    sleep_s: float
    one_wall_s: float
    all_wall_s: float


def measure_pushes(n_bytes: int, tries: int, seed: int) -> Pushes:
    with tempfile.TemporaryDirectory(prefix="bench-push-") as name:
        folder = Path(name)
        first = _make(folder / "model.bin", n_bytes, seed)
        second, changed = _change(first, folder / "next.bin", seed)
        with VirtualLab.start(folder / "lab", [PhoneSpec(marker="gen3")]) as lab:
            device = Adb(lab.adb_host, lab.adb_port).device(lab.phones[0].transport)
            plain, ours = [], []
            for _ in range(tries):
                plain.append(_plain_push(lab, first.local))
                device.run(["rm", "-rf", "/data/local/tmp/plain.bin", ROOT], timeout_s=60)
                ours.append(_push(device, first))
            best = min(ours, key=lambda report: report.files[0].transfer_s).files[0]
            again = min(_push(device, first).seconds for _ in range(5))
            before = _wire_bytes(lab.phones[0].transport)
            update = _push(device, second)
            wire = _wire_bytes(lab.phones[0].transport) - before
            device.run(["rm", "-rf", ROOT], timeout_s=60)
            lab.phones[0].slow_down(_LINK_BYTES_PER_S)
            slow_first = _push(device, first)
            slow_changed = _push(device, second)
    return Pushes(
        n_bytes=n_bytes,
        plain_s=min(plain),
        transfer_s=best.transfer_s,
        verify_s=best.verify_s,
        again_s=again,
        changed_bytes=changed,
        changed_wire=wire,
        changed_s=update.seconds,
        slow_first_s=slow_first.seconds,
        slow_changed_s=slow_changed.seconds,
    )


def _make(path: Path, n_bytes: int, seed: int) -> StoredFile:
    rng = random.Random(seed)  # noqa: S311
    with path.open("wb") as file:
        for start in range(0, n_bytes, _PIECE):
            file.write(rng.randbytes(min(_PIECE, n_bytes - start)))
    return StoredFile.of(path, "model.bin")


def _change(first: StoredFile, path: Path, seed: int) -> tuple[StoredFile, int]:
    """A copy in which 1 % of the bytes, in spans at random places, is another; and how many that are."""
    rng = random.Random(seed + 1)  # noqa: S311
    length = first.n_bytes // 100 // _N_SPANS
    path.write_bytes(first.local.read_bytes())
    with path.open("r+b") as file:
        for place in range(_N_SPANS):
            room = first.n_bytes // _N_SPANS
            file.seek(place * room + rng.randrange(room - length))
            file.write(rng.randbytes(length))
    return StoredFile.of(path, "model.bin"), length * _N_SPANS


def _plain_push(lab: VirtualLab, local: Path) -> float:
    command = [str(find_adb()), "-P", str(lab.adb_port), "-s", lab.phones[0].transport, "push", str(local)]
    began = time.monotonic()
    subprocess.run([*command, "/data/local/tmp/plain.bin"], check=True, capture_output=True)
    return time.monotonic() - began


def _push(device: AdbDevice, file: StoredFile) -> PushReport:
    """By a store that remembers nothing, as the next run of the harness has it."""
    store = PhoneStore(device)
    store.prepare()
    return store.ensure([file], progress=lambda _: None)


def _wire_bytes(transport: str) -> int:
    port = transport.rpartition(":")[2]
    program = shutil.which("ss", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise HostError("bytes on the wire cannot be counted", found="no ss", next_step="install iproute2")
    listed = subprocess.run(
        [program, "-tinH", "state", "established", f"( dport = :{port} )"], check=True, capture_output=True, text=True
    ).stdout
    counted = [int(n) for n in re.findall(r"bytes_(?:sent|received):(\d+)", listed)]
    if len(counted) != 2:
        raise HostError("the connection to the phone is not counted", found=listed, expected="one connection in `ss`")
    return sum(counted)


def measure_many(sleep_s: float) -> Many:
    with tempfile.TemporaryDirectory(prefix="bench-many-") as name:
        folder = Path(name)
        make_model(folder)
        test = folder / "test_phones.py"
        test.write_text(_PHONE_TEST)
        with VirtualLab.start(folder / "lab", [PhoneSpec(marker="gen3")] * _N_PHONES) as lab:
            took = []
            for _ in range(5):
                began = time.monotonic()
                found = discover(lab.adb_host, lab.adb_port)
                took.append(time.monotonic() - began)
            serials = [info.facts.serial for info in found if info.usable and info.facts is not None]
            if len(serials) != _N_PHONES:
                raise HostError("not every phone is usable", found=f"{len(serials)}", expected=f"{_N_PHONES}")
            measured = _session(test, lab, serials, sleep="")
            one = _session(test, lab, serials[:1], sleep=str(sleep_s))
            everyone = _session(test, lab, serials, sleep=str(sleep_s))
    return Many(
        n_phones=len(serials),
        discover_s=min(took),
        measured_s=measured,
        sleep_s=sleep_s,
        one_wall_s=one,
        all_wall_s=everyone,
    )


def _session(test: Path, lab: VirtualLab, serials: Sequence[str], *, sleep: str) -> float:
    """Wall time of a pytest session with a worker a phone, all of whose tests must pass."""
    settings = {
        "BENCH_FOLDER": str(Path(__file__).parent),
        "BENCH_PORT": str(lab.adb_port),
        "BENCH_SERIALS": ",".join(serials),
        "BENCH_STATE": str(test.parent / "state"),
        "BENCH_SLEEP": sleep,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(len(serials)), "-c", "/dev/null", str(test)]
    began = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    if done.returncode != 0 or f"{len(serials)} passed" not in done.stdout:
        raise HostError("the phones were not all measured", found=done.stdout[-2000:])
    return time.monotonic() - began


def lines(pushes: Pushes | None, many: Many | None) -> list[str]:
    """A table of what is measured, what it has to be, and whether it is."""
    text = ["| | measured | bound | |", "|---|---|---|---|"]

    def add(what: str, measured: str, bound: str, ok: bool) -> None:
        text.append(f"| {what} | {measured} | {bound} | {'holds' if ok else '**does not hold**'} |")

    if pushes is not None:
        p = pushes
        size = f"{p.n_bytes / 2**30:g} GiB"
        rate = p.plain_s / p.transfer_s
        add(
            f"first push of {size} beside plain `adb push`",
            f"{rate:.2f}× ({p.transfer_s:.2f} s; plain {p.plain_s:.2f} s; verified in {p.verify_s:.2f} s more)",
            "0.9×",
            rate >= 0.9,
        )
        add("the same again", f"{1000 * p.again_s:.0f} ms", "100 ms", p.again_s < 0.1)
        bound = 0.015 * p.n_bytes + 65536
        add(
            f"{100 * p.changed_bytes / p.n_bytes:.2g} % changed, on the wire, both ways",
            f"{p.changed_wire / 1e6:.2f} MB",
            f"{bound / 1e6:.2f} MB",
            p.changed_wire <= bound,
        )
        share = p.slow_changed_s / p.slow_first_s
        add(
            "its time on a link of 40 MB/s, all included",
            f"{100 * share:.0f} % of the first push's ({p.slow_changed_s:.1f} s of {p.slow_first_s:.1f} s)",
            "20 %",
            share <= 0.2,
        )
    if many is not None:
        m = many
        add(f"{m.n_phones} phones discovered", f"{m.discover_s:.2f} s", "3 s", m.discover_s < 3)
        add(f"{m.n_phones} phones leased, each with a run, under xdist", f"{m.measured_s:.0f} s", "all whole", True)
        ratio = m.all_wall_s / m.one_wall_s
        add(
            f"the runs replaced by a sleep of {m.sleep_s:g} s: wall time",
            f"{ratio:.2f}× one phone's ({m.all_wall_s:.1f} s, {m.one_wall_s:.1f} s)",
            "1.3×",
            ratio <= 1.3,
        )
    return text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024, help="size of the pushed file (default 1024)")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--sleep", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("pushes", "many"), default=None)
    parser.add_argument("--log", type=Path, default=Path("build/bench-phones-speed.json"))
    options = parser.parse_args()
    pushes = None if options.only == "many" else measure_pushes(options.mib << 20, options.tries, options.seed)
    many = None if options.only == "pushes" else measure_many(options.sleep)
    measured = {"pushes": pushes and asdict(pushes), "many": many and asdict(many)}
    options.log.parent.mkdir(exist_ok=True)
    options.log.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(lines(pushes, many))
    sys.stdout.write(text + "\n")
    return 1 if "does not hold" in text else 0


if __name__ == "__main__":
    sys.exit(main())
