"""The SoC catalogue: what a Snapdragon part is called, and what its Hexagon Tensor Processor (HTP) can run.

Sources of the table: soc numbers from the public ``Qnn_SocModel_t`` enumeration (QAIRT 2.43), VTCM sizes from the
public ExecuTorch and LiteRT tables; every ``htp_arch`` was confirmed by compiling for that soc number with QAIRT 2.51
and reading the arch out of the context binary. ``vtcm_mb is None``: no public figure was found, so the compiler's own
choice is taken and recorded. ``dram_gb_per_s``: the memory clock that Qualcomm publishes, twice, times 8 bytes.
``int8_tops``: what Qualcomm published for the "AI engine" as a whole, more than the HTP's own share; for later SoCs
it published none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from harness.errors import UserError


class Precision(StrEnum):
    """Weights, then activations, then exceptions."""

    FP16 = "fp16"
    W8A16 = "w8a16"
    W8A16_FP16ATTN = "w8a16-fp16attn"
    """w8a16, with attention scores, mask, softmax and their product with the values in FP16."""
    W8A8 = "w8a8"
    W4A16 = "w4a16"
    """Four-bit weights, one scale per output channel; the output head keeps eight bits."""
    W4A16_B32 = "w4a16-b32"
    """Four-bit weights, one scale per output channel and 32 inputs; the output head keeps eight bits."""


class KvPrecision(StrEnum):
    """Keys and values: ``kvfp16`` goes with fp16; ``kv8`` is symmetric 8 bit, ``kv16`` symmetric 16 bit."""

    KVFP16 = "kvfp16"
    KV8 = "kv8"
    KV16 = "kv16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Soc:
    part: str
    marketing_name: str
    marker: str
    soc_number: int
    htp_arch: int
    vtcm_mb: int | None
    dram_gb_per_s: float | None = None
    """Peak DRAM bandwidth in GB/s (10^9 bytes), where a public figure is known."""
    int8_tops: float | None = None
    """Peak of 8-bit operations (10^12 a second), where the vendor publishes one."""

    def peak_tops(self, precision: Precision) -> float | None:
        """An upper bound for a precision: 8-bit weights or activations at the 8-bit rate; of FP16 none is published."""
        return None if precision is Precision.FP16 else self.int8_tops


SOCS: tuple[Soc, ...] = (
    Soc(
        part="SM8350",
        marketing_name="Snapdragon 888",
        marker="sd888",
        soc_number=30,
        htp_arch=68,
        vtcm_mb=4,
        int8_tops=26.0,
    ),
    Soc(part="SM8450", marketing_name="Snapdragon 8 Gen 1", marker="gen1", soc_number=36, htp_arch=69, vtcm_mb=8),
    Soc(part="SM8475", marketing_name="Snapdragon 8+ Gen 1", marker="gen1p", soc_number=42, htp_arch=69, vtcm_mb=8),
    Soc(
        part="SM8550",
        marketing_name="Snapdragon 8 Gen 2",
        marker="gen2",
        soc_number=43,
        htp_arch=73,
        vtcm_mb=8,
        dram_gb_per_s=67.2,
    ),
    Soc(
        part="SM8650",
        marketing_name="Snapdragon 8 Gen 3",
        marker="gen3",
        soc_number=57,
        htp_arch=75,
        vtcm_mb=8,
        dram_gb_per_s=76.8,
    ),
    Soc(part="SM8635", marketing_name="Snapdragon 8s Gen 3", marker="gen3s", soc_number=68, htp_arch=73, vtcm_mb=None),
    Soc(part="SM7675", marketing_name="Snapdragon 7+ Gen 3", marker="gen3p7", soc_number=70, htp_arch=73, vtcm_mb=None),
    Soc(
        part="SM8750",
        marketing_name="Snapdragon 8 Elite",
        marker="elite",
        soc_number=69,
        htp_arch=79,
        vtcm_mb=8,
        dram_gb_per_s=84.8,
    ),
    Soc(part="SM8735", marketing_name="Snapdragon 8s Gen 4", marker="gen4s", soc_number=85, htp_arch=73, vtcm_mb=None),
    Soc(
        part="SM8850", marketing_name="Snapdragon 8 Elite Gen 5", marker="elite5", soc_number=87, htp_arch=81, vtcm_mb=8
    ),
)

HTP_CONTEXT_BYTES: Final = 2 << 30
"""Of one context: its weights and KV cache. The HTP runtime refuses an allocation above 2,097,152 KB (the message is
quoted in pytorch/executorch#15954)."""
HTP_SESSION_BYTES: Final = 7 << 29
"""A session maps about 3.5 GiB in all (llama.cpp, docs/backend/hexagon)."""

BY_PART: Mapping[str, Soc] = MappingProxyType({soc.part: soc for soc in SOCS})
BY_MARKER: Mapping[str, Soc] = MappingProxyType({soc.marker: soc for soc in SOCS})


def find_soc(name: str) -> Soc:
    """The SoC for a part (``SM8650``) or a marker (``gen3``), in any case."""
    soc = BY_PART.get(name.upper()) or BY_MARKER.get(name.lower())
    if soc is None:
        known = ", ".join(f"{s.marker} ({s.part})" for s in SOCS)
        raise UserError(
            "unknown SoC", found=repr(name), expected=f"one of {known}", next_step="pass a marker or part of this list"
        )
    return soc


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionFloor:
    """From which HTP arch a precision runs: as the vendor states it, and as seen on the x86 emulator."""

    vendor_arch: int | None
    """None: the vendor names none."""
    emulator_arch: int
    source: str

    @property
    def arch(self) -> int:
        """The higher of the two: below it SnapGate makes no artifact."""
        return max(self.vendor_arch or 0, self.emulator_arch)


_EVERY_ARCH: Final = "compiled for soc 30, 36 and 57 and executed on the emulator; the vendor names no floor"
_FP16_SOURCE: Final = (
    "a maintainer in microsoft/onnxruntime#21848 (v73); emulator: soc 30 refused with 1002, soc 36 runs"
)

PRECISION_FLOORS: Mapping[Precision, PrecisionFloor] = MappingProxyType(
    {
        Precision.FP16: PrecisionFloor(vendor_arch=73, emulator_arch=69, source=_FP16_SOURCE),
        Precision.W8A16: PrecisionFloor(vendor_arch=None, emulator_arch=68, source=_EVERY_ARCH),
        Precision.W8A16_FP16ATTN: PrecisionFloor(
            vendor_arch=73,
            emulator_arch=68,
            source="FP16 as above (v73); emulator: runs for every arch, 45 dB from onnxruntime on soc 30",
        ),
        Precision.W8A8: PrecisionFloor(vendor_arch=None, emulator_arch=68, source=_EVERY_ARCH),
        Precision.W4A16: PrecisionFloor(vendor_arch=None, emulator_arch=68, source=_EVERY_ARCH),
        Precision.W4A16_B32: PrecisionFloor(
            vendor_arch=None,
            emulator_arch=69,
            source="emulator: soc 30 (v68) refuses the block-quantised MatMul, soc 36 runs; the vendor names no floor",
        ),
    }
)


def check_precision(precision: Precision, soc: Soc) -> None:
    """Refuse a precision that the arch of ``soc`` does not run. A silent downgrade is impossible."""
    floor = PRECISION_FLOORS[precision]
    if soc.htp_arch < floor.arch:
        others = [p for p in Precision if soc.htp_arch >= PRECISION_FLOORS[p].arch]
        raise UserError(
            f"{precision} does not run on {soc.marketing_name} ({soc.part})",
            found=f"HTP v{soc.htp_arch}",
            expected=f"v{floor.arch} or newer ({floor.source})",
            next_step=f"choose {', '.join(others)}, or a newer SoC",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefect:
    """A shape of graph that compiles and then computes wrong numbers."""

    name: str
    htp_archs: tuple[int, ...]
    what: str
    seen: str
    """Where it was seen, and where not."""
    way_out: str


ONE_ROW_ATTENTION: Final = KnownDefect(
    name="one-row-u16-attention",
    htp_archs=(69,),
    what="a MatMul of one 16-bit query row a head with 16-bit keys is right in the first head and garbage in the rest, "
    "where the heads are the axis next to the rows: (1, heads, 1, width)",
    seen="x86 emulator, soc 36 and 42, QAIRT 2.50 and 2.51, 2 and 4 heads; not with one head, two or more query rows, "
    "a float MatMul, heads as the first axis (heads, 1, 1, width), or query heads that share a key head; unknown on a "
    "phone",
    way_out="put the heads first, compute Q.K^T in float, or decode with two query rows; an 8-bit key does not help",
)
KNOWN_DEFECTS: Final[tuple[KnownDefect, ...]] = (ONE_ROW_ATTENTION,)
