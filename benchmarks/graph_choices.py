"""What each form of a graph costs and loses, on the bundled model: the table of ``docs/graph-choices.md``.

``python benchmarks/graph_choices.py``: compiles every form for Snapdragon 8 Gen 3 (context 512, AR-64 and AR-1, kv8) in
each of three precisions and runs three prefill steps and four decode steps on the HTP emulator. Prints Markdown.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from harness.compiler.compile import compile_graph
from harness.compiler.execute import emulated_decoder
from harness.compiler.prepare import prepare
from harness.compiler.stages import Measured
from harness.model.perplexity import load_corpus
from harness.model.reference import load_reference
from harness.record.artifact import Artifact
from harness.record.comparison import Leg
from harness.soc import KvPrecision, Precision, find_soc

MODEL = Path(__file__).parents[1] / "models" / "tiny-llama"
SOC = find_soc("gen3")
FORMS: dict[str, dict[str, str]] = {
    "default": {},
    "`--rmsnorm basic`": {"rmsnorm": "basic"},
    "`--attention per-head`": {"attention": "per-head"},
    "`--linear conv`": {"linear": "conv"},
    "`--logits last`": {"logits": "last"},
    "`--embeddings host`": {"embeddings": "host"},
}
N_DECODE = 4
REPETITIONS = 3


def main() -> None:
    say("| precision | form | nodes AR-64, AR-1 | compile s | MiB | perplexity over fp32 | SNR dB: prefill, decode |")
    say("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        heldout = Path(scratch) / "heldout.txt"
        heldout.write_text((MODEL / "heldout.txt").read_text(encoding="utf-8")[:9000], encoding="utf-8")
        for precision in (Precision.FP16, Precision.W8A16, Precision.W4A16_B32):
            for name, form in FORMS.items():
                say(row(precision, name, form, heldout, Path(scratch) / f"{precision}-{name.strip('`')}"))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def row(precision: Precision, name: str, form: dict[str, Any], heldout: Path, out: Path) -> str:
    stages: list[Measured] = []
    artifact = prepare(
        MODEL,
        soc=SOC,
        precision=precision,
        kv=None if precision is Precision.FP16 else KvPrecision.KV8,
        heldout=heldout,
        out=out,
        measured=stages.extend,
        **form,
    )
    figures = {figure.graph: figure.perplexity for figure in artifact.manifest.quality}
    gap = 100 * (figures[str(artifact.manifest.recipe.kv)] / figures["fp32"] - 1)
    sizes = " / ".join(f"{context.n_bytes / 2**20:.2f}" for context in artifact.manifest.contexts)
    nodes = " / ".join(str(n_nodes(artifact, n)) for n in (64, 1))
    seconds = " / ".join(f"{compile_seconds(artifact, n, out):.2f}" for n in (64, 1))
    snr = emulated_snr(artifact)
    return f"| `{precision}` | {name} | {nodes} | {seconds} | {sizes} | {gap:+.2f} % | {snr} |"


def n_nodes(artifact: Artifact, n_tokens: int) -> int:
    """Operators that compute: no Q, no DQ."""
    graph = onnx.load(artifact.path(f"reference/graph_ar{n_tokens}.onnx"), load_external_data=False).graph
    return sum(node.op_type not in ("QuantizeLinear", "DequantizeLinear") for node in graph.node)


def compile_seconds(artifact: Artifact, n_tokens: int, scratch: Path) -> float:
    """The shortest of some compiles, process start included."""
    _, spec = artifact.manifest.graph(n_tokens)
    times = []
    for _ in range(REPETITIONS):
        start = time.monotonic()
        compile_graph(
            artifact.path(f"reference/graph_ar{n_tokens}.onnx"),
            soc=SOC,
            fp16=artifact.manifest.recipe.precision is Precision.FP16,
            n_tokens=n_tokens,
            inputs=spec.inputs,
            outputs=spec.outputs,
            binary=scratch / "again.bin",
        )
        times.append(time.monotonic() - start)
    return min(times)


def emulated_snr(artifact: Artifact) -> str:
    """Of the logits against fp32 on the CPU."""
    manifest = artifact.manifest
    corpus = load_corpus(
        MODEL / "heldout.txt",
        artifact.path("tokenizer.json"),
        manifest.model,
        context_length=manifest.recipe.context_length,
    )
    tokens = corpus.windows[0]
    decoders = (load_reference(artifact, Leg.FP32), emulated_decoder(artifact))
    rows: list[list[NDArray[np.float64]]] = []
    for decoder in decoders:
        prefill = decoder.real(decoder.extend(tokens[:192]))
        decode = decoder.real(decoder.extend(tokens[192 : 192 + N_DECODE], step_with="token"))
        rows.append([prefill.astype(np.float64), decode.astype(np.float64)])
    snr = []
    for expected, found in zip(*rows, strict=True):
        if len(found) < len(expected):  # the last row of each chunk only
            expected = expected[63::64]
        snr.append(10 * np.log10(np.square(expected).sum() / np.square(expected - found).sum()))
    return " / ".join(f"{value:.1f}" for value in snr)


if __name__ == "__main__":
    main()
