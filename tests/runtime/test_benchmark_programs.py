"""What `make bench-runtime` measures with, on small runs: its figures that do not depend on how busy the machine is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.lane("build"), pytest.mark.lane("qnn")]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import runtime

    yield runtime
    for name in ("runtime", "runtime_cases"):
        sys.modules.pop(name, None)


def test_gaps_are_from_the_return_of_a_step_to_the_entry_of_the_next(bench, tmp_path: Path) -> None:
    stamps = np.zeros(bench.N_STEPS + 4, dtype=bench.STAMP)
    stamps["graph"][:3], stamps["graph"][3:] = 1, 2  # prefill, then decode
    stamps["wall_in"] = np.arange(len(stamps)) * 10_000
    stamps["wall_out"] = stamps["wall_in"] + 7_000
    stamps.tofile(tmp_path / "stamps")
    gaps = bench.decode_gaps(tmp_path / "stamps", "wall")
    assert len(gaps) == bench.N_STEPS
    assert set(gaps) == {3.0}
    stamps["thread"][-1] = 9
    stamps.tofile(tmp_path / "stamps")
    with pytest.raises(SystemExit, match="2 threads"):
        bench.decode_gaps(tmp_path / "stamps", "wall")


def test_the_runner_takes_less_than_8_mib_beyond_libraries_binaries_pool_and_tensors(
    bench, host_build, tmp_path: Path
) -> None:
    for shape in (bench.SMALL, bench.LARGE):
        line = bench.memory_beyond(bench.Programs(folder=host_build.folder), shape, tmp_path)
        assert 0 < line.value < 8, line.detail


def test_the_runners_time_a_token_is_measured_beside_bare_stores(bench, host_build, tmp_path: Path) -> None:
    line = bench.own_time(bench.Programs(folder=host_build.folder), bench.SMALL, tmp_path, 2)
    assert line.value > 0.2, line.detail  # 200 ns: it cannot have done its work in less
    assert line.met, line.detail
