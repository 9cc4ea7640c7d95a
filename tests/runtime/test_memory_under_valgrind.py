"""A whole generation under valgrind's memcheck: every read and write of the runner, and what it never frees."""

from __future__ import annotations

import subprocess

import pytest

from harness.record.job import Logits, Prompt

pytestmark = [pytest.mark.lane("build"), pytest.mark.lane("valgrind"), pytest.mark.slow]

ERROR_CODE = 99

MEMCHECK = (
    "valgrind",
    "--quiet",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect,possible",
    "--show-leak-kinds=definite,indirect,possible",
    f"--error-exitcode={ERROR_CODE}",
)


@pytest.mark.parametrize("precision", ["w8a16", "fp16"])
def test_a_whole_job_reads_and_writes_only_its_own_memory_and_frees_it(
    stand_in_class, start_runner, host_build, tmp_path, precision
):
    standin = stand_in_class(host_build, tmp_path, precision)
    options = {"ignore_eos": True, "logits": Logits.ALL}
    prompts = [
        Prompt(prompt_id=f"p{n}", mode="generate", tokens=tuple(range(n)), n_gen=17 - n, warmups=1, **options)
        for n in (1, 3, 4, 5, 13, 15, 16)  # 1, N-1, N, N+1, and the end of the context of 16
    ]
    prompts.append(Prompt(prompt_id="s", mode="score", tokens=tuple(range(16)), n_gen=0, logits=Logits.ALL))
    start_runner(host_build, standin.job(*prompts, performance_mode="burst"), tmp_path).finish()  # writes the job file
    done = subprocess.run(
        [*MEMCHECK, host_build.runner, "--job", tmp_path / "job.json", "--out", tmp_path / "checked", "--dump-cache"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "==" not in done.stderr  # valgrind's own lines
    assert (tmp_path / "checked" / "kv_cache.bin").stat().st_size > 0
