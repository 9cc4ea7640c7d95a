"""The gates of suites/limits.toml tried on sessions whose answer is known, on virtual phones; writes their proofs.

    make prove-limits
    make prove-limits ONLY=missing     # precisions with an untested gate, one after the other; keeps other proofs

Good: the bundled model in every precision of models/catalogue.toml and in w8a16 with kv16. Bad, each judged against the
good one's reference:

===========  ==========================================================================================
weights      every precision, compiled from a checkpoint with noise in it
decode       w8a16: only the decode graph comes from that checkpoint; the scales are the good one's
constant     fp16, the last norm's weights zero: one token over and over, whatever the prompt
cut          fp16, half of a context binary, with the hash that it has
pieces       fp16 with a manifest that owns up to an operator on the CPU and to a second piece
arch         the good session, with the arch that the runner reported replaced
rungs        the good session five times, the smoke ladder broken at one rung each
answers      the good session, with one token of a repetition and one of an endurance round replaced, no task right
===========  ==========================================================================================

Sessions run the smoke ladder, accuracy, edges, task sets and placement, the good one the endurance rounds too. With
``missing`` it is accuracy alone: good, with noisy weights, and with another decode graph where that still leaves a gate
untested; proofs are written after each session.

Everything is left in build/prove-limits; a session's name in limits.toml is the name of its journal there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import load_file, save_file

from harness.measure.suite_metrics import RUNGS
from harness.record.artifact import MANIFEST_NAME, sha256_of
from harness.record.verdict import Limit
from harness.results.gate import read_limits

ROOT: Final = Path(__file__).resolve().parents[1]
MODEL: Final = ROOT / "models" / "tiny-llama"
CATALOGUE: Final = ROOT / "models" / "catalogue.toml"
LIMITS: Final = ROOT / "suites" / "limits.toml"
WORK: Final = ROOT / "build" / "prove-limits"
SOC: Final = "gen3"
SNAPGATE: Final = (sys.executable, "-m", "harness.cli.main")
SUITES: Final = (
    "-n",
    "2",
    "suites/smoke",
    "suites/accuracy",
    "suites/placement",
    "suites/accuracy/test_edges.py",
    "suites/accuracy/test_tasks.py",
)
NOT_IN_THE_CATALOGUE: Final = (("w8a16", "kv16"),)
BY_DEFAULT: Final = (("fp16", "kvfp16"), ("w8a16", "kv8"))
GOOD_EXIT: Final = 0
BAD_EXIT: Final = 10
Variant = tuple[str, str]
"""Precision and KV precision"""
Edit = Callable[[str, dict[str, Any]], None]


def main() -> None:
    parser = argparse.ArgumentParser(description="The gates tried on good and damaged models, on virtual phones.")
    parser.add_argument("only", nargs="?", choices=["missing"], help="precisions with an untested gate only")
    if parser.parse_args().only:
        prove_missing()
    else:
        prove_all()


def _variants() -> list[Variant]:
    (model,) = (entry for entry in tomllib.loads(CATALOGUE.read_text())["model"] if entry["name"] == MODEL.name)
    return [*((variant["precision"], variant["kv"]) for variant in model["variant"]), *NOT_IN_THE_CATALOGUE]


def _catalogue(folder: Path, variants: Sequence[Variant], by_default: Sequence[Variant]) -> Path:
    """models/catalogue.toml for one SoC and these variants; its paths lead to the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    link, path = folder / MODEL.name, folder / "catalogue.toml"
    if not link.is_symlink():
        link.symlink_to(MODEL)
    head, _, _ = CATALOGUE.read_text().partition("[[model.variant]]")
    tables = [
        f'[[model.variant]]\nprecision = "{precision}"\nkv = "{kv}"\nsocs = ["{SOC}"]\n'
        f"default = {'true' if (precision, kv) in by_default else 'false'}\n"
        for precision, kv in variants
    ]
    path.write_text(head + "\n".join(tables))
    return path


def untested_variants(untested: Sequence[tuple[str, str]], variants: Sequence[Variant]) -> list[Variant]:
    """Which variants a good and a bad session are needed of. ``untested``: precision and KV precision of gates, ``*``:
    any. A gate of any KV precision is tried with the first one that its precision is listed with."""
    found: list[Variant] = []
    for precision, kv in untested:
        fitting = [v for v in variants if precision in ("*", v[0]) and kv in ("*", v[1])]
        if not fitting:
            raise SystemExit(f"error: no variant for an untested gate of {precision} {kv}")
        found += fitting[:1]
    return list(dict.fromkeys(found))


def prove_missing() -> None:
    limits = _untested()
    of_any = [limit.metric for limit in limits if limit.model == "*"]
    if of_any:
        raise SystemExit(f"error: untested gates of any model: {', '.join(of_any)}; next step: make prove-limits")
    for precision, kv in untested_variants([(limit.precision, limit.kv) for limit in limits], _variants()):
        root = WORK / "missing" / f"{precision}-{kv}"
        shutil.rmtree(root, ignore_errors=True)
        models = _catalogue(root, [(precision, kv)], [(precision, kv)])
        asked = ("suites/accuracy", "--models", str(models))
        noisy = _checkpoint("noisy", _with_noise)
        good = _prepare(MODEL, precision, f"{root}/good", kv=kv)
        _prove(["--add", "--good", str(_session(f"{root}/good", GOOD_EXIT, asked))])
        _judged_as(good, _prepare(noisy, precision, f"{root}/weights", kv=kv))
        _prove(["--add", "--bad", str(_session(f"{root}/weights", BAD_EXIT, asked))])
        if any(limit.precision == precision and limit.kv in ("*", kv) for limit in _untested()):
            _decode_of(good, noisy, root)
            _prove(["--add", "--bad", str(_session(f"{root}/decode", BAD_EXIT, asked))])
    untested = len(_untested())
    if untested:
        raise SystemExit(f"error: {untested} gates are still untested; next step: snapgate limits list")


def _untested() -> list[Limit]:
    return [limit for limit in read_limits(LIMITS) if limit.untested]


def _prove(tries: Sequence[str]) -> None:
    _run([*SNAPGATE, "limits", "prove", "--limits", str(LIMITS), "--write", *tries])


def prove_all() -> None:
    variants = _variants()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    models = _catalogue(WORK / "models", variants, BY_DEFAULT)
    noisy, silent = _checkpoint("noisy", _with_noise), _checkpoint("silent", _with_silent_norm)

    good = [_prepare(MODEL, precision, "good", kv=kv) for precision, kv in variants]
    every = ("--precision", "all", "--models", str(models))
    sessions_good = [_session("good", GOOD_EXIT, (*SUITES, "suites/endurance/test_rounds.py", *every))]

    for artifact in good:
        _judged_as(artifact, _prepare(noisy, _precision(artifact), "weights", kv=_kv(artifact)))
    w8a16 = [artifact for artifact in good if _precision(artifact) == "w8a16"]
    (fp16,) = (artifact for artifact in good if _precision(artifact) == "fp16")
    for artifact in w8a16:
        _decode_of(artifact, noisy, WORK)
    _judged_as(fp16, _prepare(silent, "fp16", "constant", kv=_kv(fp16)))
    _edited(fp16, "cut", _cut)
    _edited(fp16, "pieces", _owning_up)
    sessions_bad = [_session("weights", BAD_EXIT, (*SUITES, *every))]
    two = [(_precision(artifact), _kv(artifact)) for artifact in w8a16]
    sessions_bad += [_session("decode", BAD_EXIT, (*SUITES, "--models", str(_catalogue(WORK / "decode", two, two))))]
    sessions_bad += [_session(kind, BAD_EXIT, SUITES) for kind in ("constant", "cut", "pieces")]
    sessions_bad += [_other_arch(), *_broken_ladders(), _other_answers()]

    _prove([*_options("--good", sessions_good), *_options("--bad", sessions_bad)])


def _options(name: str, values: Sequence[Path]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def _run(command: Sequence[str], expected: int = 0) -> None:
    print("$", " ".join(command), flush=True)
    found = subprocess.run(command, cwd=ROOT, check=False).returncode
    if found != expected:
        raise SystemExit(f"error: exit code {found}; expected: {expected}; next step: read the lines above")


def _with_noise(name: str, weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if not name.endswith(("down_proj.weight", "o_proj.weight")):
        return weights
    noise = random.standard_normal(weights.shape, dtype=np.float32)
    return np.asarray(weights + noise * weights.std(), dtype=weights.dtype)


def _with_silent_norm(name: str, weights: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.zeros_like(weights) if name == "model.norm.weight" else weights


def _checkpoint(name: str, change: Callable[[str, np.ndarray, np.random.Generator], np.ndarray]) -> Path:
    folder = WORK / "checkpoints" / name / MODEL.name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(MODEL, folder)
    random = np.random.default_rng(7)
    path = folder / "model.safetensors"
    save_file({key: change(key, value, random) for key, value in load_file(path).items()}, path)
    return folder


def _prepare(checkpoint: Path, precision: str, kind: str, *, kv: str | None = None, more: Sequence[str] = ()) -> Path:
    out = WORK / kind / "artifacts"
    before = set(out.glob("[!.]*"))
    command = [*SNAPGATE, "prepare", str(checkpoint), "--soc", SOC, "--precision", precision, "--out", str(out), *more]
    _run(command + (["--kv", kv] if kv else []))
    (folder,) = set(out.glob("[!.]*")) - before
    return folder


def _manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MANIFEST_NAME).read_text()))


def _precision(folder: Path) -> str:
    return str(_manifest(folder)["recipe"]["precision"])


def _kv(folder: Path) -> str:
    return str(_manifest(folder)["recipe"]["kv"])


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """With the hashes that the files have now, and a note in the report that says what this is."""
    manifest["files_sha256"] = {name: sha256_of(folder / name) for name in manifest["files_sha256"]}
    manifest["notes"] = [*manifest["notes"], "damaged on purpose, to see that its gates fail"]
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1))


def _judged_as(good: Path, bad: Path) -> None:
    """What ``bad`` runs is compared with the reference of ``good``."""
    shutil.rmtree(bad / "reference")
    shutil.copytree(good / "reference", bad / "reference")
    manifest = _manifest(bad)
    others = {name for name in manifest["files_sha256"] if not name.startswith("reference/")}
    manifest["files_sha256"] = dict.fromkeys(
        sorted(others | {name for name in _manifest(good)["files_sha256"] if name.startswith("reference/")})
    )
    _write_manifest(bad, manifest)


def _edited(good: Path, kind: str, edit: Callable[[Path, dict[str, Any]], None]) -> None:
    folder = WORK / kind / "artifacts" / good.name
    shutil.copytree(good, folder)
    manifest = _manifest(folder)
    edit(folder, manifest)
    _write_manifest(folder, manifest)


def _decode_of(good: Path, checkpoint: Path, root: Path) -> None:
    """``root/decode``: ``good`` with the decode graph that ``checkpoint`` gives with the scales of ``good``."""
    encodings, precision, kv = root / "encodings.json", _precision(good), _kv(good)
    again = _prepare(MODEL, precision, f"{root}/again", kv=kv, more=["--write-encodings", str(encodings)])
    if _manifest(again)["files_sha256"] != _manifest(good)["files_sha256"]:
        raise SystemExit("error: preparing twice gave two artifacts; next step: read their manifests")
    other = _prepare(checkpoint, precision, f"{root}/other", kv=kv, more=["--overrides", str(encodings)])
    (context,) = (c for c in _manifest(good)["contexts"] if [g["n_tokens"] for g in c["graphs"]] == [1])

    def edit(folder: Path, manifest: dict[str, Any]) -> None:
        shutil.copyfile(other / context["file"], folder / context["file"])
        others = {entry["file"]: entry for entry in _manifest(other)["contexts"]}
        manifest["contexts"] = [
            others[entry["file"]] if entry["file"] == context["file"] else entry for entry in manifest["contexts"]
        ]

    _edited(good, f"{root}/decode", edit)


def _cut(folder: Path, manifest: dict[str, Any]) -> None:
    entry = manifest["contexts"][0]
    path = folder / entry["file"]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    entry["n_bytes"], entry["sha256"] = path.stat().st_size, sha256_of(path)


def _owning_up(_: Path, manifest: dict[str, Any]) -> None:
    graph = manifest["contexts"][0]["graphs"][0]
    graph["cpu_nodes"], graph["epcontext_nodes"] = 1, 2


def _session(kind: str, expected: int, asked: Sequence[str]) -> Path:
    results = WORK / kind / "out"
    command = [sys.executable, "-m", "pytest", *asked, "-m", SOC, "-q", "--phones", "virtual"]
    _run([*command, "--artifacts", str(WORK / kind / "artifacts"), "--results", str(results)], expected)
    return results / "journal"


def _other_arch() -> Path:
    def edit(entry: dict[str, Any]) -> None:
        for context in entry["log"]["contexts"]:
            context["dsp_arch"] = 73

    return _retold("arch", "0a2c68", lambda kind, entry: edit(entry) if kind == "run" else None)


def _broken_ladders() -> list[Path]:
    """Without the load phase that a rung asks for, without tokens, or with the toy graph's tokens wrong."""
    return [_retold(f"rung-{rung}", f"0a2c7{number}", _break_at(rung)) for number, rung in enumerate(RUNGS)]


def _break_at(rung: str) -> Edit:
    workload = "smoke" if rung in ("shard", "token") else "smoke-toy"
    reached = {"libraries": 0, "device": 1, "shard": 3}.get(rung)

    def edit(kind: str, entry: dict[str, Any]) -> None:
        if rung == "toy_graph":
            if kind == "self_check" and entry["name"] == "toy_graph":
                entry["passed"] = False
        elif kind == "run" and entry["workload"] == workload:
            entry["log"]["generations"] = []
            entry["error"] = {
                "status": "FAIL",
                "kind": "RunnerError",
                "message": f"broken at {rung}",
                "transient": False,
            }
            if reached is not None:
                kept = ("open_libraries", "backend", "device")[:reached]
                entry["log"]["phases"] = [phase for phase in entry["log"]["phases"] if phase["name"] in kept]

    return edit


def _other_answers() -> Path:
    changed = set()

    def edit(kind: str, entry: dict[str, Any]) -> None:
        if kind == "task" and entry["leg"] == "phone":
            entry["correct"] = [False] * len(entry["correct"])
        if kind != "run" or entry["workload"] not in ("edges", "endurance"):
            return
        cell = (entry["workload"], json.dumps(entry["cell"]))
        last = entry["log"]["generations"][-1]
        if entry["workload"] == "edges" or cell in changed:  # the first round is what the others are compared with
            last["token_ids"][-1] ^= 1
        changed.add(cell)

    return _retold("answers", "0a2c80", edit)


def _retold(kind: str, suffix: str, edit: Edit) -> Path:
    """The good session under a name of its own, each entry as ``edit(kind, entry)`` leaves it."""
    source = WORK / "good" / "out" / "journal"
    session = min((path.stem for path in source.glob("*.jsonl")), key=len)
    renamed = session[:-6] + suffix
    journal = WORK / kind / "journal"
    journal.mkdir(parents=True)
    for path in sorted(source.glob("*.jsonl")):
        with (journal / path.name.replace(session, renamed)).open("w") as out:
            for line in path.read_text().splitlines():
                entry = json.loads(line.replace(session, renamed))
                edit(entry["kind"], entry["entry"])
                out.write(json.dumps(entry, separators=(",", ":")) + "\n")
    return journal


if __name__ == "__main__":
    main()
