"""What a phone's log says of a run that went wrong: a tombstone, a crash of the NPU's DSP, an access that was denied.

The texts are those of Android's crash reporter (``DEBUG``), of the kernel's remoteproc and subsystem-restart drivers,
of the fastrpc library and of SELinux. Lines are a phone's: cut and made printable before anyone sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.device.text import printable
from harness.run.libraries import RUNNER

_LINE: Final = 1000
_SHORT: Final = RUNNER[:15]
"""As the kernel cuts a process' name."""
_DSP_CRASH: Final = re.compile(
    r"(remoteproc|subsys|pil|qcom_q6v5|sysmon|ssr)\S*.{0,80}\b(cdsp|nsp)\S*.{0,120}(crash|fatal error|restart|SSR)"
    r"|\b(crash|fatal error|SSR)\b.{0,80}\bcdsp"
    r"|(adsprpc|fastrpc|cdsprpc).{0,120}\b(SSR|subsystem restart|PDR)\b",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(r"avc:\s+denied\s+\{[^}]{1,100}\}.*")
_PROCESS: Final = re.compile(r"F DEBUG\s*:\s+pid: (\d{1,7}), tid: \d{1,7}, name: (\S{1,40})")
_SIGNAL: Final = re.compile(r"F DEBUG\s*:\s+(signal \d{1,2} \(SIG[A-Z]{2,6}\).{0,200}|Abort message:.{0,300})")
_FRAME: Final = re.compile(r"F DEBUG\s*:\s+(#00 .{1,300})")
_FILE: Final = re.compile(r"Tombstone written to: (\S{1,100})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Each as one printable text, None where the log has none of it."""

    tombstone: str | None = None
    """Of the runner, and of no other program"""
    dsp_crash: str | None = None
    denial: str | None = None
    """Of an access of the runner"""


def read_signs(logcat: str, *, pid: int | None) -> Signs:
    lines = [line[:_LINE] for line in logcat.splitlines()]
    crash = next((printable(line) for line in lines if _DSP_CRASH.search(line)), None)
    denied = next((printable(line, 300) for line in lines if _DENIED.search(line) and _is_runners(line, pid)), None)
    return Signs(tombstone=_tombstone(lines, pid), dsp_crash=crash, denial=denied)


def _is_runners(line: str, pid: int | None) -> bool:
    return f'comm="{_SHORT}' in line or (pid is not None and re.search(rf"\bpid={pid}\b", line) is not None)


def _tombstone(lines: list[str], pid: int | None) -> str | None:
    """The first part of each kind, between the runner's own header and the next program's."""
    parts: list[str] = []
    ours = False
    for line in lines:
        if (header := _PROCESS.search(line)) is not None:
            ours = header[2].startswith(_SHORT) or (pid is not None and header[1] == str(pid))
            continue
        if ours:
            parts.extend(found for found in _parts(line) if found[:8] not in {part[:8] for part in parts})
    return printable("; ".join(parts), 400) if parts else None


def _parts(line: str) -> Iterator[str]:
    for pattern in (_SIGNAL, _FRAME, _FILE):
        if (match := pattern.search(line)) is not None:
            yield match[1]
