"""A model of one layer, prepared once: what these tests show is of the suites, not of a model."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.plugin.toy import write_toy
from harness.soc import KvPrecision, Precision, find_soc

REPOSITORY = Path(__file__).resolve().parents[3]
CONTEXT, PREFILL = 512, 64
CATALOGUE = f"""
[[model]]
name = "small"
checkpoint = "small"
heldout = "heldout.txt"
context_length = {CONTEXT}
prefill_tokens = {PREFILL}
socs = ["gen3"]
perplexity_windows = 1
n_gen = 4
prompts = ["w5 w9 w13", "w20 w40 w60 w21 w41"]

[[model.variant]]
precision = "fp16"
kv = "kvfp16"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    models: Path
    artifacts: Path
    cell: str = "small-fp16-kvfp16-gen3"

    @property
    def options(self) -> tuple[str, ...]:
        return ("-k", self.cell, "--models", str(self.models), "--artifacts", str(self.artifacts))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    from tokenizers import Tokenizer, models, pre_tokenizers

    from harness.compiler.prepare import prepare

    folder = tmp_path_factory.mktemp("small")
    checkpoint = folder / "small"
    write_toy(checkpoint)
    config = json.loads((checkpoint / "config.json").read_text())
    words = {f"w{number}": number for number in range(config["vocab_size"])}
    config["max_position_embeddings"] = CONTEXT
    (checkpoint / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    choose = random.Random(7)
    (folder / "heldout.txt").write_text(" ".join(choose.choices(sorted(words), k=CONTEXT)))
    (folder / "catalogue.toml").write_text(CATALOGUE)
    prepare(
        checkpoint,
        soc=find_soc("gen3"),
        precision=Precision.FP16,
        kv=KvPrecision.KVFP16,
        context=CONTEXT,
        prefill=PREFILL,
        rmsnorm="operator",
        out=folder / "artifacts",
        calibration=None,
        heldout=folder / "heldout.txt",
        progress=lambda _: None,
    )
    return Small(models=folder / "catalogue.toml", artifacts=folder / "artifacts")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a ``pytest suites`` within a test."""
    return environment_with(tmp_path / "state")


def environment_with(state: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return {**kept, "SNAPGATE_STATE_DIR": str(state)}


Suites = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def suites(environment: dict[str, str]) -> Suites:
    return suites_in(environment)


@pytest.fixture(scope="module")
def suites_of_module(tmp_path_factory: pytest.TempPathFactory) -> Suites:
    """For a session that several tests look at."""
    return suites_in(environment_with(tmp_path_factory.mktemp("state")))


def suites_in(environment: dict[str, str]) -> Suites:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, "-p", "no:cacheprovider", "-rs"],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=570,
            check=False,
        )

    return run
