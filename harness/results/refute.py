"""What voids what. A figure that a condition or a self-check refutes is never judged by its value.

================================  ==========================================================================
what was found                    what it does
================================  ==========================================================================
emulated                          performance, memory, thermal and power of the run INVALID
prompt_sensitivity failed         accuracy of the phone FAIL; performance of the whole cell INVALID
non_constant_output failed        accuracy of the phone FAIL; performance of the whole cell INVALID
cpu_nodes > 0                     cpu_nodes FAIL; performance of the run INVALID
dsp_arch differs                  dsp_arch_matches FAIL; performance of the run INVALID
token_count, clock failed         performance of the run INVALID
mode_flip failed                  performance of the run INVALID: repetitions that differ 3-fold are of two modes
observer_effect failed            performance of the run INVALID: graph outputs were copied at every step
heap_allocations failed           performance of the run INVALID
conditions                        performance, thermal and power of the run INVALID
performance_mode not accepted     performance and power of the run INVALID
known_defect, emulated            accuracy of the run INVALID: the probe of ``prepare`` saw a defect of the emulator
mixed_artifacts                   every figure that comes from more than one artifact INVALID
mixed_runtimes                    every figure that comes from more than one runtime INVALID
================================  ==========================================================================

Wrong output voids the speed of its whole cell, on every phone, because the artifact is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harness.measure import selfcheck
from harness.record.comparison import SelfCheck
from harness.record.run import RunRecord
from harness.record.vocabulary import EMULATION_VOIDS, Family, Source
from harness.soc import BY_PART

EMULATED: Final = "emulated"
CPU_PLACEMENT: Final = "cpu_placement"
DSP_ARCH: Final = "dsp_arch"
CONDITIONS: Final = "conditions"
PERFORMANCE_MODE: Final = "performance_mode"
KNOWN_DEFECT: Final = "known_defect"
MIXED_ARTIFACTS: Final = "mixed_artifacts"
MIXED_RUNTIMES: Final = "mixed_runtimes"

WRONG_OUTPUT: Final = frozenset({selfcheck.PROMPT_SENSITIVITY, selfcheck.NON_CONSTANT_OUTPUT})
_VOID_SPEED: Final = frozenset(
    {selfcheck.TOKEN_COUNT, selfcheck.CLOCK, selfcheck.HEAP_ALLOCATIONS, selfcheck.MODE_FLIP, selfcheck.OBSERVED}
)
_CONDITIONS_VOID: Final = frozenset({Family.PERFORMANCE, Family.THERMAL, Family.POWER})

FAILS: Final = {
    Family.ACCURACY: WRONG_OUTPUT,
    Family.PLACEMENT: frozenset({CPU_PLACEMENT, DSP_ARCH}),
}
"""Refutations that show a defect of the model itself, so that the metric is FAIL rather than INVALID."""


def name_of(refutation: str) -> str:
    """``clock: the phone slept`` is ``clock``."""
    return refutation.partition(":")[0]


def is_emulated(run: RunRecord) -> bool:
    return run.source is Source.VIRTUAL or run.device.virtual


def arch_matches(run: RunRecord) -> bool | None:
    """None when the SoC is not in the catalogue or the runner loaded no context binary."""
    soc = BY_PART.get(run.cell.part)
    if soc is None or not run.log.contexts:
        return None
    return all(context.dsp_arch == soc.htp_arch for context in run.log.contexts)


def refutations(family: Family, run: RunRecord, checks: Iterable[SelfCheck]) -> list[str]:
    """What refutes a figure of ``family`` that came from ``run``; ``checks`` are those of this run."""
    found: list[str] = []
    if family in EMULATION_VOIDS and is_emulated(run):
        found.append(EMULATED)
    if family is Family.ACCURACY and is_emulated(run):
        found.extend(f"{KNOWN_DEFECT}: {name}" for name in run.defects)
    if family in _CONDITIONS_VOID:
        found.extend(f"{CONDITIONS}: {violation}" for violation in run.conditions.violations)
    platform = run.log.platform
    if (
        family in (Family.PERFORMANCE, Family.POWER)
        and platform is not None
        and platform.performance_mode != "default"
        and not platform.performance_accepted
    ):
        found.append(f"{PERFORMANCE_MODE}: {platform.performance_mode} was not accepted")
    if family is Family.PERFORMANCE:
        if sum(run.cpu_nodes) > 0:
            found.append(f"{CPU_PLACEMENT}: {sum(run.cpu_nodes)} nodes on the CPU")
        if arch_matches(run) is False:
            found.append(f"{DSP_ARCH}: context binary for another HTP arch")
        found.extend(
            f"{check.name}: {check.detail}" for check in checks if check.passed is False and check.name in _VOID_SPEED
        )
    return found


def wrong_output(checks: Iterable[SelfCheck]) -> list[str]:
    """Failed checks that show the output to be wrong, each once per run."""
    return [f"{c.name}: {c.detail} (run {c.run_id})" for c in checks if c.passed is False and c.name in WRONG_OUTPUT]
