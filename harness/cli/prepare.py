"""``snapgate prepare``: checkpoint to artifact."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.command import Subcommands, printer
from harness.compiler.stages import Measured
from harness.errors import UserError
from harness.measure.footprint import PHONE_RAM_GB, footprint
from harness.measure.statistics import perplexity_ratio_interval
from harness.model.hub import locate
from harness.record.artifact import ArtifactManifest
from harness.record.codec import to_json, write_json
from harness.runtime.required import sdk_root
from harness.soc import HTP_CONTEXT_BYTES, HTP_SESSION_BYTES, KvPrecision, Precision, find_soc


def add_command(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "prepare",
        description="Reads a checkpoint, builds static ONNX graphs, calibrates and quantises them, compiles context "
        "binaries for one SoC and writes an artifact folder with a manifest.",
    )
    parser.add_argument(
        "checkpoint", help="folder in Hugging Face format, GGUF file, or hub name: owner/name, owner/name/FILE.gguf"
    )
    parser.add_argument("--soc", required=True, help="marker or part: gen3, SM8650, ...")
    parser.add_argument("--precision", choices=[str(p) for p in Precision], default=str(Precision.W8A16))
    parser.add_argument(
        "--kv",
        choices=[str(kv) for kv in KvPrecision],
        help="precision of keys and values (default: kvfp16 with fp16; else kv8 if it costs under 0.1 %% perplexity "
        "against kv16 on the held-out text, measured)",
    )
    parser.add_argument(
        "--context",
        type=_sizes,
        default=(512,),
        metavar="CL[,CL]",
        help="context length (default: 512); of several, each artifact goes to a folder clCL of its own below --out",
    )
    parser.add_argument(
        "--prefill",
        type=_sizes,
        default=(64,),
        metavar="N[,N]",
        help="tokens per prefill step (default: 64); of several, each gets a graph",
    )
    parser.add_argument(
        "--rmsnorm",
        choices=["operator", "basic"],
        default="operator",
        help="RMSNorm as one operator (most precise) or in basic operators (default: operator)",
    )
    parser.add_argument(
        "--attention",
        choices=["multi-head", "per-head"],
        default="multi-head",
        help="all heads in one MatMul and Softmax, or each on its own (default: multi-head)",
    )
    parser.add_argument(
        "--linear",
        choices=["matmul", "conv"],
        default="matmul",
        help="linear layers as MatMul, or as Conv with a 1x1 kernel (default: matmul)",
    )
    parser.add_argument(
        "--logits",
        choices=["all", "last"],
        default="all",
        help="logits of every token of a prefill step, or of the last one; SnapGate's runner needs all (default: all)",
    )
    parser.add_argument(
        "--embeddings",
        choices=["graph", "host"],
        default="graph",
        help="look token ids up in the graph, or take input_embeds, rows of embeddings.bin; SnapGate's runner needs "
        "graph (default: graph)",
    )
    parser.add_argument(
        "--contexts",
        choices=["separate", "one", "shared"],
        default="separate",
        help="a context binary for each AR-N graph, one for all, or one for all with one set of weights, which only a "
        "phone loads (default: separate)",
    )
    parser.add_argument(
        "--compiler",
        choices=["onnxruntime-qnn", "qairt"],
        default="onnxruntime-qnn",
        help="what compiles the graphs; qairt: qairt-converter and qnn-context-binary-generator of the SDK that "
        "QNN_SDK_ROOT or QAIRT_SDK_ROOT names (default: onnxruntime-qnn)",
    )
    parser.add_argument(
        "--refused",
        choices=["error", "cpu"],
        default="error",
        help="what becomes of operators the HTP does not take; cpu: graphs are cut around them, and those pieces run "
        "on the CPU, which SnapGate's runner does not do (default: error)",
    )
    parser.add_argument(
        "--weights",
        choices=["rtn", "gptq"],
        default="rtn",
        help="how four-bit weights are rounded: to nearest, or by GPTQ over the calibration text (default: rtn)",
    )
    parser.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="cut the model between layers into N graphs with a context each (default: as few as the HTP's address "
        "space allows)",
    )
    parser.add_argument(
        "--build",
        choices=["auto", "whole", "by-layer"],
        default="auto",
        help="whole: keeps the float and the quantised graphs, for the suites' reference; by-layer: one layer's floats "
        "and one shard's graphs at a time, no reference; auto: by-layer from 2 billion parameters on",
    )
    parser.add_argument(
        "--overrides",
        type=Path,
        metavar="FILE",
        help="encodings in QNN/AIMET JSON (0.6.1 or 1.0.0) that go over the calibrated ones, by name or pattern; "
        'dtype "float" leaves an activation unquantised',
    )
    parser.add_argument(
        "--write-encodings",
        type=Path,
        metavar="FILE",
        help="write every encoding of the artifact to FILE, in a form --overrides reads",
    )
    parser.add_argument(
        "--encodings-layout",
        choices=["0.6.1", "1.0.0"],
        default="1.0.0",
        help="layout of --write-encodings (default: 1.0.0)",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text to calibrate on (default: self-generated)"
    )
    parser.add_argument(
        "--heldout", type=Path, metavar="FILE", help="text for perplexity (default: CHECKPOINT/heldout.txt)"
    )
    parser.add_argument(
        "--measurements", type=Path, metavar="FILE", help="write time and peak memory of every stage to FILE, as JSON"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("artifacts"),
        metavar="DIR",
        help="where artifact folders go (default: artifacts)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    repeated = len(set(arguments.context)) < len(arguments.context)
    if repeated or (len(arguments.context) > 1 and (arguments.write_encodings or arguments.measurements)):
        raise UserError(
            "several context lengths cannot be prepared so",
            found="one of them twice" if repeated else "--write-encodings or --measurements, one file for all of them",
            expected="different lengths, and files that are written for one",
            next_step="prepare them one by one",
        )
    for context in arguments.context:
        out = arguments.out if len(arguments.context) == 1 else arguments.out / f"cl{context}"
        _prepare_one(arguments, context, out)
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    """``512`` or ``512,1024``."""
    return tuple(int(part) for part in text.split(","))


def _prepare_one(arguments: argparse.Namespace, context: int, out: Path) -> None:
    from harness.compiler.exports import export_encodings
    from harness.compiler.prepare import prepare

    progress = printer("prepare")
    artifact = prepare(
        locate(arguments.checkpoint, progress=progress),
        soc=find_soc(arguments.soc),
        precision=Precision(arguments.precision),
        kv=None if arguments.kv is None else KvPrecision(arguments.kv),
        context=context,
        prefill=arguments.prefill,
        rmsnorm=arguments.rmsnorm,
        attention=arguments.attention,
        linear=arguments.linear,
        logits=arguments.logits,
        embeddings=arguments.embeddings,
        contexts=arguments.contexts,
        compiler=arguments.compiler,
        refused=arguments.refused,
        sdk=sdk_root() if arguments.compiler == "qairt" else None,
        weights=arguments.weights,
        overrides=arguments.overrides,
        shards=arguments.shards,
        build=arguments.build,
        out=out,
        calibration=arguments.calibration,
        heldout=arguments.heldout,
        progress=progress,
        measured=lambda stages: _write_measured(arguments.measurements, stages),
    )
    if arguments.write_encodings is not None:
        export_encodings(artifact, arguments.write_encodings, arguments.encodings_layout)
    for line in accuracy_lines(artifact.manifest):
        print(line)
    print(f"{artifact.folder}")


def _write_measured(path: Path | None, stages: tuple[Measured, ...]) -> None:
    if path is not None:
        write_json(path, {"stages": [to_json(stage) for stage in stages]})


def accuracy_lines(manifest: ArtifactManifest) -> list[str]:
    """What the compiled graph lost against fp32, and what a token costs."""
    lines = []
    figures = {figure.graph: figure for figure in manifest.quality}
    fp32, compiled = figures.get("fp32"), figures.get(str(manifest.recipe.kv))
    if fp32 is not None and compiled is not None:
        gap = 100 * (compiled.perplexity / fp32.perplexity - 1)
        line = f"perplexity {compiled.perplexity:.4f}, {gap:+.2f} % over fp32"
        n_scored = [compiled.n_scored_tokens // compiled.n_windows] * compiled.n_windows
        interval = None
        if compiled.window_nll and len(compiled.window_nll) == len(fp32.window_nll):
            interval = perplexity_ratio_interval(compiled.window_nll, fp32.window_nll, n_scored)
        if interval is not None:
            line += f" (95 %: {100 * (interval[0] - 1):+.2f} to {100 * (interval[1] - 1):+.2f}, paired over windows)"
        lines.append(f"{line}; {100 * fp32.perplexity / compiled.perplexity:.1f} % of fp32's quality")
    accuracy = manifest.accuracy
    if accuracy is not None:
        layers = " ".join(f"{value:.1f}" for value in accuracy.layer_snr_db)
        lines.append(
            f"SNR in dB behind each layer {layers}, logits {accuracy.logits_snr_db:.1f}; same first choice as fp32 at "
            f"{accuracy.top1_agreement:.1%} of {accuracy.n_positions} positions"
        )
    size = sum(context.n_bytes for context in manifest.contexts)
    if manifest.bytes_per_token is not None:
        lines.append(
            f"{size / 2**20:.2f} MiB of binaries; about {manifest.bytes_per_token / 2**20:.2f} MiB moved per token"
        )
    need = footprint(manifest)
    ram = " / ".join(f"{need.of_ram(size):.2%}" for size in PHONE_RAM_GB)
    lines.append(
        f"at least {need.total / 2**20:.2f} MiB in memory (binaries, {need.kv_pool / 2**20:.2f} MiB of KV cache, "
        f"inputs and outputs): {need.of_session:.2%} of what an HTP session maps ({HTP_SESSION_BYTES / 2**30:g} GiB), "
        f"{need.of_context:.2%} of what a context may have ({HTP_CONTEXT_BYTES / 2**30:g} GiB), {ram} of a phone's "
        f"{' / '.join(map(str, PHONE_RAM_GB))} GiB"
    )
    return lines
