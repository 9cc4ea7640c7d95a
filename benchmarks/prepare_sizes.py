"""What preparing a model takes, over its size: seconds and peak memory of each stage. Writes docs/prepare-sizes.md.

    python benchmarks/prepare_sizes.py 0.1B 0.5B
    python benchmarks/prepare_sizes.py 7B --build by-layer --contexts shared
    python benchmarks/prepare_sizes.py 7B --build by-layer --layers 3 --weights gptq --precision w4a16-b32

Checkpoints of LLaMA's shape with random weights (tools/random_checkpoint.py), w8a16 and w4a16-b32 by rounding to
nearest, context 2048, AR-128, compiled for Snapdragon 8 Gen 3. No held-out text: perplexity of random weights says
nothing.
Sizes measured before are kept (docs/prepare-sizes.json).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from random_checkpoint import SHAPES, write_checkpoint  # noqa: E402

DATA: Final = ROOT / "docs" / "prepare-sizes.json"
PAGE: Final = ROOT / "docs" / "prepare-sizes.md"
PRECISIONS: Final = ("w8a16", "w4a16-b32")
GROUPS: Final = {
    "float graphs": ("float32 graphs",),
    "calibration": ("calibration ranges", "layer "),
    "quantise": ("quantised ",),
    "compile": ("compile ", "check ", "shared check"),
}
CALIBRATION_CHARACTERS: Final = 4000
"""About one context of 2048 tokens: ranges of random weights need no more."""


def measure(size: str, scratch: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    checkpoint, out, text = scratch / f"llama-{size}", scratch / "out", scratch / "calibration.txt"
    shape = SHAPES[size] if arguments.layers is None else replace(SHAPES[size], n_layers=arguments.layers)
    write_checkpoint(shape, checkpoint)
    source = ROOT / "models" / "real-model" / "calibration.txt"
    text.write_text(source.read_text(encoding="utf-8")[:CALIBRATION_CHARACTERS], encoding="utf-8")
    found: dict[str, Any] = {
        "n_parameters": shape.n_parameters,
        "checkpoint_bytes": _bytes_of(checkpoint),
        "load_before": os.getloadavg()[0],
    }
    for precision in arguments.precision or PRECISIONS:
        file = scratch / "measured.json"
        command = [sys.executable, "-m", "harness.cli.main", "prepare", str(checkpoint), "--soc", "gen3"]
        command += ["--precision", precision, "--kv", "kv8", "--context", "2048", "--prefill", "128"]
        command += ["--build", arguments.build, "--contexts", arguments.contexts, "--weights", arguments.weights]
        command += ["--calibration", str(text), "--out", str(out), "--measurements", str(file)]
        if arguments.shards is not None:
            command += ["--shards", str(arguments.shards)]
        start, most, together, loads = time.monotonic(), 0, 0, list[float]()
        process = subprocess.Popen(command, cwd=ROOT)
        while process.poll() is None:
            most, together = max(most, _bytes_of(out)), max(together, _resident_bytes(process.pid))
            loads.append(os.getloadavg()[0])
            time.sleep(1.0)
        if process.returncode != 0:
            raise SystemExit(f"preparing {size} in {precision} ended with {process.returncode}")
        stages = json.loads(file.read_text(encoding="utf-8"))["stages"]
        found[precision] = {
            "seconds": time.monotonic() - start,
            "disk_bytes": _bytes_of(out),
            "most_disk_bytes": most,
            "peak_rss_bytes_together": together,
            "load": sum(loads) / len(loads),
            "stages": stages,
        }
    return found


def _resident_bytes(pid: int) -> int:
    """Of a process and all it started, now; pages that several share are counted for each."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total


def _bytes_of(folder: Path) -> int:
    """Of distinct files: an artifact and the stages it was made from share theirs. Files may go meanwhile."""
    files: dict[int, int] = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                files[status.st_ino] = status.st_size
    return sum(files.values())


def page(data: dict[str, Any]) -> str:
    lines = [
        "# Time and memory of preparing a model, over its size",
        "",
        "Written by `make bench-prepare`: LLaMA shapes with random weights, context 2048, AR-128 and AR-1, rounding to",
        "nearest where GPTQ is not named, compiled for Snapdragon 8 Gen 3 on 2 cores. Seconds of each stage;",
        "`w4a16-b32` comes second and takes the float graphs or ranges of `w8a16` as they are. Peak memory is the",
        "largest of any process, mapped files included, and together that of all processes at one moment; disk that of",
        "the output folder, at its fullest and at the end (of both precisions). Load: of the minute before; above 0,",
        "other work shared the cores and times are too long. While 1B was prepared by layer it was 3 to 4 (`w8a16`)",
        "and rose from 4 to 19 (`w4a16-b32`), with shared weights at 0.1B from 4 to 15.",
        "",
        "`whole` keeps the float and the quantised graphs, for the reference of the suites. `by-layer`, the default",
        "from 2 billion parameters on, keeps one layer's floats and one shard's graphs at a time. It builds a layer's",
        "float graph where it calibrates it. With shared weights the next shard is quantised while the compiler works",
        "on the one before, so stages add up to more than `all s`.",
        "",
        f"| size | build | precision | {' | '.join(f'{group} s' for group in GROUPS)} | all s | peak GiB | together "
        "| fullest GB | at the end GB | load |",
        f"|---|---|---|{'---|' * len(GROUPS)}---|---|---|---|---|---|",
    ]
    rows = [(size, name) for size in SHAPES for name in data if name.split(",")[0] == size]
    for size, key in rows:
        for precision in (each for each in PRECISIONS if each in data[key]):
            found, of_size = data[key][precision], data[key]
            stages = [stage for stage in found["stages"] if not stage["resumed"]]
            cells = []
            for group, names in GROUPS.items():
                if group == "float graphs" and "by-layer" in key:
                    cells.append("")
                    continue
                times = [stage["seconds"] for stage in stages if stage["stage"].startswith(names)]
                cells.append(f"{sum(times):.1f}" if times else "kept")
            peak = max(stage["peak_rss_bytes"] or 0 for stage in stages) / 2**30
            most = found.get("most_disk_bytes")
            together = found.get("peak_rss_bytes_together")
            cells += [f"{found['seconds']:.0f}", f"{peak:.2f}", "" if together is None else f"{together / 2**30:.2f}"]
            cells.append("" if most is None else f"{most / 1e9:.1f}")
            cells += [f"{found['disk_bytes'] / 1e9:.1f}", f"{found.get('load', of_size['load_before']):.1f}"]
            name, build = f"{size} ({of_size['n_parameters'] / 1e9:.2f} B)", key.partition(",")[2].strip() or "whole"
            lines.append(f"| {name} | {build} | `{precision}` | {' | '.join(cells)} |")
    for size, key in rows:
        lines += _of_gptq(size, data[key]) if "gptq" in key else []
    missing = [size for size in SHAPES if size not in {size for size, _ in rows}]
    if missing:
        lines += ["", f"Not measured: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _of_gptq(size: str, found: dict[str, Any]) -> list[str]:
    """What GPTQ takes of a whole model, by the layers that were timed."""
    lines: list[str] = []
    for precision in (each for each in PRECISIONS if each in found):
        stages = [stage for stage in found[precision]["stages"] if stage["stage"].endswith(" gptq")]
        of_layer = sum(stage["seconds"] for stage in stages) / len(stages)
        n_layers = SHAPES[size].n_layers
        minutes = of_layer * n_layers / 60
        lines += [
            "",
            f"GPTQ over {CALIBRATION_CHARACTERS} characters, `{precision}`: {of_layer:.0f} s a layer of {size}, the",
            f"mean of {len(stages)} layers that were timed. Extrapolated, not run: {minutes:.0f} minutes",
            f"for all {n_layers}, beside what rounding to nearest takes.",
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", choices=[*SHAPES, []], help="default: 0.1B 0.5B")
    parser.add_argument("--build", choices=["whole", "by-layer"], default="whole")
    parser.add_argument("--contexts", choices=["separate", "shared"], default="separate")
    parser.add_argument("--precision", choices=PRECISIONS, action="append", help="default: both")
    parser.add_argument("--shards", type=int, help="default: as few as the HTP's limits allow")
    parser.add_argument("--weights", choices=["rtn", "gptq"], default="rtn")
    parser.add_argument("--layers", type=int, metavar="N", help="the first N layers of that shape only")
    parser.add_argument("--scratch", type=Path, help="where checkpoints and artifacts go for a while")
    arguments = parser.parse_args()
    for size in arguments.sizes or ["0.1B", "0.5B"]:
        scratch = Path(tempfile.mkdtemp(prefix="snapgate-sizes-", dir=arguments.scratch))
        try:
            found = measure(size, scratch, arguments)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8")) if DATA.is_file() else {}
        chosen = [] if arguments.build == "whole" else [arguments.build]
        chosen += [] if arguments.contexts == "separate" else [f"{arguments.contexts} weights"]
        chosen += [] if arguments.shards is None else [f"{arguments.shards} shards"]
        chosen += [] if arguments.layers is None else [f"{arguments.layers} layers"]
        chosen += [] if arguments.weights == "rtn" else [arguments.weights]
        data[", ".join([size, *chosen])] = found
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(data), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
