"""What preparing a model takes, over its size: seconds and peak memory of each stage. Writes docs/prepare-sizes.md.

    python benchmarks/prepare_sizes.py 0.1B 0.5B

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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from random_checkpoint import SHAPES, write_checkpoint  # noqa: E402

DATA: Final = ROOT / "docs" / "prepare-sizes.json"
PAGE: Final = ROOT / "docs" / "prepare-sizes.md"
PRECISIONS: Final = ("w8a16", "w4a16-b32")
GROUPS: Final = {
    "float graphs": ("float32 graphs",),
    "calibration": ("calibration ranges",),
    "quantise": ("quantised graphs",),
    "compile": ("compile ",),
}
CALIBRATION_CHARACTERS: Final = 4000
"""About one context of 2048 tokens: ranges of random weights need no more."""


def measure(size: str, scratch: Path) -> dict[str, Any]:
    checkpoint, out, text = scratch / f"llama-{size}", scratch / "out", scratch / "calibration.txt"
    write_checkpoint(SHAPES[size], checkpoint)
    source = ROOT / "models" / "real-model" / "calibration.txt"
    text.write_text(source.read_text(encoding="utf-8")[:CALIBRATION_CHARACTERS], encoding="utf-8")
    found: dict[str, Any] = {
        "n_parameters": SHAPES[size].n_parameters,
        "checkpoint_bytes": _bytes_of(checkpoint),
        "load_before": os.getloadavg()[0],
    }
    for precision in PRECISIONS:
        file = scratch / "measured.json"
        command = [sys.executable, "-m", "harness.cli.main", "prepare", str(checkpoint), "--soc", "gen3"]
        command += ["--precision", precision, "--kv", "kv8", "--context", "2048", "--prefill", "128"]
        command += ["--calibration", str(text), "--out", str(out), "--measurements", str(file)]
        start = time.monotonic()
        subprocess.run(command, cwd=ROOT, check=True)
        seconds = time.monotonic() - start
        stages = json.loads(file.read_text(encoding="utf-8"))["stages"]
        found[precision] = {"seconds": seconds, "disk_bytes": _bytes_of(out), "stages": stages}
    return found


def _bytes_of(folder: Path) -> int:
    """Of distinct files: an artifact and the stages it was made from share theirs."""
    files = {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return sum(files.values())


def page(data: dict[str, Any]) -> str:
    lines = [
        "# Time and memory of preparing a model, over its size",
        "",
        "Written by `make bench-prepare`: LLaMA shapes with random weights, context 2048, AR-128 and AR-1, rounding to",
        "nearest, compiled for Snapdragon 8 Gen 3 on 2 cores. Seconds of each stage; `w4a16-b32` comes second and",
        "takes the float graphs and ranges of `w8a16` as they are. Peak memory is the largest of any process, mapped",
        "files included. Load: of the minute before; above 0, other work shared the cores and times are too long.",
        "",
        f"| size | precision | {' | '.join(f'{group} s' for group in GROUPS)} | all s | peak GiB | disk GB | load |",
        f"|---|---|{'---|' * len(GROUPS)}---|---|---|---|",
    ]
    for size in SHAPES:
        for precision in PRECISIONS if size in data else ():
            found = data[size][precision]
            stages = [stage for stage in found["stages"] if not stage["resumed"]]
            cells = []
            for names in GROUPS.values():
                times = [stage["seconds"] for stage in stages if stage["stage"].startswith(names)]
                cells.append(f"{sum(times):.1f}" if times else "kept")
            peak = max(stage["peak_rss_bytes"] or 0 for stage in stages) / 2**30
            cells += [f"{found['seconds']:.0f}", f"{peak:.2f}", f"{found['disk_bytes'] / 1e9:.1f}"]
            of_size = data[size]
            name = f"{size} ({of_size['n_parameters'] / 1e9:.2f} B)"
            lines.append(f"| {name} | `{precision}` | {' | '.join(cells)} | {of_size['load_before']:.1f} |")
    missing = [size for size in SHAPES if size not in data]
    if missing:
        lines += ["", f"Not measured: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", choices=[*SHAPES, []], help="default: 0.1B 0.5B")
    parser.add_argument("--scratch", type=Path, help="where checkpoints and artifacts go for a while")
    arguments = parser.parse_args()
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8")) if DATA.is_file() else {}
    for size in arguments.sizes or ["0.1B", "0.5B"]:
        scratch = Path(tempfile.mkdtemp(prefix="snapgate-sizes-", dir=arguments.scratch))
        try:
            data[size] = measure(size, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(data), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
