"""The C++ unit tests, and what kind of program the build makes."""

from __future__ import annotations

import re
import subprocess

import pytest

import harness

pytestmark = pytest.mark.lane("build")


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_unit_tests_pass(build):
    done = subprocess.run(
        build.command("tests/snapgate-tests"), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"All tests passed \(\d+ assertions in \d+ test cases\)", done.stdout)


def test_the_version_is_that_of_the_harness(build):
    text = output_of(*build.command("snapgate-runner", "--version"))
    abi = "arm64-v8a" if build.preset == "linux-arm64" else "x86_64"
    assert text.startswith(f"snapgate-runner {harness.__version__} ({abi}, ")


@pytest.mark.parametrize(
    "arguments", [[], ["--job", "j"], ["--probe"], ["--job", "a", "--out", "b", "--unknown"], ["help"]]
)
def test_a_wrong_command_line_exits_2_with_the_usage_and_no_record(build, arguments):
    done = subprocess.run(
        build.command("snapgate-runner", *arguments), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: snapgate-runner --job JOB.json --out FOLDER" in done.stderr


def test_the_runner_needs_nothing_but_the_c_library(host_build):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", host_build.runner))
    assert set(needed) <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def test_the_counted_operator_new_is_the_runners_own_and_invisible_to_the_libraries(host_build):
    assert "_Znwm" in output_of("nm", "--defined-only", host_build.runner)
    exported = output_of("nm", "-D", "--defined-only", host_build.runner).split()
    assert [name for name in exported if name.startswith("_Z")] == []
