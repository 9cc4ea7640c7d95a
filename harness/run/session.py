"""The runner's process on the phone: started with its pid known, watched, and ended by that pid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from harness.device.adb import AdbDevice
from harness.device.shell import ShellResult
from harness.errors import HostError, InfraError
from harness.record.runner import heartbeat_step

_START = """
cd "$1" || exit 1
echo $$ > pid || exit 1
[ -x ./snapgate-runner ] || { echo "not executable: $1/snapgate-runner" >&2; exit 126; }
export LD_LIBRARY_PATH="$2"
[ -n "$3" ] && export ADSP_LIBRARY_PATH="$3"
exec ./snapgate-runner --job job.json --out .
"""
_STOP = """
read -r pid < "$1/pid" 2>/dev/null || exit 0
case "$pid" in ''|*[!0-9]*) exit 0;; esac
ours() { case "$(tr '\\0' ' ' < /proc/$pid/cmdline 2>/dev/null)" in *snapgate-runner*) return 0;; esac; return 1; }
ours || exit 0
kill -TERM $pid 2>/dev/null
n=0
while [ $n -lt 30 ]; do ours || exit 0; sleep 0.1; n=$((n+1)); done
kill -9 $pid 2>/dev/null
exit 0
"""

STDOUT_LIMIT: Final = 64 * 1024 * 1024
STDERR_LINES: Final = 5000
STDERR_LINE: Final = 4000


@dataclass(slots=True, kw_only=True)
class RunnerProcess:
    """One start of the runner. ``stdout`` and ``stderr`` grow while it runs, and stay when the phone is lost.

    Both are bounded: of more stdout than any run has the head is kept, of more stderr the end.
    """

    device: AdbDevice
    folder: PurePosixPath
    environment: dict[str, str]
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    _size: int = 0

    def run(self, *, deadline_s: float, stall_s: float, watch: Callable[[str], None]) -> ShellResult:
        """Until the process ends. Whatever else ends the wait (time, Ctrl-C, a lost phone) ends the process too.

        ``watch`` sees every line of stdout as it comes.
        """

        def on_line(line: str) -> None:
            if heartbeat_step(line) is None:
                self._size += len(line) + 1
                if self._size <= STDOUT_LIMIT:
                    self.stdout.append(line)
            watch(line)

        def on_error_line(line: str) -> None:
            self.stderr.append(line[:STDERR_LINE])
            if len(self.stderr) > 2 * STDERR_LINES:
                del self.stderr[:STDERR_LINES]

        argv: list[str | PurePosixPath] = [
            "sh",
            "-c",
            _START,
            "snapgate-runner-start",
            self.folder,
            self.environment["LD_LIBRARY_PATH"],
            self.environment.get("ADSP_LIBRARY_PATH", ""),
        ]
        try:
            return self.device.stream(
                argv,
                on_line=on_line,
                on_error_line=on_error_line,
                deadline_s=deadline_s,
                stall_s=stall_s,
                what="run the model",
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process by its pid: asked first, killed after 3 s. A phone that is gone has ended it by itself."""
        with contextlib.suppress(InfraError, HostError):
            self.device.script(_STOP, self.folder, timeout_s=15, what="stop the runner")
