"""How fast the phone's memory is, asked of the runner right after a run: the same clocks, the same heat."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from harness.device.adb import AdbDevice
from harness.errors import InfraError
from harness.record.runner import Bandwidth, parse_bandwidth

TIMEOUT_S: Final = 30.0
FILE: Final = "bandwidth.jsonl"
_MEASURE: Final = """
cd "$1" && exec ./snapgate-runner --bandwidth
"""


def measure_bandwidth(device: AdbDevice, folder: PurePosixPath) -> tuple[Bandwidth | None, str]:
    """The figure, and what the runner wrote. A runner that cannot say it, for want of memory or time, says nothing of
    the run that it comes after; neither does a phone that is lost only now, which the next call finds out."""
    try:
        said = device.script(_MEASURE, folder, timeout_s=TIMEOUT_S, what="measure the memory's bandwidth")
    except InfraError as exc:
        return None, str(exc)
    return (parse_bandwidth(said.text.splitlines()) if said.exit_code == 0 else None), said.text
