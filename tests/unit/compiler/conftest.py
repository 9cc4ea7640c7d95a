"""A small preparation of the bundled model: context 64, prefill 16, a short held-out text."""

from __future__ import annotations

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


@pytest.fixture(scope="session")
def prepare_small(heldout: Path) -> Callable[..., Artifact]:
    def run(out: Path, **changes: Any) -> Artifact:
        options: dict[str, Any] = {
            "soc": find_soc("gen3"),
            "precision": Precision.W8A16,
            "context": 64,
            "prefill": 16,
            "heldout": heldout,
            **changes,
        }
        return prepare(TINY_LLAMA, out=out, **options)

    return run
