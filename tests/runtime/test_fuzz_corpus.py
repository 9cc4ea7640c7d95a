"""The saved corpus of the fuzz targets, once, under the sanitizers. `make fuzz` searches on from it."""

from __future__ import annotations

import re
import subprocess

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.lane("build"), pytest.mark.lane("fuzz")]


@pytest.fixture(scope="module")
def fuzz_build(build_of):
    return build_of("fuzz")


@pytest.mark.parametrize("target", ["job", "metadata"])
def test_the_saved_corpus_passes(fuzz_build, runner_sources, target):
    corpus = runner_sources / "fuzz" / "corpus" / target
    n_files = sum(1 for _ in corpus.iterdir())
    assert n_files > 20
    done = subprocess.run(
        [fuzz_build.folder / "fuzz" / f"fuzz-{target}", "-runs=0", corpus],
        capture_output=True, text=True, errors="replace", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    read = re.search(r"seed corpus: files: (\d+)", done.stderr)
    assert read is not None
    assert int(read[1]) == n_files
