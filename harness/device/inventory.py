"""What a phone brings along for the HTP: verified boot, DRAM, QNN and DSP libraries, fastrpc nodes, symbols.

One call, by the phone's own shell. ``None`` and empty mean that the phone does not show it to its shell; why the
symbols could not be read is said. Nothing here decides whether a phone is usable: the runner asks the libraries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.faults import command_fault
from harness.device.identity import split_sections
from harness.device.text import printable

SYMBOLS: Final = ("rpcmem_alloc", "rpcmem_free", "rpcmem_to_fd", "remote_session_control")
"""Of ``libcdsprpc.so``: what memory shared with the DSP, and sessions on it, need."""
_MOST: Final = 64
_DRAM_TYPES: Final = {7: "LPDDR4X", 8: "LPDDR5"}
"""``ddr_device_type`` of the device tree, as Qualcomm's boot loader fills it"""

_READ: Final = """
echo "--snapgate boot"; getprop ro.boot.verifiedbootstate
echo "--snapgate dram"; getprop ro.boot.hardware.ddr
echo "--snapgate dram_node"; od -An -tx1 /proc/device-tree/memory/ddr_device_type 2>/dev/null
echo "--snapgate nodes"
for n in /dev/fastrpc-* /dev/adsprpc-smd*; do
  [ -e "$n" ] || continue
  if [ -r "$n" ]; then echo "$n open"; else echo "$n closed"; fi
done
echo "--snapgate libraries"
for d in /vendor/lib64 /system/lib64 /system/vendor/lib64 /odm/lib64 /vendor/dsp/cdsp /vendor/lib/rfsa/adsp; do
  for f in "$d"/libQnn* "$d"/libcdsprpc.so "$d"/libadsprpc.so; do [ -e "$f" ] && echo "$f"; done
done
echo "--snapgate symbols"
lib=
for f in /vendor/lib64/libcdsprpc.so /system/lib64/libcdsprpc.so; do [ -e "$f" ] && { lib=$f; break; }; done
if [ -z "$lib" ]; then echo "no libcdsprpc.so"
elif [ ! -r "$lib" ]; then echo "$lib is not readable"
else
  echo "in $lib"
  for s in "$@"; do grep -q -a "$s" "$lib" 2>/dev/null && echo "has $s"; done
fi
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    verified_boot: str | None
    """``ro.boot.verifiedbootstate``: green, yellow, orange or red"""
    dram: str | None
    """Type, or what the vendor calls the modules"""
    libraries: tuple[str, ...]
    """Paths of QNN and DSP libraries of the system and the vendor"""
    fastrpc_nodes: tuple[str, ...]
    """Devices of the DSP that the shell may open"""
    fastrpc_nodes_closed: tuple[str, ...]
    """Those that are there and that it may not"""
    symbols: tuple[str, ...]
    """Which of ``SYMBOLS`` the phone's ``libcdsprpc.so`` names"""
    symbols_unavailable: str | None
    """Why they could not be looked for; None: they were"""


def parse_inventory(text: str) -> Inventory:
    """Total: any text gives an inventory."""
    sections = split_sections(text)
    nodes = re.findall(r"^(/dev/[A-Za-z0-9_-]{1,60}) (open|closed)\r?$", sections.get("nodes", ""), re.MULTILINE)
    libraries = re.findall(r"^(/[A-Za-z0-9_./+-]{1,200})\r?$", sections.get("libraries", ""), re.MULTILINE)
    said = [printable(line, 200) for line in sections.get("symbols", "").splitlines() if line.strip()]
    named = frozenset(line.removeprefix("has ") for line in said if line.startswith("has "))
    looked = bool(said) and said[0].startswith("in /")
    return Inventory(
        verified_boot=_word(sections.get("boot", "")),
        dram=_word(sections.get("dram", "")) or _dram_of_tree(sections.get("dram_node", "")),
        libraries=tuple(libraries[:_MOST]),
        fastrpc_nodes=tuple(path for path, how in nodes if how == "open")[:_MOST],
        fastrpc_nodes_closed=tuple(path for path, how in nodes if how == "closed")[:_MOST],
        symbols=tuple(name for name in SYMBOLS if name in named) if looked else (),
        symbols_unavailable=None if looked else (said[0] if said else "the phone did not say"),
    )


def read_inventory(device: AdbDevice, *, timeout_s: float = 15.0) -> Inventory:
    """One call. Raises ``InfraError`` kinds when the phone does not answer."""
    what = "read what the phone brings along"
    result = device.script(_READ, *SYMBOLS, timeout_s=timeout_s, what=what)
    if result.exit_code != 0:
        raise command_fault(result, what=what, phone=device.transport)
    return parse_inventory(result.text)


def _word(text: str) -> str | None:
    return printable(text.strip(), 80) or None


def _dram_of_tree(text: str) -> str | None:
    digits = "".join(text.split())
    if not re.fullmatch(r"[0-9a-f]{8}", digits):
        return None
    kind = int(digits, 16)
    return _DRAM_TYPES.get(kind, f"device tree type {kind}")
