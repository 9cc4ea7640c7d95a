"""Who a phone is: its properties, read in one call, as ``DeviceFacts``.

The SoC part is what everything else hangs on, so it is never guessed: it comes from a property that carries a part
number. A platform name (``pineapple``, ``taro``) is shared by several parts with different HTPs and never used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.faults import command_fault
from harness.device.text import printable
from harness.errors import PhoneLostError, TransferError
from harness.record.run import DeviceFacts
from harness.soc import BY_PART, SOCS

VIRTUAL_MARK: Final = "ro.snapgate.virtual"
ISOLATION_MARK: Final = "ro.snapgate.isolation"

_PROPERTY: Final = re.compile(r"\[([^\]]+)\]: \[(.*)")
_BOOT_ID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MAX_VALUE: Final = 4096
_PART: Final = re.compile(r"(SM\d{4})(?:P|[-_][A-Z0-9]{1,6})?")
_SOC_PROPERTIES: Final = ("ro.soc.model", "ro.vendor.qti.soc_model")
_SOC_NODE: Final = "/sys/devices/soc0/machine"

_READ_FACTS: Final = f"""
getprop
echo "--snapgate boot_id"; cat /proc/sys/kernel/random/boot_id
echo "--snapgate meminfo"; grep MemTotal /proc/meminfo
echo "--snapgate soc0"; cat {_SOC_NODE} 2>/dev/null
exit 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocReading:
    """``part`` is one of the catalogue, or None with the ``reason`` why not. ``source``: the property it came from."""

    part: str | None
    source: str
    reason: str | None


def parse_properties(text: str) -> dict[str, str]:
    """``[key]: [value]``; a value may have line breaks. Total, in one pass over any text; values are made printable."""
    found: dict[str, str] = {}
    name, value, size = "", list[str](), 0
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        match = _PROPERTY.fullmatch(line) if not name else None
        if match is not None:
            name, value, size = match[1].strip(), [match[2]], len(match[2])
        elif name:
            value.append(line)
            size += len(line)
        if name and value[-1].endswith("]"):
            found[name] = printable("\n".join(value)[:-1])
            name = ""
        elif size > _MAX_VALUE:
            name = ""
    return found


def split_sections(text: str) -> dict[str, str]:
    """The answer of a script that prints ``--snapgate NAME`` before each part; what comes first has the name ``""``."""
    sections: dict[str, list[str]] = {"": []}
    name = ""
    for line in text.splitlines():
        if line.startswith("--snapgate "):
            name = line.removeprefix("--snapgate ").strip()
            sections.setdefault(name, [])
        else:
            sections[name].append(line)
    return {name: "\n".join(lines) for name, lines in sections.items()}


def read_soc(properties: Mapping[str, str], soc0: str = "") -> SocReading:
    """The part number: ``ro.soc.model`` first, then the vendor's property and the kernel's soc0 node.

    A bin or package suffix (``SM8650-AC``, ``SM8750P``) belongs to the same part. Two sources that name different
    parts refute each other, and none is taken.
    """
    said = {name: properties.get(name, "").strip().upper() for name in _SOC_PROPERTIES}
    said[_SOC_NODE] = printable(soc0).upper()
    parts = {name: match[1] for name, text in said.items() if (match := _PART.fullmatch(text)) is not None}
    if len(set(parts.values())) > 1:
        listed = ", ".join(f"{name} says {part}" for name, part in parts.items())
        return SocReading(part=None, source="", reason=f"the phone contradicts itself about its SoC: {listed}")
    if parts:
        name, part = next(iter(parts.items()))
        if part in BY_PART:
            return SocReading(part=part, source=name, reason=None)
        known = ", ".join(soc.part for soc in SOCS)
        return SocReading(part=None, source=name, reason=f"SoC {part} is not in the catalogue ({known})")
    maker = properties.get("ro.soc.manufacturer", "") or "unknown maker"
    model = said["ro.soc.model"] or "not set"
    platform = properties.get("ro.board.platform", "") or "not set"
    return SocReading(
        part=None,
        source="",
        reason=f"unknown SoC: ro.soc.model is {model} ({maker}); the platform {platform} alone does not tell the part",
    )


def facts_from(text: str, transport: str) -> tuple[DeviceFacts, str | None]:
    """Facts from the answer of the one call, and why the phone is not usable (None: it is)."""
    sections = split_sections(text)
    properties = parse_properties(sections[""])
    soc = read_soc(properties, sections.get("soc0", ""))
    serial = properties.get("ro.serialno", "") or properties.get("ro.boot.serialno", "")
    memory = re.search(r"MemTotal:\s*(\d{1,12})\s*kB", sections.get("meminfo", ""))
    sdk = properties.get("ro.build.version.sdk", "")
    facts = DeviceFacts(
        transport=transport,
        serial=serial,
        fingerprint=properties.get("ro.build.fingerprint", ""),
        model=properties.get("ro.product.model", ""),
        part=soc.part or "",
        soc_source=soc.source,
        abi=properties.get("ro.product.cpu.abi", ""),
        android_release=properties.get("ro.build.version.release", ""),
        sdk_level=int(sdk) if sdk.isascii() and sdk.isdigit() and len(sdk) < 6 else None,
        ram_bytes=int(memory[1]) * 1024 if memory else None,
        boot_id=printable(sections.get("boot_id", ""), 64),
        virtual=properties.get(VIRTUAL_MARK, "") == "1",
        isolation=properties.get(ISOLATION_MARK) or None,
    )
    if not properties:
        return facts, "getprop gave no properties"
    if not serial:
        return facts, "no serial number (ro.serialno is empty)"
    return facts, soc.reason


def read_facts(device: AdbDevice, *, timeout_s: float = 15.0) -> tuple[DeviceFacts, str | None]:
    """One call. Raises ``InfraError`` kinds when the phone does not answer."""
    what = "read the phone's properties"
    result = device.script(_READ_FACTS, timeout_s=timeout_s, what=what)
    if result.exit_code != 0:
        raise command_fault(result, what=what, phone=device.transport)
    return facts_from(result.text, device.transport)


def confirm(device: AdbDevice, facts: DeviceFacts) -> tuple[DeviceFacts, str | None]:
    """``read_facts``, of the very phone that ``facts`` are of. ``PhoneLostError``: another one answers there now."""
    now, reason = read_facts(device)
    if now.serial != facts.serial or (reason is None and now.part != facts.part):
        raise PhoneLostError(
            f"phone {facts.serial} is no longer at {facts.transport}",
            found=f"serial {now.serial or 'none'} ({now.part or 'SoC unknown'})",
            expected=f"serial {facts.serial} ({facts.part or 'SoC unknown'})",
            next_step="discover the phones again",
        )
    return now, reason


def read_boot_id(device: AdbDevice, *, timeout_s: float = 10.0) -> str:
    """The kernel's boot id: another one means that the phone rebooted."""
    what = "read the boot id"
    result = device.run(["cat", "/proc/sys/kernel/random/boot_id"], timeout_s=timeout_s, what=what)
    boot_id = printable(result.text, 64)
    if result.exit_code != 0 or not boot_id:
        # An empty id would make the next look at it a reboot that never was.
        raise command_fault(result, what=what, phone=device.transport)
    if re.fullmatch(_BOOT_ID, boot_id) is None:
        # Nor is a damaged answer one.
        raise TransferError(
            f"{what}: damaged on the way from phone {device.transport}", found=boot_id, expected="36 digits and dashes"
        )
    return boot_id
