"""The state of this host around a run: a measuring condition, for transfers and for everything emulated."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from harness.device.text import printable
from harness.record.run import HostState

HEAVY_CORES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    at: float
    load_1min: float
    available_bytes: int
    cpu_s: dict[tuple[int, float], tuple[str, float]]
    """(pid, creation time) to name and CPU seconds, of processes that are not ours."""


def host_snapshot() -> HostSnapshot:
    """Every process but this one and its children: what we start is part of the run, not a disturbance."""
    me = psutil.Process(os.getpid())
    own = {me.pid, *(child.pid for child in me.children(recursive=True))}
    cpu: dict[tuple[int, float], tuple[str, float]] = {}
    for process in psutil.process_iter(["name", "cpu_times", "create_time"]):
        info = process.info
        if process.pid in own or info["cpu_times"] is None:
            continue
        name = printable(info["name"] or "", 60) or f"process {process.pid}"
        cpu[(process.pid, info["create_time"] or 0.0)] = (name, info["cpu_times"].user + info["cpu_times"].system)
    return HostSnapshot(
        at=time.monotonic(),
        load_1min=os.getloadavg()[0],
        available_bytes=psutil.virtual_memory().available,
        cpu_s=cpu,
    )


def host_state(before: HostSnapshot, after: HostSnapshot) -> HostState:
    """Heavy: over half a core on average between the two looks. The five heaviest are named."""
    seconds = max(after.at - before.at, 1e-3)
    rates = []
    for key, (name, cpu_s) in after.cpu_s.items():
        earlier = before.cpu_s.get(key, (name, 0.0))[1]
        rate = (cpu_s - earlier) / seconds
        if rate > HEAVY_CORES:
            rates.append((rate, name))
    return HostState(
        n_cpus=os.cpu_count() or 1,
        load_1min_before=before.load_1min,
        load_1min_after=after.load_1min,
        available_bytes_before=before.available_bytes,
        available_bytes_after=after.available_bytes,
        heavy_processes=tuple(name for _, name in sorted(rates, reverse=True)[:5]),
    )
