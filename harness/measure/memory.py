"""Memory of the runner process."""

from __future__ import annotations

from collections.abc import Iterable

from harness.record.runner import Memory


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
