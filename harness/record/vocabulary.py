"""The few closed sets of words that every record uses, and the one mapping of a verdict to the outside world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType


class Source(StrEnum):
    """Which real thing a result came from."""

    PHONE = "phone"
    VIRTUAL = "virtual"
    """A virtual phone: real QNN libraries in the x86 HTP emulator. Numerics are real, speed is not."""
    SYNTHETIC = "synthetic"
    """Written by hand or by a simulation. Never a release verdict."""


class Status(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INFRA = "INFRA"
    """The lab failed, not the model."""
    INVALID = "INVALID"
    """A self-check or a condition refuted the measurement (emulated speed among them)."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """More evidence is needed."""
    NOT_COVERED = "NOT_COVERED"
    """Nothing was measured, or there is no limit to judge by."""


SEVERITY: tuple[Status, ...] = (
    Status.FAIL,
    Status.INFRA,
    Status.INVALID,
    Status.INCONCLUSIVE,
    Status.NOT_COVERED,
    Status.PASS,
)
"""Worst first."""

EXIT_CODES: Mapping[Status, int] = MappingProxyType(
    {
        Status.PASS: 0,
        Status.FAIL: 10,
        Status.INFRA: 11,
        Status.INVALID: 12,
        Status.INCONCLUSIVE: 13,
        Status.NOT_COVERED: 14,
    }
)

PYTEST_OUTCOME: Mapping[Status, str] = MappingProxyType(
    {
        Status.PASS: "passed",
        Status.FAIL: "failed",
        Status.INFRA: "error",
        Status.INVALID: "skipped",
        Status.INCONCLUSIVE: "skipped",
        Status.NOT_COVERED: "skipped",
    }
)


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of the given statuses in the order of ``SEVERITY``; of none, NOT_COVERED."""
    present = set(statuses)
    return next((status for status in SEVERITY if status in present), Status.NOT_COVERED)


class Family(StrEnum):
    """What a metric says something about; limits are required per family."""

    ACCURACY = "accuracy"
    PLACEMENT = "placement"
    PERFORMANCE = "performance"
    MEMORY = "memory"
    THERMAL = "thermal"
    POWER = "power"


EMULATION_VOIDS: frozenset[Family] = frozenset({Family.PERFORMANCE, Family.MEMORY, Family.THERMAL, Family.POWER})
"""Families whose figures mean nothing on an emulator: shown, labelled, never judged."""


class Suite(StrEnum):
    """Workloads that one suite makes for itself. Headline figures never come from these."""

    TOY = "smoke-toy"
    SMOKE = "smoke"
    EDGES = "edges"
    TASKS = "tasks"
    SWEEP = "sweep"
    IDLE = "idle"
    PAUSES = "pauses"
    LONGEST = "longest"
    OPERATORS = "operators"
    SUSTAINED = "sustained"
    COOLDOWN = "cooldown"
    PACED = "paced"
    ENDURANCE = "endurance"


class DType(StrEnum):
    """Element types of graph tensors. ``ufixed``/``sfixed`` carry a scale and a zero point."""

    INT32 = "int32"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    UFIXED8 = "ufixed8"
    UFIXED16 = "ufixed16"
    SFIXED8 = "sfixed8"
    SFIXED16 = "sfixed16"


DTYPE_BYTES: Mapping[DType, int] = MappingProxyType(
    {
        DType.INT32: 4,
        DType.FLOAT16: 2,
        DType.FLOAT32: 4,
        DType.UFIXED8: 1,
        DType.UFIXED16: 2,
        DType.SFIXED8: 1,
        DType.SFIXED16: 2,
    }
)
