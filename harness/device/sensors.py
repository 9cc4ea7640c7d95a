"""Temperatures, clocks and battery readings of a phone over a run: one streaming loop on the phone, parsed afterwards.

The loop runs in the phone's own shell with builtins only (one ``sleep`` a second is its sole process), at 1 Hz over at
most 16 thermal zones, 4 clocks and 3 battery values. It prints a line ``S uptime v0 v1 ...`` per sample; a node that
cannot be read gives ``-``. Every 10 s a line ``M`` has the runner's memory: VmRSS and VmSwap, PSS (``smaps_rollup``),
and the dma-buf behind its open descriptors (one that is open twice counts twice). It ends by itself after a set number
of samples, when its output is gone, or by its pid.

Clocks: ``/proc/uptime`` counts CLOCK_BOOTTIME in hundredths of a second. The runner states both clocks of one moment
in its first and last record, so CLOCK_MONOTONIC = uptime - (boottime - monotonic). The two drift apart only while the
phone is suspended; if the difference changed by over 50 ms during the run, the stamps are suspect and say so.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harness.device.adb import AdbDevice
from harness.device.shell import LineSplitter, Patience, converse, new_nonce
from harness.device.text import printable
from harness.errors import HostError, InfraError
from harness.record.run import SensorSeries
from harness.record.runner import Clock

MAX_ZONES: Final = 16
MAX_CLOCKS: Final = 4
MAX_BATTERY: Final = 3
_MEMORY: Final = ("runner rss", "runner swap", "runner pss", "runner dma-buf", "phone available")
_RAW_LIMIT: Final = 16 * 1024 * 1024
_SUSPEND_NS: Final = 50_000_000
_CONSTANT_SAMPLES: Final = 20

_DOMAINS: Final[tuple[tuple[str, str], ...]] = (
    (r"nsp|npu|hmx|hvx|cdsp|(^|[-_])q6|hexagon", "npu"),
    (r"gpu|kgsl", "gpu"),
    (r"cpu|apc\d|(silver|gold|prime)", "cpu"),
    (r"ddr|dram", "ddr"),
    (r"skin|quiet|shell|back[-_]|(^|[-_])front|case[-_]|xo-therm|sys-therm|board", "skin"),
    (r"^batt|battery|^bat$", "battery"),
)
_NO_TEMPERATURE: Final = re.compile(r"bcl|vbat|ibat|^socd?$|vph|trip|isense|(^|[-_])soc$|step", re.IGNORECASE)
_WANTED: Final = ("npu", "cpu", "gpu", "skin", "battery", "ddr", "other")
_SENTINELS_CELSIUS: Final = frozenset({-273.0, -273.15, 0.0, 125.0, -40.0})

_LIST: Final = """
for z in /sys/class/thermal/thermal_zone*; do
  t=; { read -r t < $z/type; } 2>/dev/null
  [ -n "$t" ] && echo "zone $z $t"
done
n=0
for c in /sys/devices/system/cpu/cpufreq/policy* /sys/devices/system/cpu/cpu[0-9]*/cpufreq; do
  [ -e $c/scaling_cur_freq ] && echo "clock $c/scaling_cur_freq" && n=$((n+1))
done
b=/sys/class/power_supply/battery
for f in current_now voltage_now temp; do [ -e $b/$f ] && echo "battery $b/$f"; done
exit 0
"""
_LOOP: Final = """
n=$1 run=$2 k=0 due=0; shift 2
memory() {
  p=; { read -r p < "$run/pid"; } 2>/dev/null
  case "$p" in ''|*[!0-9]*) return 1;; esac
  rss=- swap=- pss=- dma=-
  { while read -r key v rest; do
    case "$key" in VmRSS:) rss=$v;; VmSwap:) swap=$v;; esac
  done < /proc/$p/status; } 2>/dev/null
  [ "$rss" = - ] && return 1
  { while read -r key v rest; do
    case "$key" in Pss:) pss=$v;; esac
  done < /proc/$p/smaps_rollup; } 2>/dev/null
  for f in /proc/$p/fdinfo/*; do
    size= name=
    { while read -r key v rest; do
      case "$key" in size:) size=$v;; exp_name:) name=$v;; esac
    done < $f && [ "$dma" = - ] && dma=0; } 2>/dev/null
    case "$name$size" in *[0-9]) [ -n "$name" ] && dma=$((dma+size));; esac
  done
  free=-
  { while read -r key v rest; do
    case "$key" in MemAvailable:) free=$v; break;; esac
  done < /proc/meminfo; } 2>/dev/null
  echo "M $u $rss $swap $pss $dma $free"
}
echo "P $$"
while [ $n -gt 0 ]; do
  u=; { read -r u rest < /proc/uptime; } 2>/dev/null
  line="S $u"
  for f in "$@"; do
    v=-; { read -r v rest < "$f"; } 2>/dev/null
    line="$line ${v:--}"
  done
  echo "$line" || exit 1
  [ -n "$run" ] && [ $k -ge $due ] && memory && due=$((k+10))
  n=$((n-1)) k=$((k+1))
  sleep 1 < /dev/null > /dev/null 2>&1
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One file to sample. ``kind``: zone, clock, battery, or memory, of the runner and of the phone."""

    path: str
    name: str
    kind: str
    domain: str
    unit: str


def domain_of(zone: str) -> str:
    """The domain of a thermal zone by its type; ``other`` when the name says nothing."""
    name = zone.lower()
    return next((domain for pattern, domain in _DOMAINS if re.search(pattern, name)), "other")


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Everything the phone offers. Zones that are no temperature (battery current limits, trip levels) are left out."""
    nodes: list[Node] = []
    for line in text.splitlines():
        kind, _, rest = line.strip().partition(" ")
        path, _, label = rest.partition(" ")
        if not re.fullmatch(r"/sys/[A-Za-z0-9_/.-]{1,200}", path):
            continue
        if kind == "zone":
            label = printable(label, 60)
            if label and not _NO_TEMPERATURE.search(label):
                nodes.append(Node(path=f"{path}/temp", name=label, kind=kind, domain=domain_of(label), unit="celsius"))
        elif kind == "clock":
            owner = path.split("/")[-2] if path.split("/")[-2] != "cpufreq" else path.split("/")[-3]
            nodes.append(Node(path=path, name=f"clock {owner}", kind=kind, domain="cpu", unit="hz"))
        elif kind == "battery":
            leaf = path.rsplit("/", 1)[-1]
            unit = {"current_now": "ua", "voltage_now": "uv", "temp": "celsius"}.get(leaf)
            if unit is not None:
                nodes.append(Node(path=path, name=f"battery {leaf}", kind=kind, domain="battery", unit=unit))
    return tuple(nodes)


def choose_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """At most 16 zones, spread over the domains so that none crowds out another; 4 clocks, spread; all battery nodes.

    Clocks of policies and of single CPUs are the same files: policies win.
    """
    by_domain = {d: [n for n in nodes if n.kind == "zone" and n.domain == d] for d in _WANTED}
    zones: list[Node] = []
    for turn in range(max((len(found) for found in by_domain.values()), default=0)):
        for domain in _WANTED:
            if turn < len(by_domain[domain]) and len(zones) < MAX_ZONES:
                zones.append(by_domain[domain][turn])
    clocks = [node for node in nodes if node.kind == "clock"]
    policies = [node for node in clocks if "/policy" in node.path]
    return (
        *zones,
        *_spread(policies or clocks, MAX_CLOCKS),
        *[node for node in nodes if node.kind == "battery"][:MAX_BATTERY],
    )


def _spread(nodes: Sequence[Node], n: int) -> tuple[Node, ...]:
    if len(nodes) <= n:
        return tuple(nodes)
    return tuple(nodes[i * (len(nodes) - 1) // (n - 1)] for i in range(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    uptime_s: float
    values: tuple[int | None, ...]


def parse_samples(lines: Sequence[str], n_nodes: int) -> tuple[Sample, ...]:
    """``S uptime v0 v1 ...`` lines with exactly ``n_nodes`` values; a cut or foreign line is passed over."""
    samples = []
    for line in lines:
        words = line.split()
        if len(words) != n_nodes + 2 or words[0] != "S" or not re.fullmatch(r"\d{1,12}\.\d{1,3}", words[1]):
            continue
        values = tuple(int(w) if re.fullmatch(r"-?\d{1,12}", w) else None for w in words[2:])
        samples.append(Sample(uptime_s=float(words[1]), values=values))
    return tuple(samples)


def memory_series(lines: Sequence[str], *, start: Clock | None, end: Clock | None) -> tuple[SensorSeries, ...]:
    """``M uptime rss swap pss dma available`` lines (kB, dma-buf in bytes), one series of bytes each; ``-`` is None.

    Swap of 0 and no dma-buf at all are readings. A runner that ended before it was looked at leaves ``unavailable``.
    """
    samples = parse_samples(["S" + line[1:] for line in lines if line.startswith("M ")], len(_MEMORY))
    return series_from(
        [Node(path="", name=name, kind="memory", domain="memory", unit="bytes") for name in _MEMORY],
        [
            replace(sample, values=tuple(v if v is None or v >= 0 else None for v in sample.values))
            for sample in samples
        ],
        start=start,
        end=end,
    )


def series_from(
    nodes: Sequence[Node], samples: Sequence[Sample], *, start: Clock | None, end: Clock | None
) -> tuple[SensorSeries, ...]:
    """One series per node. Without the runner's clocks no stamp can be given, and every series is ``unavailable``."""
    offset_ns = start.boottime_ns - start.monotonic_ns if start is not None else None
    suspended = (
        start is not None
        and end is not None
        and abs((end.boottime_ns - end.monotonic_ns) - (start.boottime_ns - start.monotonic_ns)) > _SUSPEND_NS
    )
    series = []
    for index, node in enumerate(nodes):
        stamps: tuple[int, ...] = ()
        values: tuple[float | None, ...] = ()
        state = "unavailable"
        if offset_ns is not None:
            stamps = tuple(round(sample.uptime_s * 1e9) - offset_ns for sample in samples)
            values, state = judge(node, [sample.values[index] for sample in samples])
            if suspended and state in ("ok", "partial"):
                state = "suspect"
        series.append(
            SensorSeries(
                name=node.name, domain=node.domain, unit=node.unit, state=state, monotonic_ns=stamps, values=values
            )
        )
    return tuple(series)


def judge(node: Node, raw: Sequence[int | None]) -> tuple[tuple[float | None, ...], str]:
    """Raw readings in the node's unit, and how far they can be trusted.

    Temperatures: a reading that is a known placeholder (absolute zero, 0, 125 °C) is None. Nothing but placeholders,
    a unit that had to be guessed, or a core's temperature that never moved over 20 samples, is ``suspect`` and keeps
    its values.
    """
    read = [value for value in raw if value is not None]
    if not read:
        return tuple(None for _ in raw), "unavailable"
    missing = len(read) < len(raw)
    if node.unit != "celsius":
        factor = {"hz": 1000.0, "bytes": 1.0 if node.name.endswith("dma-buf") else 1024.0}.get(node.unit, 1.0)
        return tuple(None if v is None else v * factor for v in raw), "partial" if missing else "ok"
    divisor, guessed = _celsius_divisor(node, read)
    values = tuple(None if v is None else v / divisor for v in raw)
    real = [v for v in values if v is not None and v not in _SENTINELS_CELSIUS]
    if not real:
        return values, "suspect"
    constant = len(real) >= _CONSTANT_SAMPLES and len(set(real)) == 1 and node.domain in ("cpu", "gpu", "npu")
    cleaned = tuple(None if v in _SENTINELS_CELSIUS else v for v in values)
    if constant or guessed:
        return cleaned, "suspect"
    return cleaned, "partial" if missing or len(real) < len(read) else "ok"


def _celsius_divisor(node: Node, read: Sequence[int]) -> tuple[float, bool]:
    """Thermal zones give thousandths, the battery tenths. A zone with smaller numbers uses another unit: a guess."""
    if node.kind == "battery":
        return 10.0, False
    largest = max(abs(value) for value in read)
    if largest >= 1000 or largest == 0:
        return 1000.0, False
    return (10.0, True) if largest > 150 else (1.0, True)


class SensorRecorder:
    """Runs the loop on the phone while a run goes on. Trouble with sensors never fails the run: ``state`` shows it."""

    def __init__(
        self,
        device: AdbDevice,
        *,
        max_samples: int,
        run_folder: PurePosixPath | None = None,
        watch: Callable[[Sequence[Node], str], None] | None = None,
    ) -> None:
        """``run_folder``: of the runner whose memory is read too, every 10 s; its ``pid`` is there.

        ``watch`` sees every line as it comes, in the thread that reads; it must not raise.
        """
        self._device = device
        self._run_folder = run_folder
        self._watch = watch
        self._max_samples = max_samples
        self._lines: list[str] = []
        self._size = 0
        self._pid: int | None = None
        self._connection: Any = None
        self._thread: threading.Thread | None = None
        self.nodes: tuple[Node, ...] = ()
        self.trouble: str | None = None
        self.ended_with: int | None = None
        """Exit code of the loop: 137 when ``stop`` ended it, 0 after its last sample; None when that was not seen."""

    def start(self) -> None:
        try:
            listed = self._device.script(_LIST, what="list sensors")
            self.nodes = choose_nodes(parse_nodes(listed.text))
            if not self.nodes:
                self.trouble = "the phone shows no sensor to its shell"
                return
            nonce = new_nonce()
            folder = "" if self._run_folder is None else str(self._run_folder)
            argv = ["sh", "-c", _LOOP, "snapgate-sensors", str(self._max_samples), folder]
            argv += [node.path for node in self.nodes]
            self._connection = self._device.open_stream(argv, nonce=nonce)
        except (InfraError, HostError) as exc:
            self.trouble = str(exc)
            return
        self._thread = threading.Thread(target=self._read, args=(tuple(argv), nonce), name="sensors", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop on the phone by its pid, then the reader. Safe to call twice, and on a phone that is gone."""
        if self._connection is None:
            return
        if self._pid is not None:
            with contextlib.suppress(InfraError, HostError):
                self._device.run(["kill", "-9", str(self._pid)], timeout_s=10, what="stop the sensors")
        if self._thread is not None:
            self._thread.join(timeout=3)
        with contextlib.suppress(OSError):
            self._connection.close()
        if self._thread is not None:
            self._thread.join(timeout=3)
        self._connection = None

    def series(self, *, start: Clock | None, end: Clock | None) -> tuple[SensorSeries, ...]:
        nodes = series_from(self.nodes, parse_samples(self._lines, len(self.nodes)), start=start, end=end)
        if self._run_folder is None:
            return nodes
        return (*nodes, *memory_series(self._lines, start=start, end=end))

    def write_raw(self, path: Path) -> None:
        """The raw text: which value belongs to which file, then every line as it came."""
        head = [f"# {i} {node.path} {node.name}" for i, node in enumerate(self.nodes)]
        if self.trouble is not None:
            head.append(f"# {printable(self.trouble, 500)}")
        path.write_text("\n".join([*head, *self._lines]) + "\n", encoding="utf-8")

    def _read(self, argv: tuple[str, ...], nonce: str) -> None:
        splitter = LineSplitter(self._take)
        try:
            result = converse(
                self._connection,
                argv=argv,
                nonce=nonce,
                stdin=None,
                patience=Patience.of(self._max_samples * 4 + 60, 60.0),
                what="sample sensors",
                on_stdout=splitter.add,
            )
            self.ended_with = result.exit_code
        except (InfraError, EOFError, OSError, AttributeError) as exc:
            if self.trouble is None and self._pid is None:
                self.trouble = f"sensors ended early: {exc}"
        splitter.finish()

    def _take(self, line: str) -> None:
        if line.startswith("P ") and self._pid is None and line[2:].isascii() and line[2:].isdigit():
            self._pid = int(line[2:])
            return
        self._size += len(line) + 1
        if self._size <= _RAW_LIMIT:
            self._lines.append(printable(line, 1000))
        if self._watch is not None:
            self._watch(self.nodes, line)
