"""What is taken of the runner's word on the memory's bandwidth."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from harness.device.shell import ShellResult
from harness.errors import TransferError
from harness.record.runner import parse_bandwidth
from harness.run.bandwidth import measure_bandwidth

LINE = (
    '{"type":"bandwidth","n_bytes":268435456,"n_threads":8,"last_level_cache_bytes":null,"start_ns":5,'
    '"pass_ns":[6000000,4294967,5000000]}'
)


class Phone:
    def __init__(self, stdout="", exit_code=0, error=None):
        self.stdout, self.exit_code, self.error = stdout, exit_code, error

    def script(self, *_, **__):
        if self.error is not None:
            raise self.error
        return ShellResult(argv=(), stdout=self.stdout.encode(), stderr=b"", exit_code=self.exit_code, dropped_bytes=0)


def test_the_best_pass_counts():
    """2^28 bytes in 4.294967 ms are 62.5 GB/s."""
    found, said = measure_bandwidth(Phone(LINE), PurePosixPath("/data/local/tmp/x"))
    assert found.gb_per_s == pytest.approx(62.5, rel=1e-6)
    assert said == LINE


@pytest.mark.parametrize(
    "line",
    [
        "",
        "killed",
        LINE.replace("4294967", "0"),
        LINE.replace("4294967", "-4294967"),
        LINE.replace("268435456", "0"),
        LINE.replace("[6000000,4294967,5000000]", "[]"),
        LINE.replace("268435456", "NaN"),
    ],
)
def test_what_cannot_be_a_measurement_is_none(line):
    assert parse_bandwidth([line]) is None


def test_a_runner_that_fails_at_it_says_nothing_of_the_run():
    assert measure_bandwidth(Phone(LINE, exit_code=30), PurePosixPath("/x"))[0] is None
    found, said = measure_bandwidth(Phone(error=TransferError("connection lost")), PurePosixPath("/x"))
    assert found is None
    assert "connection lost" in said
