"""Which run was which arm of an A/B comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """One run of a comparison, journalled after its ``RunRecord``. ``A`` is the baseline, ``B`` the candidate."""

    session_id: str
    comparison: str
    """Name of the comparison: one phone, one workload, two artifacts (or the same one twice)"""
    position: int
    """0, 1, 2 ...: the order in which the runs were made. Positions 2i and 2i + 1 are pair i."""
    arm: str
    """``A`` or ``B``; the order is that of ``harness.measure.paired.arm_order``"""
    run_id: str
