"""What SnapGate sets on a phone for a run, and how it is put back, also after a crash of this host.

The journal is a folder on the phone, ``/data/local/tmp/snapgate/changed``: before a setting is changed, a file of its
name gets the value that it had. Restoring sets those values and removes the files. What is read back from the phone is
looked up in a fixed table and checked; it never becomes part of a command by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.faults import command_fault
from harness.device.identity import split_sections
from harness.device.text import printable
from harness.errors import InfraError, UserError

JOURNAL: Final = PurePosixPath("/data/local/tmp/snapgate/changed")


class Change(StrEnum):
    AIRPLANE = "airplane"
    """Radios off. Never over a network transport, which it would cut."""
    SCREEN_OFF = "screen-off"
    REFRESH_60 = "refresh-60"
    FIXED_PERFORMANCE = "fixed-performance"
    """Android's sustained clocks; the phone does not tell whether it was on, so it is turned off afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Shell texts without any input but ``$1``, the value. ``read`` prints the value that is now."""

    read: str
    put: str
    value: str
    known: str
    """Pattern of the values that may be put back."""


_WAYS: Final[Mapping[Change, _Way]] = {
    Change.AIRPLANE: _Way(
        read="settings get global airplane_mode_on",
        put='case "$1" in 1) cmd connectivity airplane-mode enable;; *) cmd connectivity airplane-mode disable;; esac',
        value="1",
        known=r"[01]|null",
    ),
    Change.SCREEN_OFF: _Way(
        read="dumpsys power | grep -q mWakefulness=Awake && echo on || echo off",
        put='case "$1" in off) input keyevent 223;; *) input keyevent 224;; esac',
        value="off",
        known=r"on|off",
    ),
    Change.REFRESH_60: _Way(
        read="settings get system peak_refresh_rate",
        put='case "$1" in null) settings delete system peak_refresh_rate;; '
        '*) settings put system peak_refresh_rate "$1";; esac',
        value="60.0",
        known=r"\d{1,3}(\.\d{1,6})?|Infinity|null",
    ),
    Change.FIXED_PERFORMANCE: _Way(
        read="echo false",
        put='cmd power set-fixed-performance-mode-enabled "$1"',
        value="true",
        known=r"false",
    ),
}
_APPLY: Final = """
mkdir -p "$2" || exit 1
if [ ! -f "$2/$1" ]; then
  was=$({read}) || exit 1
  echo "$was" > "$2/.$1" && mv -f "$2/.$1" "$2/$1" || exit 1
fi
shift 2
{{ {put}; }} > /dev/null
"""
_LIST: Final = """
cd "$1" 2>/dev/null || exit 0
for f in *; do [ -f "$f" ] && echo "--snapgate $f" && head -c 100 "$f"; done
exit 0
"""
_UNDO: Final = """
j=$1; name=$2; shift 2
{{ {put}; }} > /dev/null && rm -f "$j/$name"
"""


def apply(device: AdbDevice, changes: Iterable[Change]) -> tuple[str, ...]:
    """Set what is asked for, each journalled on the phone first. Raises ``InfraError`` when the phone refuses one."""
    done = []
    for change in changes:
        if change is Change.AIRPLANE and ":" in device.transport:
            raise UserError(
                "airplane mode would cut off a phone that is connected over the network",
                found=device.transport,
                expected="a phone on USB",
                next_step="connect it by USB, or leave airplane mode alone",
            )
        way = _WAYS[change]
        what = f"set {change} on the phone"
        result = device.script(
            _APPLY.format(read=way.read, put=way.put), str(change), JOURNAL, way.value, timeout_s=30, what=what
        )
        if result.exit_code != 0:
            raise command_fault(result, what=what, phone=device.transport)
        done.append(str(change))
    return tuple(done)


def pending(device: AdbDevice) -> dict[str, str]:
    """Settings that were changed and not put back, with the value that each had."""
    listed = device.script(_LIST, JOURNAL, what="read what was changed on the phone")
    return {
        printable(name, 60): printable(value, 60) for name, value in split_sections(listed.text).items() if name != ""
    }


def restore(device: AdbDevice) -> tuple[str, ...]:
    """Put back all that is journalled on the phone; what was put back, as ``name: value``.

    Raises ``InfraError`` naming each that could not be put back, after all others were.
    """
    restored, failed = [], []
    for name, value in pending(device).items():
        if name not in set(Change) or not re.fullmatch(_WAYS[Change(name)].known, value):
            failed.append(f"{name}: {value!r} is nothing that SnapGate sets")
            continue
        what = f"put back {name}"
        undo = _UNDO.format(put=_WAYS[Change(name)].put)
        result = device.script(undo, JOURNAL, name, value, timeout_s=30, what=what)
        if result.exit_code == 0:
            restored.append(f"{name}: {value}")
        else:
            failed.append(f"{name}: {result.said()}")
    if failed:
        raise InfraError(
            f"phone {device.transport} could not be put back as it was",
            found="; ".join(failed),
            next_step=f"put it back by hand, then remove {JOURNAL} on the phone",
        )
    return tuple(restored)
