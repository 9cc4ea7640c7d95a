"""Memory of the runner process, and of the phone as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harness.record.run import RunRecord
from harness.record.runner import Memory

DMA_BUF: Final = "runner dma-buf"
AVAILABLE: Final = "phone available"
"""Names of series of ``harness.device.sensors``"""


def peak_rss_bytes(readings: Iterable[Memory]) -> int | None:
    """max(VmHWM, VmRSS + VmSwap) over all readings: the high-water mark alone forgets pages that were swapped out.

    VmSwap counts as 0 where the kernel does not say. None when no reading has VmHWM or VmRSS.
    """
    found: list[int] = []
    for reading in readings:
        if reading.vm_hwm_bytes is not None:
            found.append(reading.vm_hwm_bytes)
        if reading.vm_rss_bytes is not None:
            found.append(reading.vm_rss_bytes + (reading.vm_swap_bytes or 0))
    return max(found, default=None)


def steady_rss_bytes(readings: Iterable[Memory]) -> int | None:
    """VmRSS + VmSwap at the end of the run; None when the kernel does not say."""
    end = [r for r in readings if r.at == "end" and r.vm_rss_bytes is not None]
    return (end[-1].vm_rss_bytes or 0) + (end[-1].vm_swap_bytes or 0) if end else None


def of_free_ram_percent(run: RunRecord) -> float | None:
    """The runner's peak and the dma-buf behind it, over what the phone had available before; None if unknown."""
    peak, free = peak_rss_bytes(run.log.memory), run.conditions.memory_available_bytes
    if peak is None or not free:
        return None
    shared = [v for s in run.sensors if s.name == DMA_BUF for v in s.values if v is not None]
    return 100.0 * (peak + max(shared, default=0.0)) / free


def lowest_available_bytes(run: RunRecord) -> float | None:
    """The least MemAvailable that was read while the runner was alive; None: it was not read."""
    return min(_available(run), default=None)


def phone_peak_bytes(run: RunRecord) -> float | None:
    """MemAvailable just before the run, less the least while it ran."""
    before, lowest = run.conditions.memory_available_bytes, lowest_available_bytes(run)
    return None if before is None or lowest is None else before - lowest


def phone_steady_bytes(run: RunRecord) -> float | None:
    """MemAvailable just before the run, less the last reading of the runner's life; None with under two readings,
    the first of which may be of the loading."""
    before, read = run.conditions.memory_available_bytes, _available(run)
    return None if before is None or len(read) < 2 else before - read[-1]


def _available(run: RunRecord) -> list[float]:
    return [v for s in run.sensors if s.name == AVAILABLE for v in s.values if v is not None]
