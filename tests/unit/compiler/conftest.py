"""A small preparation of the bundled model: context 64, prefill 16, a short held-out text."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.compiler.prepare import prepare
from harness.record.artifact import Artifact
from harness.soc import Precision, find_soc

TINY_LLAMA = Path(__file__).parents[3] / "models" / "tiny-llama"


@pytest.fixture(scope="session")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heldout") / "short.txt"
    path.write_text((TINY_LLAMA / "heldout.txt").read_text(encoding="utf-8")[:4000], encoding="utf-8")
    return path


COMMON = ("float32-graphs-*", "perplexity-fp32-*", "calibration-*")
"""Stages that do not depend on precision, SoC or compiler: made once and copied to whoever does not ask for none."""


@pytest.fixture(scope="session")
def prepare_small(heldout: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Artifact]:
    """``warm`` False: nothing is taken from earlier preparations."""
    kept = tmp_path_factory.mktemp("stages")

    def run(out: Path, *, warm: bool = True, **changes: Any) -> Artifact:
        options: dict[str, Any] = {
            "soc": find_soc("gen3"),
            "precision": Precision.W8A16,
            "context": 64,
            "prefill": 16,
            "heldout": heldout,
            **changes,
        }
        stages = out / ".stages"
        if warm and not stages.exists():
            out.mkdir(parents=True, exist_ok=True)
            shutil.copytree(kept, stages)
        artifact = prepare(TINY_LLAMA, out=out, **options)
        for stage in (stage for glob in COMMON for stage in stages.glob(glob)):
            if not (kept / stage.name).exists():
                shutil.copytree(stage, kept / stage.name)
        return artifact

    return run
