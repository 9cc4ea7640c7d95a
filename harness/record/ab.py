"""A/B comparisons: what was planned, which run was which arm, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.run import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison sets out to do, journalled before its first run."""

    session_id: str
    comparison: str
    cell: Cell
    """Of the candidate"""
    serial: str
    workload: str
    artifacts: dict[str, str]
    """Arm (``A``, ``B``) to artifact id; equal ids compare an artifact with itself."""
    order: str
    """The policy, in words"""
    warm_up_runs: int
    """Runs of each arm before position 0; journalled, no arm of anything"""
    warm_ups: int
    """Generations at the start of each run that do not count"""
    repetitions: int
    """Generations of each run that count; their median is the run's figure"""
    looks: tuple[int, ...]
    """Numbers of pairs after which a decision may fall"""
    budget_pairs: int
    budget_s: float
    settle_s: float
    """Longest wait before a block of two pairs for the phone to be fit for a speed figure"""
    smallest_effect: float
    """Relative harm that matters"""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEnd:
    """Why no more pairs were run."""

    session_id: str
    comparison: str
    n_pairs: int
    reason: str
