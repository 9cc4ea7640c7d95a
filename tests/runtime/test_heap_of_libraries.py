"""Allocations while tokens are generated: the runner's own, of which there are none, apart from the QNN library's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.job import Job, Logits, Prompt

pytestmark = pytest.mark.lane("build")

Count = Callable[[Job, Path], tuple[int, int]]


def forced(n_gen: int) -> Prompt:
    """As many steps as are asked for, whatever the model says."""
    return Prompt(
        prompt_id="p", mode="generate", tokens=(1, 2, 3, 4, 5), n_gen=n_gen, ignore_eos=True, logits=Logits.NONE
    )


def test_more_tokens_cost_the_runner_no_allocation_and_the_stand_in_some(
    stand_in_class, host_build, count_allocations: Count, tmp_path: Path
) -> None:
    standin = stand_in_class(host_build, tmp_path)
    few, many = (count_allocations(standin.job(forced(n)), tmp_path / str(n)) for n in (2, 10))
    assert few[0] > 0, "the probe sees the executable's allocations"
    # Once generation is over, a longer record may take a buffer or two more.
    assert many[0] - few[0] <= 2
    # Its allocations a step are its own affair; seen: 36.
    assert many[1] - few[1] >= 8
